//! Transcripts of several programs: the format is detected, and folders are searched with their subfolders.

use std::fs;
use std::path::Path;

use palimpsest_tests::{Server, palimpsest};

use super::said;

pub(crate) const CLAUDE_CODE: &str = r#"{"type":"user","uuid":"00000000-0000-4000-8000-000000000001","message":{"role":"user","content":"hi"}}"#;
pub(crate) const CODEX: &str = r#"{"timestamp":"2026-01-02T03:04:05.000Z","type":"session_meta","payload":{"id":"00000000-0000-7000-8000-000000000000","cwd":"/w"}}
{"timestamp":"2026-01-02T03:04:05.000Z","type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"List the files."}]}}
{"timestamp":"2026-01-02T03:04:05.000Z","type":"turn_context","payload":{"cwd":"/w","model":"gpt-of-the-log"}}
{"timestamp":"2026-01-02T03:04:05.000Z","type":"response_item","payload":{"type":"function_call","name":"shell","arguments":"{\"command\":\"ls\"}","call_id":"c"}}
{"timestamp":"2026-01-02T03:04:05.000Z","type":"event_msg","payload":{"type":"token_count","info":{"last_token_usage":{"input_tokens":12345,"cached_input_tokens":4,"output_tokens":2}}}}
{"timestamp":"2026-01-02T03:04:05.000Z","type":"response_item","payload":{"type":"function_call_output","call_id":"c","output":"a.rs"}}"#;
pub(crate) const COPILOT: &str = r#"{"type":"session.start","data":{"context":{"cwd":"/w"}},"id":"00000000-0000-4000-8000-000000000001","timestamp":"2026-01-02T03:04:05.000Z"}
{"type":"user.message","data":{"content":"hello"},"id":"00000000-0000-4000-8000-000000000002","timestamp":"2026-01-02T03:04:05.000Z"}
{"type":"assistant.message","data":{"content":"Hello!","toolRequests":[]},"id":"00000000-0000-4000-8000-000000000003","timestamp":"2026-01-02T03:04:05.000Z"}"#;
pub(crate) const PI: &str = r#"{"type":"session","id":"00000000-0000-7000-8000-000000000000","timestamp":"2026-01-02T03:04:05.000Z","cwd":"/w"}
{"type":"message","message":{"role":"user","content":"hello"}}
{"type":"message","message":{"role":"assistant","content":[{"type":"text","text":"Hello!"}],"model":"m"}}"#;
pub(crate) const GEMINI: &str = r#"{"sessionId":"s","projectHash":"p","startTime":"t","lastUpdated":"t"}
{"id":"00000000-0000-4000-8000-000100000000","timestamp":"2026-01-02T03:04:05.000Z","type":"user","content":"hello"}
{"id":"00000000-0000-4000-8000-000200000000","timestamp":"2026-01-02T03:04:05.000Z","type":"gemini","content":"Hello!"}"#;
const OPENCODE: &str = r#"{"info":{"id":"ses_1"},
"messages":[{"info":{"id":"msg_1","role":"user"},"parts":[{"type":"text","text":"hello"}]},
{"info":{"id":"msg_2","role":"assistant"},"parts":[{"type":"step-start"},{"type":"text","text":"Hello!"}]}]}"#;
const SWE_AGENT: &str = r#"{"history":[{"role":"user","content":"List the files."},{"role":"assistant","content":"I list them.","tool_calls":[{"id":"c","type":"function","function":{"name":"bash","arguments":"{\"command\":\"ls\"}"}}]},{"role":"tool","content":"a.rs","tool_call_ids":["c"]}]}"#;

pub(crate) fn write(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn write_all(folder: &Path) {
    write(folder, "claude/one.jsonl", CLAUDE_CODE);
    write(folder, "codex/2026/01/02/two.jsonl", CODEX);
    write(folder, "copilot/three.jsonl", COPILOT);
    write(folder, "pi/four.jsonl", PI);
    write(folder, "swe/five.traj", SWE_AGENT);
    write(folder, "gemini/six.jsonl", GEMINI);
    write(folder, "opencode/seven.json", OPENCODE);
}

#[test]
fn a_folder_with_all_formats_is_verified_and_imported() {
    let folder = tempfile::tempdir().unwrap();
    let transcripts = folder.path().join("transcripts");
    write_all(&transcripts);
    let path = transcripts.to_str().unwrap();
    let verified = said(&["verify", path]);
    assert!(verified.contains("7 files"), "{verified}");
    assert!(!verified.contains("repaired"), "{verified}");
    let server = Server::start(&folder.path().join("data"), &[]);
    let import = ["import", "--json", path, "--server", server.address()];
    let report: serde_json::Value = serde_json::from_str(&said(&import)).unwrap();
    let mut counts: Vec<(String, u64)> = report
        .as_array()
        .unwrap()
        .iter()
        .map(|file| {
            assert_eq!(file["defects"], serde_json::json!([]), "{file}");
            let session = &file["sessions"][0];
            let name = session["name"].as_str().unwrap().to_owned();
            (name, session["appended"].as_u64().unwrap())
        })
        .collect();
    counts.sort();
    let expected = [
        ("five", 3),
        ("four", 2),
        ("one", 1),
        ("seven", 2),
        ("six", 2),
        ("three", 2),
        ("two", 3),
    ];
    let expected = expected.map(|(id, count)| (format!("projects/default/sessions/{id}"), count));
    assert_eq!(counts, expected);
    // Codex records the model and the usage beside the messages.
    let exported = said(&["export", "two", "--server", server.address()]);
    // Codex counts cached tokens as a part of the input: 12,345 − 4.
    for part in ["gpt-of-the-log", "12341"] {
        assert!(exported.contains(part), "{exported}");
    }
    // The ids depend on the lines, so a second import appends nothing.
    let again: serde_json::Value = serde_json::from_str(&said(&import)).unwrap();
    for file in again.as_array().unwrap() {
        assert_eq!(file["sessions"][0]["appended"], 0, "{file}");
    }
}

#[test]
fn unknown_files_and_equal_names_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "a/one.jsonl", CLAUDE_CODE);
    write(
        folder.path(),
        "b/package.json",
        r#"{"name":"x","version":"1"}"#,
    );
    let path = folder.path().to_str().unwrap();
    let output = palimpsest(&["verify", path]);
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let seen = "has no known format. Seen: 1 lines; the first is an object with name, version";
    assert!(text.contains(seen), "{text}");
    write(folder.path(), "b/one.jsonl", CLAUDE_CODE);
    let output = palimpsest(&["import", path]);
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("would become one session, one"), "{text}");
}

/// A message above a limit of the server is reported, and the other messages of its file are imported.
#[test]
fn a_message_that_is_too_large_is_left_out_of_an_import() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["--set", "limits.max_message_bytes=4096"];
    let server = Server::start(&folder.path().join("data"), &args);
    let large = "x".repeat(5_000);
    let lines = [("1", "first"), ("2", &large), ("3", "last")];
    let lines = lines.map(|(n, text)| {
        let id = format!("00000000-0000-4000-8000-00000000000{n}");
        format!(r#"{{"type":"user","uuid":"{id}","message":{{"role":"user","content":"{text}"}}}}"#)
    });
    write(folder.path(), "log.jsonl", &lines.join("\n"));
    let path = folder.path().join("log.jsonl");
    let path = path.to_str().unwrap();
    let output = palimpsest(&["import", "--json", path, "--server", server.address()]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let file = &report[0];
    assert_eq!(file["sessions"][0]["appended"], 2, "{report:#}");
    let defects = file["defects"].to_string();
    assert!(
        defects.contains("line 2: ") && defects.contains("MESSAGE_TOO_LARGE"),
        "{defects}"
    );
    let shown = said(&["export", "log", "--server", server.address()]);
    assert!(shown.contains("first") && shown.contains("last"));
    assert!(!shown.contains(&large));
}
