//! Tests of partial reads of tool results, and of the service's own model tools.

use futures::StreamExt as _;
use palimpsest_proto::context::v1::call_tool_request::Call;
use palimpsest_proto::context::v1::read_tool_result_request::{Result as Whose, Selection};
use palimpsest_proto::context::v1::{
    ByteRange, CallRef, CallToolRequest, Format, LineRange, LineSearch, ListToolsRequest, Payload,
    ReadToolResultRequest, ReadToolResultResponse, TextPattern, text_pattern,
};
use palimpsest_tests::say::{assistant, assistant_call, prepare, result, tools_with_snip, user};
use palimpsest_tests::server::Context;
use palimpsest_tests::{Array, name, refused};
use serde_json::{Value, json};
use tonic::{Code, Status};

use crate::SERVER;

async fn read(
    client: &mut Context,
    request: ReadToolResultRequest,
) -> Result<Vec<ReadToolResultResponse>, Status> {
    let mut stream = client.read_tool_result(request).await?.into_inner();
    let mut chunks = Vec::new();
    while let Some(chunk) = stream.next().await {
        chunks.push(chunk?);
    }
    assert!(chunks.last().unwrap().last);
    Ok(chunks)
}

fn of(session: &str, id: &str) -> ReadToolResultRequest {
    ReadToolResultRequest {
        session: name(session),
        result: Some(Whose::Call(CallRef {
            tool_use_id: id.into(),
            ..CallRef::default()
        })),
        ..ReadToolResultRequest::default()
    }
}

fn data(chunks: &[ReadToolResultResponse]) -> String {
    let bytes: Vec<u8> = chunks
        .iter()
        .flat_map(|chunk| chunk.data.to_vec())
        .collect();
    String::from_utf8(bytes).unwrap()
}

/// Creates a session with one large result of numbered lines.
async fn with_result(client: &mut Context, session: &str) -> (String, Array) {
    let lines: Vec<String> = (1..=20_000).map(|n| format!("line {n}")).collect();
    let text = lines.join("\n") + "\n";
    let said = vec![user("look"), assistant_call("big"), result("big", &text)];
    let mut request = prepare(&name(session), said);
    request.prompt_prefix = tools_with_snip();
    let mut array = Array::default();
    array.take(&client.prepare_context(request).await.unwrap().into_inner());
    (text, array)
}

fn reference(array: &Array) -> String {
    let shown = array.values()[2]["content"][0]["content"]
        .as_str()
        .unwrap()
        .to_owned();
    let (_, rest) = shown.split_once("saved to: ").unwrap();
    rest.split_once('\n').unwrap().0.to_owned()
}

#[tokio::test]
async fn p12_every_part_of_an_original_can_be_read() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let (text, array) = with_result(&mut client, "read").await;
    let whole = read(&mut client, of("read", "big")).await.unwrap();
    assert_eq!(data(&whole), text);
    let info = whole[0].info.as_ref().unwrap();
    assert_eq!(
        (info.total_bytes, info.total_lines),
        (text.len() as u64, 20_000)
    );
    assert_eq!(info.reference, reference(&array));
    let mut by_reference = of("read", "big");
    by_reference.result = Some(Whose::Reference(reference(&array)));
    assert_eq!(data(&read(&mut client, by_reference).await.unwrap()), text);
    let mut part = async |selection: Selection| {
        let mut request = of("read", "big");
        request.selection = Some(selection);
        read(&mut client, request).await.unwrap()
    };
    let bytes = |offset_bytes, length_bytes| {
        Selection::ByteRange(ByteRange {
            offset_bytes,
            length_bytes,
        })
    };
    assert_eq!(data(&part(bytes(5, Some(1))).await), "1");
    // An offset past the end is no error, because a reader cannot know the size in advance.
    assert_eq!(data(&part(bytes(1 << 40, None)).await), "");
    let lines = Selection::LineRange(LineRange {
        first_line: 100,
        lines: Some(2),
    });
    let chunks = part(lines).await;
    assert_eq!(
        (data(&chunks), chunks[0].first_line),
        ("line 100\nline 101\n".into(), 100)
    );
    assert_eq!(data(&part(Selection::HeadLines(1)).await), "line 1\n");
    assert_eq!(data(&part(Selection::TailLines(1)).await), "line 20000\n");
    let search = Selection::Search(LineSearch {
        pattern: Some(TextPattern {
            pattern: Some(text_pattern::Pattern::Regex("^line 1234[0-9]$".into())),
            ignore_case: false,
        }),
        context_lines: 1,
    });
    let found = part(search).await;
    let found = &found[0].matches[0];
    // The ten matches are the lines 12340 to 12349. One line of context precedes them.
    assert_eq!((found.first_line, found.matching_lines.len()), (12_339, 10));
}

#[tokio::test]
async fn a_truncated_read_can_be_continued() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let (text, _) = with_result(&mut client, "cut").await;
    let (mut all, mut token, mut rounds) = (String::new(), String::new(), 0);
    loop {
        let mut request = of("cut", "big");
        request.max_bytes = 50_000;
        request.page_token = token;
        let chunks = read(&mut client, request).await.unwrap();
        all.push_str(&data(&chunks));
        token = chunks.last().unwrap().next_page_token.clone();
        rounds += 1;
        if token.is_empty() {
            break;
        }
    }
    // The text has 208,894 bytes. A page has at most 50,000.
    assert_eq!((all, rounds), (text, 5));
}

#[tokio::test]
async fn missing_and_ambiguous_results_are_rejected() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    with_result(&mut client, "refuse").await;
    let status = read(&mut client, of("refuse", "nope")).await.unwrap_err();
    refused(&status, Code::NotFound, "RESULT_NOT_FOUND");
    // A reference of another project is not found.
    let mut foreign = of("refuse", "big");
    foreign.result = Some(Whose::Reference(
        "palimpsest://other/refuse/tool-results/c0-00.txt".into(),
    ));
    refused(
        &read(&mut client, foreign).await.unwrap_err(),
        Code::NotFound,
        "RESULT_NOT_FOUND",
    );
    // A model can invent a reference, so it must not lead out of the session's folder.
    let mut escape = of("refuse", "big");
    escape.result = Some(Whose::Reference(
        "palimpsest://p/refuse/tool-results/../../x".into(),
    ));
    refused(
        &read(&mut client, escape).await.unwrap_err(),
        Code::NotFound,
        "RESULT_NOT_FOUND",
    );
    let again = vec![assistant_call("big"), result("big", "short")];
    client
        .prepare_context(prepare(&name("refuse"), again))
        .await
        .unwrap();
    let status = read(&mut client, of("refuse", "big")).await.unwrap_err();
    refused(&status, Code::InvalidArgument, "AMBIGUOUS_TOOL_USE_ID");
    // Call keys count from `c0`, so the second call with this id is `c1`.
    let mut by_key = of("refuse", "big");
    by_key.result = Some(Whose::Call(CallRef {
        call_key: "c1".into(),
        ..CallRef::default()
    }));
    assert_eq!(data(&read(&mut client, by_key).await.unwrap()), "short");
    // The compiled pattern would have a million states.
    let mut bomb = of("refuse", "nope");
    bomb.selection = Some(Selection::Search(LineSearch {
        pattern: Some(TextPattern {
            pattern: Some(text_pattern::Pattern::Regex("(a{1000}){1000}".into())),
            ignore_case: false,
        }),
        context_lines: 0,
    }));
    let status = read(&mut client, bomb).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
}

async fn call(client: &mut Context, session: &str, tool: &str, input: &Value) -> Value {
    let block = json!({"type": "tool_use", "id": "tu_1", "name": tool, "input": input});
    let request = CallToolRequest {
        session: name(session),
        call: Some(Call::Payload(Payload {
            format: Format::AnthropicMessages.into(),
            json: block.to_string().into(),
        })),
        ..CallToolRequest::default()
    };
    let reply = client.call_tool(request).await.unwrap().into_inner();
    let result: Value = serde_json::from_slice(&reply.tool_result_json).unwrap();
    assert_eq!(
        (&result["type"], &result["tool_use_id"]),
        (&json!("tool_result"), &json!("tu_1"))
    );
    result
}

#[tokio::test]
async fn model_tools_read_search_and_snip() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let (_, array) = with_result(&mut client, "model").await;
    let more = vec![
        assistant("there are 20,000 lines"),
        user("and now the needle"),
    ];
    client
        .prepare_context(prepare(&name("model"), more))
        .await
        .unwrap();
    let read = json!({"reference": reference(&array), "first_line": 7, "lines": 2});
    let answer = call(&mut client, "model", "ReadToolResult", &read).await;
    assert_eq!(answer["content"], "line 7\nline 8\n");
    let matches = json!({"tool_use_id": "big", "pattern": "line 777$"});
    let answer = call(&mut client, "model", "ReadToolResult", &matches).await;
    assert_eq!(answer["content"], "[line 777]\nline 777\n");
    let whole = call(
        &mut client,
        "model",
        "ReadToolResult",
        &json!({"tool_use_id": "big"}),
    )
    .await;
    let text = whole["content"].as_str().unwrap();
    assert!(
        text.len() < 51_000 && text.contains("ask again with first_line"),
        "{}",
        text.len()
    );
    let found = call(
        &mut client,
        "model",
        "SearchTranscript",
        &json!({"pattern": "needle"}),
    )
    .await;
    assert!(
        found["content"]
            .as_str()
            .unwrap()
            .starts_with("[5] user: and now the needle")
    );
    let message = call(&mut client, "model", "ReadTranscript", &json!({"first": 5})).await;
    assert!(
        message["content"]
            .as_str()
            .unwrap()
            .contains("and now the needle")
    );
    let text = array.values()[0]["content"][0]["text"]
        .as_str()
        .unwrap()
        .to_owned();
    let tag = text
        .rsplit_once("[id:")
        .unwrap()
        .1
        .trim_end_matches(']')
        .to_owned();
    let wrong = call(&mut client, "model", "Snip", &json!({"ids": ["zzzzzz"]})).await;
    assert_eq!(wrong["is_error"], true);
    let wrong = call(&mut client, "model", "Snip", &json!({"turns": 1})).await;
    assert_eq!(wrong["is_error"], true);
    // Models copy a tag with its brackets.
    let done = call(
        &mut client,
        "model",
        "Snip",
        &json!({"ids": [format!("[id:{tag}]")]}),
    )
    .await;
    assert!(
        done["content"]
            .as_str()
            .unwrap()
            .starts_with("Removed 1 turns with 4 messages")
    );
    // Snipped content can still be read.
    let lines = call(
        &mut client,
        "model",
        "ReadToolResult",
        &json!({"tool_use_id": "big", "tail_lines": 1}),
    )
    .await;
    assert_eq!(lines["content"], "line 20000\n");
    let request = CallToolRequest {
        session: name("model"),
        call: Some(Call::Payload(Payload {
            format: Format::OpenaiChat.into(),
            json: json!({"id": "x", "type": "function", "function": {"name": "Bash", "arguments": "{}"}})
                .to_string()
                .into(),
        })),
        ..CallToolRequest::default()
    };
    let status = client.call_tool(request).await.unwrap_err();
    refused(&status, Code::NotFound, "TOOL_NOT_FOUND");
}

#[tokio::test]
async fn tool_definitions_are_listed_for_each_provider() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let mut list = async |format: Format| {
        let request = ListToolsRequest {
            // Definitions depend on the policy and need no session.
            session: name("never-was"),
            format: format.into(),
        };
        let reply = client.list_tools(request).await.unwrap().into_inner();
        assert!(reply.tokens > 100);
        let parse = |tool: &palimpsest_proto::context::v1::ToolDefinition| -> Value {
            serde_json::from_slice(&tool.definition_json).unwrap()
        };
        reply.tools.iter().map(parse).collect::<Vec<_>>()
    };
    let anthropic_tools = list(Format::AnthropicMessages).await;
    let names: Vec<_> = anthropic_tools
        .iter()
        .map(|tool| tool["name"].clone())
        .collect();
    assert_eq!(
        names,
        [
            "Snip", "ReadToolResult", "ReadTranscript", "SearchTranscript"
        ]
    );
    assert_eq!(
        anthropic_tools[0]["input_schema"]["required"],
        json!(["ids"])
    );
    let openai_tools = list(Format::OpenaiChat).await;
    assert_eq!(openai_tools[1]["function"]["name"], "ReadToolResult");
}
