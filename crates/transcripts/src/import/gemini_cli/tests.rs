use palimpsest_core::message::{Block, Role};

use super::super::testing::{self, decoded};
use super::super::{ImportFormat, Imported, read};

const HEAD: &str = r#"{"sessionId":"s","projectHash":"p","startTime":"t","lastUpdated":"t","kind":"main","directories":["/w"]}"#;

fn record(number: u32, kind: &str, more: &str) -> String {
    let id = format!("00000000-0000-4000-8000-{number:04}00000000");
    format!(r#"{{"id":"{id}","timestamp":"2026-01-02T03:04:05.000Z","type":"{kind}"{more}}}"#)
}

fn said(number: u32, kind: &str, text: &str) -> String {
    record(
        number,
        kind,
        &format!(r#","content":[{{"text":"{text}"}}]"#),
    )
}

/// Describes the steps. A message is named by the number of its record, and a result by its index too.
fn steps(imported: &Imported<'_>) -> Vec<String> {
    testing::steps(imported, |id| {
        let id = id.to_string();
        let (number, index) = id[id.len() - 12..].split_at(4);
        let number = number.trim_start_matches('0');
        match index.trim_start_matches('0') {
            "" => number.to_owned(),
            index => format!("{number}.{index}"),
        }
    })
}

const CALL: &str = r#","content":"I look.","model":"m","tokens":{"input":9,"cached":4,"output":2,"thoughts":1,"total":12},"toolCalls":[{"id":"c","name":"read_file","args":{"path":"a.rs"},"status":"success","timestamp":"t","result":[{"functionResponse":{"id":"c","name":"read_file","response":{"output":"fn a() {}"}}}]}]"#;

#[test]
fn the_last_version_of_a_record_becomes_chat_messages() {
    let lines = [
        HEAD.to_owned(),
        said(1, "user", "hello"),
        record(2, "gemini", r#","content":"I look.","toolCalls":[]"#),
        r#"{"$set":{"lastUpdated":"t","summary":"A title"}}"#.to_owned(),
        record(2, "gemini", CALL),
        said(3, "info", "a note of the program"),
        said(4, "gemini", "Done."),
    ];
    let document = format!(
        r#"{{"sessionId":"s","projectHash":"p","directories":["/w"],"summary":"A title",
        "messages":[{},{},{}]}}"#,
        lines[1], lines[4], lines[6]
    );
    for text in [lines.join("\n"), document] {
        let imported = read(None, text.as_bytes());
        assert_eq!(imported.format, Some(ImportFormat::GeminiCli));
        assert_eq!(
            (imported.unrecognized.clone(), imported.defects.len()),
            (None, 0)
        );
        assert_eq!(steps(&imported), ["1", "2", "2.1", "4"]);
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
        let usage = messages[1].usage.unwrap();
        // Of the 9 input tokens, 4 are cached. Thinking is part of the output.
        assert_eq!(
            (
                usage.input_tokens,
                usage.cache_read_tokens,
                usage.output_tokens
            ),
            (5, 4, 3)
        );
        assert!(
            matches!(messages[1].blocks.last(), Some(Block::ToolUse(call)) if &*call.id == "c")
        );
        let Block::ToolResult(result) = &messages[2].blocks[0] else {
            panic!("{:?}", messages[2]);
        };
        assert!(format!("{result:?}").contains("fn a() {}"), "{result:?}");
    }
}

#[test]
fn rewinds_and_checkpoints_are_followed() {
    let id = |number: u32| format!("00000000-0000-4000-8000-{number:04}00000000");
    let summary = said(9, "user", "<state_snapshot>so far</state_snapshot>");
    let lines = [
        HEAD.to_owned(),
        said(1, "user", "one"),
        said(2, "gemini", "1"),
        said(3, "user", "two"),
        format!(r#"{{"$rewindTo":"{}"}}"#, id(3)),
        said(4, "user", "three"),
        format!(
            r#"{{"$set":{{"messages":[{},{}]}}}}"#,
            said(1, "user", "one"),
            said(4, "user", "…")
        ),
        said(5, "gemini", "3"),
        format!(
            r#"{{"$set":{{"messages":[{summary},{},{}]}}}}"#,
            said(10, "gemini", "Got it."),
            said(5, "gemini", "3")
        ),
        said(6, "user", "four"),
        "not json".to_owned(),
    ];
    let text = lines.join("\n");
    let imported = read(None, text.as_bytes());
    let expected = [
        "1", "2", "3", "back to 2", "4", "removed 2", "5", "compacted, kept 5", "10", "6",
    ];
    assert_eq!(steps(&imported), expected);
    assert_eq!(imported.defects.len(), 1);
    // A checkpoint can contain shortened copies, and the first version stays.
    let messages = decoded(&imported);
    assert_eq!(messages[3].blocks, [Block::text("three")]);
}
