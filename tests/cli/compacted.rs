//! Tests the import of a transcript whose agent had compacted, removed and collapsed messages. The imported view must
//! equal that agent's last view.

use std::fmt::Write as _;
use std::fs;

use serde_json::{Value, json};

use super::said;
use palimpsest_tests::Server;

fn id(number: u32) -> String {
    format!("00000000-0000-4000-8000-{number:012}")
}

/// The lines of a transcript.
#[derive(Default)]
struct Lines(String);

impl Lines {
    fn add(&mut self, number: u32, mut line: Value) {
        line["uuid"] = id(number).into();
        line["timestamp"] = format!("2026-01-01T00:{number:02}:00.000Z").into();
        writeln!(self.0, "{line}").unwrap();
    }

    fn says(&mut self, number: u32, role: &str, words: &str) {
        let content = json!([{"type": "text", "text": words}]);
        let message = json!({"role": role, "content": content});
        self.add(
            number,
            json!({"type": role, "parentUuid": id(number - 1), "message": message}),
        );
    }

    fn mark(&mut self, number: u32, metadata: &Value) {
        self.add(
            number,
            json!({
                "type": "system", "subtype": "compact_boundary", "content": "Conversation compacted",
                "parentUuid": null, "compactMetadata": metadata,
            }),
        );
    }

    fn summary(&mut self, number: u32, words: &str) {
        let message = json!({"role": "user", "content": words});
        self.add(
            number,
            json!({
                "type": "user", "parentUuid": id(number - 1), "message": message,
                "isCompactSummary": true, "isVisibleInTranscriptOnly": true,
            }),
        );
    }
}

pub(crate) fn transcript() -> String {
    let mut lines = Lines::default();
    lines.says(1, "user", "the first question");
    lines.says(2, "assistant", "the first answer");
    lines.says(3, "user", "a question that stays");
    lines.says(4, "assistant", "an answer that stays");
    // The agent kept the messages 3 and 4 beside its summary.
    lines.mark(
        5,
        &json!({
            "trigger": "manual", "preTokens": 1234,
            "preservedSegment": {"headUuid": id(3), "anchorUuid": id(2), "tailUuid": id(4)},
        }),
    );
    lines.summary(6, "what was said so far");
    lines.says(7, "user", "a question about something else");
    lines.says(8, "assistant", "its long answer");
    lines.add(
        9,
        json!({
            "type": "system", "subtype": "snip_boundary", "content": "removed",
            "snipMetadata": {"removedUuids": [id(7), id(8)]},
        }),
    );
    lines.says(10, "user", "one thing");
    lines.says(11, "assistant", "one answer");
    lines.says(12, "user", "the last question");
    // Claude Code's record of a collapse: a summary in place of the messages 10 and 11.
    lines.add(
        13,
        json!({
            "type": "marble-origami-commit", "collapseId": "0000000000000001", "summaryUuid": id(20),
            "summaryContent": "one thing was answered",
            "firstArchivedUuid": id(10), "lastArchivedUuid": id(11),
        }),
    );
    lines.0
}

#[test]
fn messages_compacted_by_the_agent_leave_the_imported_view() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &[]);
    let address = format!("http://{}", server.address());
    let file = folder.path().join("session.jsonl");
    fs::write(&file, transcript()).unwrap();
    let run = |args: &[&str]| said(&[args, &["--server", &address]].concat());
    let import = || -> Value {
        let path = file.to_str().unwrap();
        let args = ["import", "--format", "claude-code", "--json", path];
        serde_json::from_str(&run(&args)).unwrap()
    };
    let report = import();
    assert_eq!(report[0]["defects"], json!([]), "{report:#}");
    let session = &report[0]["sessions"][0];
    // The collapse of the agent is imported as a compaction too.
    assert_eq!(
        (&session["compactions"], &session["removals"]),
        (&json!(2), &json!(1))
    );
    let expected = [
        ("user", "what was said so far"),
        ("user", "a question that stays"),
        ("assistant", "an answer that stays"),
        ("user", "one thing was answered"),
        ("user", "the last question"),
    ];
    let view = || {
        let view = run(&["view", "session"]);
        let view: Vec<Value> = serde_json::from_str(&view).unwrap();
        let blocks = view.iter().flat_map(|message| {
            let blocks = message["content"].as_array().unwrap().iter();
            blocks.map(|block| {
                let text = block["text"].as_str().unwrap_or_default().trim();
                (
                    message["role"].as_str().unwrap().to_owned(),
                    text.to_owned(),
                )
            })
        });
        blocks.collect::<Vec<_>>()
    };
    let expected = expected.map(|(role, text)| (role.to_owned(), text.to_owned()));
    assert_eq!(view(), expected);
    // The transcript is complete, and a second import changes nothing.
    let exported = run(&["export", "session"]);
    assert!(exported.contains("its long answer") && exported.contains("the first question"));
    let again = import();
    let again = &again[0]["sessions"][0];
    assert_eq!(
        (&again["appended"], &again["compactions"]),
        (&json!(0), &json!(0))
    );
    assert_eq!(view(), expected);
    let verified = said(&["verify", file.to_str().unwrap()]);
    assert!(
        verified.contains("Every sendable view is valid"),
        "{verified}"
    );
}

/// Imports a file into a new server and returns the report.
fn imported(content: &str) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &[]);
    let address = format!("http://{}", server.address());
    let file = folder.path().join("session.jsonl");
    fs::write(&file, content).unwrap();
    let path = file.to_str().unwrap();
    let args = ["import", "--format", "claude-code", "--json", path];
    serde_json::from_str(&said(&[&args[..], &["--server", &address]].concat())).unwrap()
}

/// One session has three counts of messages, and each has a name of its own.
#[test]
fn each_count_of_messages_has_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &[]);
    let run = |args: &[&str]| said(&[args, &["--server", server.address()]].concat());
    let mut lines = Lines::default();
    lines.says(1, "user", "the first question");
    lines.says(2, "assistant", "the first answer");
    lines.mark(3, &json!({"trigger": "manual", "preTokens": 1234}));
    lines.summary(4, "what was said so far");
    lines.says(5, "user", "the last question");
    let file = folder.path().join("session.jsonl");
    fs::write(&file, &lines.0).unwrap();
    let import = ["import", "--format", "claude-code", file.to_str().unwrap()];
    // The first number in the row of the session.
    let count = |table: &str| -> Option<u64> {
        let mut rows = table.lines();
        let row = rows.find(|line| line.contains("projects/default/sessions/session"));
        let mut words = row.unwrap_or_default().split_whitespace();
        words.find_map(|word| word.parse().ok())
    };

    // Four messages of the file, one of them the summary.
    let imported = run(&import);
    assert!(imported.contains("appended"), "{imported}");
    assert_eq!(count(&imported), Some(4), "{imported}");
    let second = run(&[&import[..], &["--json", "--session", "second"]].concat());
    let second: Value = serde_json::from_str(&second).unwrap();
    assert_eq!(second[0]["sessions"][0]["appended"], 4, "{second:#}");

    // Without the summary.
    let listed = run(&["sessions"]);
    assert!(listed.contains("user and assistant messages"), "{listed}");
    assert_eq!(count(&listed), Some(3), "{listed}");
    for line in run(&["sessions", "--json"]).lines() {
        let session: Value = serde_json::from_str(line).unwrap();
        assert_eq!(session["user_and_assistant_messages"], 3, "{session}");
    }

    // With the summary and the boundary that the service adds before it.
    let exported = run(&["export", "session"]);
    let last: Value = serde_json::from_str(exported.lines().last().unwrap()).unwrap();
    assert_eq!(last["messages"], 5, "{exported}");
    assert_eq!(exported.lines().count(), 5 + 2, "{exported}");
}

#[test]
fn a_replay_continues_after_a_summary_of_another_program() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("session.jsonl");
    fs::write(&file, transcript()).unwrap();
    let path = file.to_str().unwrap();
    let preset = "claude-code,none";
    let shown = said(&[
        "replay", "--format", "claude-code", "--preset", preset, path,
    ]);
    assert!(!shown.contains("refused"), "{shown}");
}

#[test]
fn a_message_with_a_rejected_parent_is_imported_without_it() {
    let mut lines = Lines::default();
    lines.says(1, "user", "the first question");
    // Without an id, the tool call is invalid.
    let call = json!([{"type": "tool_use", "name": "no id", "input": {}}]);
    let message = json!({"role": "assistant", "content": call});
    lines.add(
        2,
        json!({"type": "assistant", "parentUuid": id(1), "message": message}),
    );
    lines.says(3, "user", "the second question");
    lines.says(4, "assistant", "the second answer");
    let report = imported(&lines.0);
    let defects = report[0]["defects"].as_array().unwrap();
    assert_eq!(defects.len(), 1, "{report:#}");
    assert_eq!(report[0]["sessions"][0]["appended"], json!(3), "{report:#}");
}
