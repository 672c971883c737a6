use palimpsest_core::message::Block;

use super::super::testing::{self, decoded};
use super::super::{ImportFormat, Imported, read};

const HEAD: &str = r#"{"type":"session","id":"00000000-0000-7000-8000-000000000000","timestamp":"2026-01-02T03:04:05.000Z","cwd":"/w"}"#;

fn steps(imported: &Imported<'_>) -> Vec<String> {
    testing::steps(imported, testing::line_of)
}

#[test]
fn messages_become_anthropic_messages() {
    let text = [
        HEAD,
        r#"{"type":"message","timestamp":"t","message":{"role":"user","content":"hello"}}"#,
        r#"{"type":"message","message":{"role":"assistant","content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"I look."},{"type":"toolCall","id":"c","name":"read","arguments":{"path":"a.rs"}}],"model":"m","usage":{"input":3,"output":2,"cacheRead":7,"cacheWrite":1}}}"#,
        r#"{"type":"message","message":{"role":"toolResult","toolCallId":"c","toolName":"read","content":[{"type":"text","text":"fn a() {}"}],"isError":false}}"#,
        r#"{"type":"model_change","modelId":"m"}"#,
        r#"{"type":"message","message":{"role":"bashExecution","command":"ls","output":"a.rs","exitCode":1}}"#,
    ]
    .join("\n");
    let imported = read(None, text.as_bytes());
    assert_eq!(imported.format, Some(ImportFormat::Pi));
    assert_eq!(
        (imported.unrecognized.clone(), imported.defects.len()),
        (None, 0)
    );
    assert_eq!(steps(&imported), ["2", "3", "4", "6"]);
    let messages = decoded(&imported);
    let usage = messages[1].usage.unwrap();
    assert_eq!((usage.input_tokens, usage.cache_read_tokens), (3, 7));
    assert_eq!(messages[1].model.as_deref(), Some("m"));
    let Block::ToolUse(call) = messages[1].blocks.last().unwrap() else {
        panic!("{:?}", messages[1]);
    };
    assert_eq!((&*call.name, &*call.id), ("read", "c"));
    assert!(matches!(messages[2].blocks[0], Block::ToolResult(_)));
    let Block::Text { text, .. } = &messages[3].blocks[0] else {
        panic!("{:?}", messages[3]);
    };
    assert_eq!(&**text, "The user ran `ls`:\n```\na.rs\n```\nExit code: 1");
}

#[test]
fn a_compaction_keeps_messages_by_index_or_id() {
    let said = |n: u32, ids: &str| {
        format!(r#"{{"type":"message",{ids}"message":{{"role":"user","content":"{n}"}}}}"#)
    };
    let old = [
        HEAD.to_owned(),
        said(1, ""),
        said(2, ""),
        said(3, ""),
        r#"{"type":"compaction","summary":"s","firstKeptEntryIndex":2,"tokensBefore":9}"#.into(),
    ];
    let new = [
        HEAD.to_owned(),
        said(1, r#""id":"a","parentId":null,"#),
        said(2, r#""id":"b","parentId":"a","#),
        said(3, r#""id":"c","parentId":"b","#),
        r#"{"type":"compaction","id":"d","parentId":"c","summary":"s","firstKeptEntryId":"b","tokensBefore":9}"#.into(),
    ];
    for lines in [old, new] {
        let text = lines.join("\n");
        let imported = read(None, text.as_bytes());
        // The header is line 1 with index 0, so index 2 is line 3.
        assert_eq!(steps(&imported), ["2", "3", "4", "compacted, kept 3 4"]);
    }
}

#[test]
fn another_branch_leaves_the_messages_of_the_first() {
    let text = [
        HEAD,
        r#"{"type":"message","id":"a","parentId":null,"message":{"role":"user","content":"1"}}"#,
        r#"{"type":"message","id":"b","parentId":"a","message":{"role":"user","content":"2"}}"#,
        r#"{"type":"message","id":"c","parentId":"a","message":{"role":"user","content":"3"}}"#,
    ]
    .join("\n");
    assert_eq!(
        steps(&read(None, text.as_bytes())),
        ["2", "3", "back to 2", "4"]
    );
}
