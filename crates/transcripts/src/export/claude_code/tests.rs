//! Tests that the importer reads exported files without loss.

use crate::import::{self, ImportFormat, ImportStep, ImportedMessage};
use palimpsest_core::codec;
use palimpsest_core::event::Event;
use palimpsest_core::ids::Timestamp;
use palimpsest_core::message::Digest;
use palimpsest_core::view::Provider;
use palimpsest_histories::{SessionHarness, operation};
use proptest::prelude::*;
use serde_json::Value;
use uuid::Uuid;

use super::*;

fn id(number: u128) -> MessageId {
    MessageId::new(Uuid::from_u128(number))
}

/// Reads messages from a provider's JSON. Ids count from 1.
fn read(provider: Provider, json: &str) -> Vec<Message> {
    let mut next = 0;
    let mut next_id = || {
        next += 1;
        id(next)
    };
    codec::read(provider, json.as_bytes(), &mut next_id).unwrap()
}

fn write<'a>(messages: impl IntoIterator<Item = (&'a Message, Visibility)>) -> String {
    let mut lines = ClaudeCodeWriter::new(&SessionId::new("s").unwrap());
    let written = messages
        .into_iter()
        .flat_map(|(message, standing)| lines.line(message, standing));
    String::from_utf8(written.collect()).unwrap()
}

fn visible(messages: &[Message]) -> String {
    write(
        messages
            .iter()
            .map(|message| (message, Visibility::Visible)),
    )
}

/// Returns the messages and rewinds that the importer reads from a valid file.
fn imported(file: &str) -> (Vec<Message>, Vec<Option<MessageId>>) {
    let imported = import::read(Some(ImportFormat::ClaudeCode), file.as_bytes());
    assert_eq!(imported.defects, []);
    let (mut messages, mut rewinds) = (Vec::new(), Vec::new());
    for step in imported.sessions.iter().flat_map(|session| &session.steps) {
        match step {
            ImportStep::Message(message) => messages.push(decode(message)),
            ImportStep::Rewind(to) => rewinds.push(*to),
            ImportStep::Compacted(compaction) => messages.push(decode(&compaction.summary)),
            ImportStep::Removed { line, .. } => panic!("line {line} removes messages"),
        }
    }
    (messages, rewinds)
}

fn decode(message: &ImportedMessage<'_>) -> Message {
    message.decode(id(0)).unwrap()
}

/// Returns the fields of a message that must not change.
fn said(message: &Message) -> impl PartialEq + std::fmt::Debug {
    (
        message.id,
        message.role,
        Digest::of_message(message),
        message.blocks.clone(),
        message.provider_message_id.clone(),
        message.model.clone(),
        message.usage,
        (
            message.machine_generated,
            message.at,
            message.attributes.clone(),
        ),
    )
}

fn check(messages: &[Message]) {
    let file = visible(messages);
    // Programs that continue the file set cache markers of their own.
    assert!(!file.contains("cache_control"), "{file}");
    let (back, _) = imported(&file);
    let unmarked: Vec<Message> = messages.iter().map(without_cache_markers).collect();
    let before: Vec<_> = unmarked.iter().map(said).collect();
    let after: Vec<_> = back.iter().map(said).collect();
    assert_eq!(before, after);
}

const CONVERSATION: &str = r#"[
    {"role":"system","content":"be kind"},
    {"role":"user","content":[
        {"type":"text","text":"look\nhere","cache_control":{"type":"ephemeral"},"n":1e400},
        {"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0KGgo="}}]},
    {"role":"assistant","id":"msg_1","type":"message","model":"m","stop_reason":"tool_use",
        "usage":{"input_tokens":3,"output_tokens":4,"cache_read_input_tokens":5,"cache_creation_input_tokens":6},
        "content":[
        {"type":"thinking","thinking":"hm","signature":"s"},
        {"type":"tool_use","id":"a","name":"t","input":{ "n" : 12345678901234567890123, "x":"\u00e9" }},
        {"type":"tool_use","id":"b","name":"t","input":"{\"cut\": "},
        {"type":"novel","n":0.10}]},
    {"role":"user","content":[
        {"type":"tool_result","tool_use_id":"a","is_error":false,"content":[
            {"type":"text","text":"1","cache_control":{"type":"ephemeral"}}]},
        {"type":"tool_result","tool_use_id":"b"}]},
    {"role":"assistant","content":[]}
]"#;

#[test]
fn a_conversation_survives_an_export_and_import() {
    let mut messages = read(Provider::Anthropic, CONVERSATION);
    for (message, millis) in messages
        .iter_mut()
        .zip([0, 999, 1_000, 1_748_781_296_789, 1])
    {
        message.at = Some(Timestamp::from_millis(millis));
    }
    messages[1].machine_generated = true;
    messages[0].machine_generated = true;
    let notes = [
        ("cwd", "/home/é"),
        ("gitBranch", "main"),
        ("version", "2.0"),
        ("todos", "[1]"),
    ];
    messages[1].attributes = notes
        .map(|(name, value)| (name.into(), value.into()))
        .into();
    check(&messages);
}

#[test]
fn an_exported_line_has_the_fields_of_claude_code() {
    let mut messages = read(Provider::Anthropic, CONVERSATION);
    messages[2].at = Some(Timestamp::from_millis(1_748_781_296_000));
    // Attributes that the format does not define, or whose value is invalid, are left out.
    messages[2].attributes = vec![
        ("gitBranch".into(), "main".into()),
        ("mine".into(), "not of these files".into()),
        ("todos".into(), "not JSON".into()),
    ];
    let file = visible(&messages);
    let line = file.lines().nth(2).unwrap();
    let value: Value = serde_json::from_str(line).unwrap();
    let expected = json!({
        "parentUuid": id(2).to_string(),
        "isSidechain": false,
        "sessionId": "s",
        "gitBranch": "main",
        "type": "assistant",
        "uuid": id(3).to_string(),
        "timestamp": "2025-06-01T12:34:56.000Z",
        "message": value["message"],
    });
    assert_eq!(value, expected);
    assert_eq!(value["message"]["stop_reason"], "tool_use");
    assert_eq!(value["message"]["type"], "message");
    assert!(
        line.contains(r#"{ "n" : 12345678901234567890123, "x":"\u00e9" }"#),
        "{line}"
    );
    let last: Value = serde_json::from_str(file.lines().last().unwrap()).unwrap();
    let expected =
        json!({"role": "assistant", "type": "message", "stop_reason": null, "content": []});
    assert_eq!(last["message"], expected);
}

#[test]
fn a_message_without_a_parent_follows_the_previous_visible_message() {
    let json = r#"[{"role":"user","content":"go"},{"role":"assistant","content":"yes"},
        {"role":"user","content":"wrong"},{"role":"assistant","content":"oh"},
        {"role":"user","content":"right"},{"role":"user","content":"more"}]"#;
    let mut messages = read(Provider::Anthropic, json);
    messages[5].parent = Some(id(1));
    let standings = [
        Visibility::Visible,
        Visibility::Visible,
        Visibility::Rewound,
        Visibility::Rewound,
        Visibility::Visible,
        Visibility::Visible,
    ];
    let file = write(messages.iter().zip(standings));
    let parents: Vec<Value> = file
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["parentUuid"].clone())
        .collect();
    // Message 5 does not follow the rewound messages 3 and 4. Message 6 names its own parent.
    let expected = [None, Some(1), Some(2), Some(3), Some(2), Some(1)];
    let expected = expected.map(|number| json!(number.map(|number| id(number).to_string())));
    assert_eq!(parents, expected);
    let (back, rewinds) = imported(&file);
    assert_eq!(back.len(), 6);
    assert_eq!(rewinds, [Some(id(2))]);
}

#[test]
fn multiline_json_is_exported_on_one_line() {
    let json = "{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"t\",\
        \"input\":{\r\n  \"n\": 1\n}}]}";
    let file = visible(&read(Provider::Anthropic, json));
    assert_eq!(file.matches('\n').count(), 1);
    // Each byte of a line break becomes a space.
    assert!(file.contains(r#"{    "n": 1 }"#), "{file}");
    assert_eq!(imported(&file).0.len(), 1);
}

#[test]
fn unknown_fields_of_another_provider_are_left_out() {
    let json = r#"[{"role":"developer","content":"be brief","name":"x"},
        {"role":"assistant","content":null,"annotations":[],"tool_calls":[
            {"id":"a","type":"function","index":0,"function":{"name":"t","arguments":"{\"a\":1}"}}]},
        {"role":"tool","tool_call_id":"a","content":"1"}]"#;
    let file = visible(&read(Provider::OpenAi, json));
    for unknown in ["name\":\"x", "annotations", "index"] {
        assert!(!file.contains(unknown), "{file}");
    }
    let (back, _) = imported(&file);
    let roles: Vec<_> = back.iter().map(|message| message.role).collect();
    assert_eq!(roles, [Role::System, Role::Assistant, Role::User]);
    assert!(file.contains(r#""input":{"a":1}"#), "{file}");
}

proptest! {
    #[test]
    fn any_history_survives_an_export_and_import(operations in prop::collection::vec(operation(), 1..12)) {
        let mut world = SessionHarness::new();
        for operation in &operations {
            world.step(operation);
        }
        let appended = world.log.iter().flat_map(|recorded| match &recorded.event {
            Event::MessagesAppended(event) => event.messages.as_slice(),
            _ => &[],
        });
        // The format cannot represent items of OpenAI's Responses API.
        let messages: Vec<Message> = appended
            .map(|appended| (*appended.message).clone())
            .filter(|message| message.origin != MessageOrigin::OpenAiResponses)
            .collect();
        check(&messages);
    }
}
