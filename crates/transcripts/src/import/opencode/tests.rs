use palimpsest_core::message::{Block, Role};

use super::super::testing::decoded;
use super::super::{ImportFormat, ImportStep, read};
use super::id_of;

fn message(id: &str, role: &str, more: &str, parts: &[&str]) -> String {
    format!(
        r#"{{"info":{{"id":"{id}","role":"{role}","time":{{"created":1767323045000}}{more}}},"parts":[{}]}}"#,
        parts.join(",")
    )
}

fn export(messages: &[String]) -> String {
    format!(
        r#"{{
  "info": {{"id":"ses_1","title":"A title","directory":"/w"}},
  "messages": [{}]
}}"#,
        messages.join(",\n")
    )
}

const HELLO: &str = r#"{"type":"text","text":"hello"}"#;

#[test]
fn the_steps_of_a_response_become_messages() {
    let text = export(&[
        message("msg_1", "user", "", &[HELLO]),
        message(
            "msg_2",
            "assistant",
            r#","modelID":"m""#,
            &[
                r#"{"type":"step-start"}"#,
                r#"{"type":"reasoning","text":"hm","time":{"start":1}}"#,
                r#"{"type":"text","text":"I look."}"#,
                r#"{"type":"tool","callID":"c","tool":"read","state":{"status":"completed","input":{"filePath":"a.rs"},"output":"fn a() {}","title":"","metadata":{},"time":{"start":1,"end":2}}}"#,
                r#"{"type":"step-finish","reason":"tool-calls","cost":0,"tokens":{"input":5,"output":2,"reasoning":1,"cache":{"read":4,"write":3}}}"#,
                r#"{"type":"patch","hash":"x","files":[]}"#,
                r#"{"type":"step-start"}"#,
                r#"{"type":"text","text":"Done."}"#,
            ],
        ),
    ]);
    let imported = read(None, text.as_bytes());
    assert_eq!(imported.format, Some(ImportFormat::OpenCode));
    assert_eq!(
        (imported.unrecognized.clone(), imported.defects.len()),
        (None, 0)
    );
    let session = &imported.sessions[0];
    assert_eq!(
        (session.title.as_deref(), &*session.project_path),
        (Some("A title"), "/w")
    );
    let messages = decoded(&imported);
    let roles: Vec<Role> = messages.iter().map(|message| message.role).collect();
    assert_eq!(
        roles,
        [Role::User, Role::Assistant, Role::User, Role::Assistant]
    );
    assert_eq!(messages[1].model.as_deref(), Some("m"));
    let usage = messages[1].usage.unwrap();
    assert_eq!(
        (
            usage.input_tokens,
            usage.cache_read_tokens,
            usage.output_tokens
        ),
        (5, 4, 3)
    );
    // The reasoning has no signature, so it is left out.
    assert!(
        matches!(&messages[1].blocks[..], [Block::Text { .. }, Block::ToolUse(call)] if &*call.name == "read")
    );
    assert!(
        matches!(&messages[2].blocks[..], [Block::ToolResult(result)] if &*result.tool_use_id == "c")
    );
}

#[test]
fn a_compaction_keeps_the_messages_after_its_start() {
    let text = export(&[
        message("msg_1", "user", "", &[HELLO]),
        message("msg_2", "assistant", "", &[HELLO]),
        message("msg_3", "user", "", &[HELLO]),
        message("msg_4", "assistant", "", &[HELLO]),
        message(
            "msg_5",
            "user",
            "",
            &[r#"{"type":"compaction","auto":false,"tail_start_id":"msg_3"}"#],
        ),
        message(
            "msg_6",
            "assistant",
            r#","summary":true"#,
            &[r#"{"type":"text","text":"So far."}"#],
        ),
        message("msg_7", "user", r#","summary":{"diffs":[]}"#, &[HELLO]),
    ]);
    let imported = read(None, text.as_bytes());
    let steps = &imported.sessions[0].steps;
    // The request for the compaction is no step of its own.
    assert_eq!(steps.len(), 6);
    let ImportStep::Compacted(compacted) = &steps[4] else {
        panic!("{steps:?}");
    };
    assert_eq!(compacted.kept, [id_of("msg_3", 0), id_of("msg_4", 0)]);
    assert!(compacted.manual && compacted.summary.payload.get().contains("So far."));
}
