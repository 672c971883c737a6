//! Tests of exported transcripts.

use palimpsest_proto::context::v1::{
    ExportTranscriptRequest, Format, ListMessagesRequest, MessageInput, MessageMetadata,
    TranscriptMessage,
};
use palimpsest_tests::name;
use palimpsest_tests::say::{anthropic, append, result, user, uuid, with_id};
use palimpsest_tests::server::Sessions;
use serde_json::json;

use crate::SERVER;
use crate::transcripts::{messages, thirty};

async fn export(client: &mut Sessions, session: &str, format: Format) -> (String, u64) {
    let request = ExportTranscriptRequest {
        session: name(session),
        format: format.into(),
        ..Default::default()
    };
    let mut chunks = client
        .export_transcript(request)
        .await
        .unwrap()
        .into_inner();
    let (mut data, mut end) = (Vec::new(), None);
    while let Some(chunk) = chunks.message().await.unwrap() {
        assert_eq!(end, None, "nothing follows the last");
        data.extend_from_slice(&chunk.data);
        end = chunk.last.then_some(chunk.exported_messages);
    }
    (String::from_utf8(data).unwrap(), end.unwrap())
}

fn lines(data: &str) -> Vec<serde_json::Value> {
    let parse = |line| serde_json::from_str(line).unwrap();
    data.lines().map(parse).collect()
}

#[tokio::test]
async fn a_transcript_is_exported_in_every_format() {
    let shared = SERVER.get();
    thirty(&shared.0, "exported").await;
    let mut client = shared.0.sessions().await;
    for format in [
        Format::PalimpsestJsonl,
        Format::ClaudeCodeJsonl,
        Format::CodexJsonl,
        Format::AnthropicMessages,
        Format::OpenaiChat,
    ] {
        let (data, count) = export(&mut client, "exported", format).await;
        let is_array = matches!(format, Format::AnthropicMessages | Format::OpenaiChat);
        let mut entries: Vec<serde_json::Value> = if is_array {
            serde_json::from_str(&data).unwrap()
        } else {
            lines(&data)
        };
        if format == Format::PalimpsestJsonl {
            // The first line is a header, and the last line confirms completeness.
            assert_eq!(entries.remove(0)["version"], 1);
            assert_eq!(entries.pop().unwrap()["messages"], 30);
        }
        // The last ten messages are rewound, which records after the messages state.
        if format == Format::ClaudeCodeJsonl {
            let rewound = &entries[30]["snipMetadata"]["removedUuids"];
            assert_eq!(rewound.as_array().unwrap().len(), 10);
            assert_eq!(entries[31]["leafUuid"], uuid(19));
            entries.truncate(30);
        }
        if format == Format::CodexJsonl {
            let view = entries.pop().unwrap();
            let history = &view["payload"]["replacement_history"];
            assert_eq!(history.as_array().unwrap().len(), 20);
            assert_eq!(entries[0]["type"], "session_meta");
            entries.retain(|entry| entry["type"] == "response_item");
        }
        assert_eq!(count, 30, "{format:?}");
        assert_eq!(entries.len(), 30, "{format:?}");
        for (number, entry) in entries.iter().enumerate() {
            assert!(
                entry.to_string().contains(&format!("needle{number}.")),
                "{format:?}"
            );
        }
    }
}

#[tokio::test]
async fn an_export_for_claude_code_can_be_appended_line_by_line() {
    let shared = SERVER.get();
    let (mut context, mut client) = (shared.0.context().await, shared.0.sessions().await);
    let asked = json!({"role": "user", "content": [
        {"type": "text", "text": "go", "cache_control": {"type": "ephemeral"}}]});
    let called = json!({"role": "assistant", "id": "msg_1", "model": "m",
        "usage": {"input_tokens": 7, "output_tokens": 2, "cache_read_input_tokens": 5},
        "content": [{"type": "tool_use", "id": "a", "name": "t", "input": {"n": 1.50}}]});
    let mut said = vec![
        with_id(&uuid(1), anthropic(&asked)),
        with_id(&uuid(2), anthropic(&called)),
        with_id(&uuid(3), result("a", "done")),
        with_id(&uuid(4), user("a machine's words")),
    ];
    said[3].metadata = Some(MessageMetadata {
        machine_generated: true,
        create_time: Some(prost_types::Timestamp {
            seconds: 1_748_781_296,
            nanos: 789_000_000,
        }),
        attributes: [("gitBranch".to_owned(), "main".to_owned())].into(),
        ..Default::default()
    });
    let request = append(&name("taken-out"), said);
    context.append_messages(request).await.unwrap();

    let (data, _) = export(&mut client, "taken-out", Format::ClaudeCodeJsonl).await;
    let exported = lines(&data);
    for (index, (line, number)) in exported.iter().zip(1..).enumerate() {
        assert_eq!(line["uuid"], uuid(number));
        assert_eq!(line["sessionId"], "taken-out");
        let parent = index.checked_sub(1).map(|before| &exported[before]["uuid"]);
        assert_eq!(line["parentUuid"], *parent.unwrap_or(&json!(null)));
    }
    // Claude Code sets markers of its own, and a provider rejects a request with more than four.
    assert_eq!(
        exported[0]["message"]["content"],
        json!([{"type": "text", "text": "go"}])
    );
    assert_eq!(exported[1]["message"]["id"], "msg_1");
    assert_eq!(exported[3]["isMeta"], true);
    assert_eq!(exported[3]["timestamp"], "2025-06-01T12:34:56.789Z");
    assert_eq!(exported[3]["gitBranch"], "main");

    // After an import of the exported messages, they are equal.
    let back = exported.iter().map(|line| MessageInput {
        id: line["uuid"].as_str().unwrap().to_owned(),
        metadata: Some(MessageMetadata {
            machine_generated: line["isMeta"].as_bool().unwrap_or_default(),
            ..Default::default()
        }),
        ..anthropic(&line["message"])
    });
    let request = append(&name("put-back"), back.collect());
    context.append_messages(request).await.unwrap();
    let (first, second) = (
        all_messages(&mut client, "taken-out").await,
        all_messages(&mut client, "put-back").await,
    );
    assert_eq!(first.len(), 4);
    for (first, second) in first.iter().zip(&second) {
        assert_eq!(second.messages_json, first.messages_json);
        let known = |message: &TranscriptMessage| {
            let metadata = message.metadata.clone().unwrap();
            (
                message.id.clone(),
                metadata.provider_message_id,
                metadata.model,
                metadata.usage,
                metadata.machine_generated,
            )
        };
        assert_eq!(known(second), known(first));
    }
}

async fn all_messages(client: &mut Sessions, session: &str) -> Vec<TranscriptMessage> {
    let request = ListMessagesRequest {
        session: name(session),
        page_size: 100,
        ..Default::default()
    };
    messages(client, request).await
}
