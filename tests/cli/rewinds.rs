//! Tests of imports of files with rewinds into sessions that have changed since.

use std::fs;

use palimpsest_proto::context::v1::rewind_session_request::TargetMessage;
use palimpsest_proto::context::v1::{RewindSessionRequest, Session, UpdateSessionRequest};
use palimpsest_tests::say::{append, user};
use serde_json::Value;

use crate::Setting;

/// The number of `request_id`s that a session stores.
const STORED_IDS: usize = 1_000;
const SESSION: &str = "projects/default/sessions/regenerated";

/// Returns a user message of Claude Code. A message with the parent of an earlier one replaces its branch.
fn line(number: u32, parent: Option<u32>, text: &str) -> String {
    let id = |number: u32| format!("\"00000000-0000-4000-8000-{number:012}\"");
    let parent = parent.map_or("null".to_owned(), id);
    format!(
        r#"{{"type":"user","uuid":{},"parentUuid":{parent},"timestamp":"2026-01-01T00:00:{number:02}.000Z","cwd":"/work","message":{{"role":"user","content":"{text}"}}}}"#,
        id(number)
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_import_repeats_no_rewind() {
    let setting = Setting::new();
    let file = setting.folder.path().join("regenerated.jsonl");
    let lines = [
        line(1, None, "a question"),
        line(2, Some(1), "an abandoned thought"),
        line(3, Some(1), "a second thought"),
        line(4, Some(1), "a third thought"),
    ];
    fs::write(&file, lines.join("\n")).unwrap();
    let import = || {
        let file = file.to_str().unwrap();
        let report = setting.run(&["import", "--format", "claude-code", "--json", file]);
        let report: Value = serde_json::from_str(&report).unwrap();
        report[0]["sessions"][0]["rewinds"].clone()
    };
    // Both rewinds have the same target.
    assert_eq!(import(), 2);
    let view = setting.run(&["view", "regenerated"]);
    assert!(!view.contains("second thought"), "{view}");
    assert!(view.contains("third thought"), "{view}");

    let mut context = setting.server.context().await;
    let later = append(SESSION, vec![user("the conversation continues")]);
    context.append_messages(later).await.unwrap();
    // The session forgets the ids of the first import.
    let mut sessions = setting.server.sessions().await;
    for number in 0..STORED_IDS {
        let request = UpdateSessionRequest {
            session: Some(Session {
                name: SESSION.into(),
                title: format!("title {number}"),
                ..Session::default()
            }),
            update_mask: Some(prost_types::FieldMask {
                paths: vec!["title".into()],
            }),
            request_id: format!("other-{number}"),
            ..UpdateSessionRequest::default()
        };
        Box::pin(sessions.update_session(request)).await.unwrap();
    }
    let view = setting.run(&["view", "regenerated"]);
    assert_eq!(import(), 0);
    assert_eq!(setting.run(&["view", "regenerated"]), view);
    assert!(view.contains("the conversation continues"), "{view}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_rewind_is_reported() {
    let setting = Setting::new();
    let file = setting.folder.path().join("regenerated.jsonl");
    let mut lines = vec![line(1, None, "a question"), line(2, Some(1), "a thought")];
    let import = |lines: &[String]| {
        fs::write(&file, lines.join("\n")).unwrap();
        let file = file.to_str().unwrap();
        let report = setting.run(&["import", "--format", "claude-code", "--json", file]);
        let report: Value = serde_json::from_str(&report).unwrap();
        report[0]["defects"].clone()
    };
    import(&lines);
    let first = "00000000-0000-4000-8000-000000000001";
    let mut context = setting.server.context().await;
    let request = RewindSessionRequest {
        session: SESSION.into(),
        target_message: Some(TargetMessage::ToMessageId(first.into())),
        ..RewindSessionRequest::default()
    };
    context.rewind_session(request).await.unwrap();
    // The file rewinds to the message that was removed on the server.
    lines.push(line(3, Some(2), "an abandoned thought"));
    lines.push(line(4, Some(2), "another thought"));
    let defects = import(&lines);
    let defect = defects[0].as_str().unwrap_or_default();
    assert!(defect.contains("a rewind was rejected"), "{defects}");
}
