//! Tests of the format of OpenAI's Responses API, against a provider that validates as strictly as the real one.

use palimpsest_fake_provider::FakeProvider;
use palimpsest_proto::context::v1::{
    CallToolRequest, ExportTranscriptRequest, Format, ListToolsRequest, MessageInput, Payload,
    PrepareContextRequest, PrepareContextResponse, Provider, call_tool_request,
};
use palimpsest_tests::array::values;
use palimpsest_tests::name;
use palimpsest_tests::say::{anthropic, openai, payload, prepare, target};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::SERVER;

fn items(json: &Value) -> MessageInput {
    payload(Format::OpenaiResponses, json.to_string())
}

async fn ask(request: PrepareContextRequest) -> PrepareContextResponse {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    client.prepare_context(request).await.unwrap().into_inner()
}

/// Appends messages, and returns the items of the view for this model.
async fn view(session: &str, messages: Vec<MessageInput>, model: &str) -> Vec<Value> {
    let mut request = prepare(&name(session), messages);
    request.target = Some(target(Provider::OpenaiResponses, model));
    let reply = ask(request).await;
    assert!(reply.sendable);
    values(&reply.messages_json)
}

/// Sends items to the provider, and returns its response.
async fn send(provider: &FakeProvider, input: &[Value], model: &str) -> Value {
    let body = json!({
        "model": model, "store": false, "instructions": "be brief", "input": input,
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "low"},
        "tools": [{"type": "function", "name": "read", "parameters": {"type": "object"}}],
    });
    let body = body.to_string();
    let head = format!(
        "POST /v1/responses HTTP/1.1\r\nhost: provider\r\nauthorization: Bearer key-of-the-tests\r\n\
         content-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(provider.address()).await.unwrap();
    stream
        .write_all(format!("{head}{body}").as_bytes())
        .await
        .unwrap();
    let mut received = String::new();
    stream.read_to_string(&mut received).await.unwrap();
    let (head, response) = received.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 "), "{received}\n{body}");
    serde_json::from_str(response).unwrap()
}

/// Items of each kind that belongs to calls, as a caller sends them.
fn conversation() -> Value {
    json!([
        {"role": "developer", "content": "rules"},
        {"role": "user", "content": [
            {"type": "input_text", "text": "go"},
            {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"},
        ]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": null, "encrypted_content": "gAAAAA"},
        {"type": "function_call", "id": "fc_1", "status": "completed", "call_id": "c1", "name": "read",
            "arguments": "{ \"n\":1.50 }"},
        {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c2", "name": "exec", "input": "ls"},
        {"type": "local_shell_call", "call_id": "c3", "status": "completed",
            "action": {"type": "exec", "command": ["ls"], "env": {}}},
        {"type": "shell_call", "call_id": "c4", "action": {"commands": ["ls"]}},
        {"type": "apply_patch_call", "call_id": "c5", "operation": {"type": "delete_file", "path": "a"}},
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "one"}]},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "two"},
        {"type": "local_shell_call_output", "id": "c3", "output": "three"},
        {"type": "shell_call_output", "call_id": "c4", "output": [
            {"stdout": "four", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}},
        ]},
        {"type": "apply_patch_call_output", "call_id": "c5", "status": "completed"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [
            {"type": "output_text", "text": "done", "annotations": []},
        ]},
        {"type": "message", "role": "user", "content": "and now?"},
    ])
}

#[tokio::test]
async fn the_provider_accepts_views_and_its_responses_are_read() {
    let _shared = SERVER.get();
    let provider = FakeProvider::start().await.unwrap();
    let (session, model) = ("responses", "gpt-5");
    let first = view(session, vec![items(&conversation())], model).await;
    assert_eq!(first.len(), 16);
    // Arguments are a string that the model wrote. Parsed and written again, `1.50` would become `1.5`.
    assert_eq!(first[3]["arguments"], "{ \"n\":1.50 }");
    // The provider rejects ids of items whose reasoning is missing, so views have no ids.
    let ids = first
        .iter()
        .filter(|item| item["type"] != "web_search_call");
    // A `local_shell_call_output` may name its call in `id`, and this one has no `call_id`.
    let mut ids = ids.filter(|item| item["type"] != "local_shell_call_output");
    assert!(ids.all(|item| item.get("id").is_none()), "{first:#?}");
    let response = send(&provider, &first, model).await;
    let second = vec![
        items(&response),
        items(&json!({"role": "user", "content": "next"})),
    ];
    let mut request = prepare(&name(session), second);
    request.target = Some(target(Provider::OpenaiResponses, model));
    let reply = ask(request).await;
    let usage = &response["usage"];
    let tokens = reply.tokens.unwrap();
    assert_eq!(
        Some(tokens.anchor_tokens.into()),
        usage["total_tokens"].as_u64()
    );
    let next = view(session, Vec::new(), model).await;
    assert!(next.starts_with(&first));
    assert!(next.len() > first.len() + 1);
    send(&provider, &next, model).await;
}

#[tokio::test]
async fn conversations_of_other_providers_are_converted() {
    let _shared = SERVER.get();
    let provider = FakeProvider::start().await.unwrap();
    let messages = json!([
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "tool_use", "id": "t1", "name": "read", "input": {"n": 1}},
            {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}},
        ]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "one"}]},
    ]);
    let chat = json!([
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "t2", "type": "custom", "custom": {"name": "exec", "input": "ls"}},
        ]},
        {"role": "tool", "tool_call_id": "t2", "content": "two"},
    ]);
    let found = view(
        "converted",
        vec![anthropic(&messages), openai(&chat)],
        "gpt-5",
    )
    .await;
    let kinds: Vec<_> = found
        .iter()
        .map(|item| item["type"].as_str().unwrap())
        .collect();
    // Thinking and calls of a provider's own tools have no form in another API, so they are left out.
    let pair = ["function_call", "function_call_output"];
    assert_eq!(kinds, [&["message"], &pair[..], &pair[..]].concat());
    send(&provider, &found, "gpt-5").await;
    // Items are converted to the formats of the other providers.
    view("converted-items", vec![items(&conversation())], "gpt-5").await;
    for provider in [Provider::Anthropic, Provider::Openai] {
        let mut request = prepare(&name("converted-items"), Vec::new());
        request.target = Some(target(provider, "other"));
        let reply = ask(request).await;
        assert!(reply.sendable);
        let json = String::from_utf8(reply.messages_json.concat()).unwrap();
        assert!(json.contains("four") && !json.contains("gAAAAA"), "{json}");
    }
}

#[tokio::test]
async fn a_call_without_an_output_gets_one_of_its_kind() {
    let _shared = SERVER.get();
    let provider = FakeProvider::start().await.unwrap();
    for kind in [
        "local_shell_call", "shell_call", "apply_patch_call", "custom_tool_call",
    ] {
        let call = json!({"type": kind, "call_id": "c1", "name": "exec", "input": "ls", "action": {"commands": []},
            "operation": {"type": "delete_file", "path": "a"}});
        let known: &[&str] = match kind {
            "custom_tool_call" => &["type", "call_id", "name", "input"],
            "apply_patch_call" => &["type", "call_id", "operation"],
            _ => &["type", "call_id", "action"],
        };
        let mut call = call;
        call.as_object_mut()
            .unwrap()
            .retain(|name, _| known.contains(&name.as_str()));
        let user = |text: &str| json!({"role": "user", "content": text});
        let open = vec![items(&json!([user("go"), call, user("stop")]))];
        let found = view(&format!("open-{kind}"), open, "gpt-5").await;
        assert_eq!(found[2]["type"], format!("{kind}_output"));
        send(&provider, &found, "gpt-5").await;
    }
}

#[tokio::test]
async fn tools_and_exports_have_the_format() {
    let session = name("responses-tools");
    let client = SERVER.get();
    view("responses-tools", vec![items(&conversation())], "gpt-5").await;
    let mut sessions = client.0.sessions().await;
    let mut context = client.0.context().await;
    let request = ListToolsRequest {
        session: session.clone(),
        format: Format::Unspecified.into(),
    };
    let tools = context
        .list_tools(request)
        .await
        .unwrap()
        .into_inner()
        .tools;
    let definition: Value = serde_json::from_slice(&tools[0].definition_json).unwrap();
    assert_eq!(
        (&definition["type"], &definition["name"]),
        (&json!("function"), &json!(tools[0].name))
    );
    let call =
        json!({"type": "function_call", "call_id": "c9", "name": tools[0].name, "arguments": "{}"});
    let request = CallToolRequest {
        session: session.clone(),
        call: Some(call_tool_request::Call::Payload(Payload {
            format: Format::OpenaiResponses.into(),
            json: call.to_string().into(),
        })),
        ..CallToolRequest::default()
    };
    let reply = context.call_tool(request).await.unwrap().into_inner();
    let output: Value = serde_json::from_slice(&reply.tool_result_json).unwrap();
    assert_eq!(
        (&output["type"], &output["call_id"]),
        (&json!("function_call_output"), &json!("c9"))
    );
    let request = ExportTranscriptRequest {
        session,
        format: Format::OpenaiResponses.into(),
        ..ExportTranscriptRequest::default()
    };
    let mut stream = sessions
        .export_transcript(request)
        .await
        .unwrap()
        .into_inner();
    let mut file = Vec::new();
    while let Some(part) = stream.message().await.unwrap() {
        file.extend_from_slice(&part.data);
    }
    let exported: Vec<Value> = serde_json::from_slice(&file).unwrap();
    assert_eq!(exported.len(), 16);
    assert_eq!(exported[3], conversation()[3]);
}
