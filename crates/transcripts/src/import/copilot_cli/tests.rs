use palimpsest_core::message::{Block, Role};

use super::super::testing::decoded;
use super::super::{ImportFormat, ImportStep, read};

fn event(number: u32, kind: &str, data: &str) -> String {
    format!(
        r#"{{"type":"{kind}","data":{data},"id":"00000000-0000-4000-8000-{number:012}","timestamp":"2026-01-02T03:04:05.000Z","parentId":null}}"#
    )
}

#[test]
fn events_become_chat_messages() {
    let text = [
        event(1, "session.start", r#"{"context":{"cwd":"/w","branch":"main"}}"#),
        event(2, "system.message", r#"{"role":"system","content":"Be brief."}"#),
        event(3, "user.message", r#"{"content":"hi","transformedContent":"<time/> hi"}"#),
        event(4, "hook.start", r#"{"hookType":"x"}"#),
        event(5, "assistant.message", r#"{"content":"","model":"m","toolRequests":[{"toolCallId":"c","name":"bash","arguments":{"command":"ls"}}]}"#),
        event(6, "tool.execution_complete", r#"{"toolCallId":"c","success":true,"result":{"content":"a.rs"}}"#),
        event(7, "assistant.message", r#"{"content":"There is a.rs.","toolRequests":[]}"#),
    ]
    .join("\n");
    let imported = read(None, text.as_bytes());
    assert_eq!(imported.format, Some(ImportFormat::CopilotCli));
    assert_eq!(
        (imported.unrecognized.clone(), imported.defects.len()),
        (None, 0)
    );
    let session = &imported.sessions[0];
    assert_eq!((&*session.project_path, &*session.branch), ("/w", "main"));
    let messages = decoded(&imported);
    assert_eq!(messages.len(), session.steps.len());
    let roles: Vec<Role> = messages.iter().map(|message| message.role).collect();
    let expected = [
        Role::System,
        Role::User,
        Role::Assistant,
        Role::User,
        Role::Assistant,
    ];
    assert_eq!(roles, expected);
    // The model reads the transformed content.
    assert_eq!(messages[1].blocks, [Block::text("<time/> hi")]);
    assert_eq!(messages[2].model.as_deref(), Some("m"));
    assert!(matches!(&messages[2].blocks[..], [Block::ToolUse(call)] if &*call.name == "bash"));
    assert!(matches!(&messages[3].blocks[..], [Block::ToolResult(_)]));
}

#[test]
fn compactions_rewinds_and_subagents_are_followed() {
    let text = [
        event(1, "session.start", "{}"),
        event(2, "system.message", r#"{"content":"Be brief."}"#),
        event(3, "user.message", r#"{"content":"one"}"#),
        event(
            4,
            "session.compaction_complete",
            r#"{"summaryContent":"So far.","preCompactionTokens":9}"#,
        ),
        event(5, "user.message", r#"{"content":"two"}"#),
        event(
            6,
            "assistant.message",
            r#"{"content":"of the agent","parentToolCallId":"c"}"#,
        ),
        event(7, "user.message", r#"{"content":"three"}"#),
        event(
            8,
            "session.snapshot_rewind",
            r#"{"upToEventId":"00000000-0000-4000-8000-000000000007"}"#,
        ),
        event(9, "session.compaction_complete", "{}"),
    ]
    .join("\n");
    let imported = read(None, text.as_bytes());
    assert_eq!(imported.defects.len(), 1);
    assert_eq!(imported.defects[0].line, 9);
    let [main, agent] = &imported.sessions[..] else {
        panic!("{:?}", imported.sessions);
    };
    assert_eq!(
        (main.subagent, agent.subagent, &*agent.suffix),
        (false, true, "c")
    );
    let ids = |number: u32| {
        let text = format!("00000000-0000-4000-8000-{number:012}");
        palimpsest_core::ids::MessageId::parse(&text).unwrap()
    };
    let ImportStep::Compacted(compacted) = &main.steps[2] else {
        panic!("{:?}", main.steps);
    };
    assert_eq!(
        (&compacted.kept[..], compacted.before_tokens),
        (&[ids(2)][..], Some(9))
    );
    // Event 6 belongs to the subagent, so event 5 is the last one before event 7.
    assert!(matches!(main.steps[5], ImportStep::Rewind(Some(to)) if to == ids(5)));
}
