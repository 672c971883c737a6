//! Tests of the commands as users type them, including those of the README.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should fail")]
#![expect(
    clippy::disallowed_methods,
    reason = "a process takes real time to end"
)]

mod agent_logs;
mod backups;
mod blocks;
mod commands;
mod compacted;
mod demo;
mod formats;
mod hostile;
mod inspected;
mod messages;
mod operator;
mod operator_memory;
mod operator_screens;
mod reimport;
mod replay;
mod replay_settings;
mod resumed;
mod rewinds;
mod run;
mod tune;

use std::fs;
use std::path::{Path, PathBuf};

use palimpsest_tests::unreadable::add_unreadable_session;
use palimpsest_tests::{Server, palimpsest};
use serde_json::Value;
use tempfile::TempDir;

/// Returns the output of a command that must succeed.
#[track_caller]
fn said(args: &[&str]) -> String {
    let output = palimpsest(args);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{args:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// Writes two sessions in Claude Code's format: fragments, a result between them, an abandoned branch, and a line that
/// is not JSON.
fn transcripts(folder: &Path) -> Vec<PathBuf> {
    let id = |n: u32| format!("00000000-0000-4000-8000-{n:012}");
    let line = |n: u32, parent: u32, kind: &str, message: &str| {
        let parent = if parent == 0 {
            "null".into()
        } else {
            format!("\"{}\"", id(parent))
        };
        format!(
            r#"{{"type":"{kind}","uuid":"{}","parentUuid":{parent},"timestamp":"2026-01-01T00:00:{n:02}.000Z","cwd":"/work","message":{message}}}"#,
            id(n)
        )
    };
    let user = |text: &str| format!(r#"{{"role":"user","content":"{text}"}}"#);
    let said = |block: &str| {
        format!(
            r#"{{"id":"msg_1","model":"m","role":"assistant","content":[{block}],"usage":{{"input_tokens":900,"output_tokens":20}}}}"#
        )
    };
    let call = |id: &str| {
        format!(r#"{{"type":"tool_use","id":"{id}","name":"Read","input":{{"path":"{id}"}}}}"#)
    };
    let result = |id: &str| {
        format!(
            r#"{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"{id}","content":"of {id}"}}]}}"#
        )
    };
    let first = [
        line(1, 0, "user", &user("read two files")),
        line(2, 1, "assistant", &said(&call("a"))),
        line(3, 2, "user", &result("a")),
        "not json".to_owned(),
        line(4, 2, "assistant", &said(&call("b"))),
        line(5, 4, "user", &result("b")),
    ];
    let second = [
        line(11, 0, "user", &user("one")),
        line(12, 11, "user", &user("an abandoned thought")),
        line(13, 11, "user", &user("a better thought")),
    ];
    let write = |name: &str, lines: &[String]| {
        let path = folder.join(name);
        fs::write(&path, lines.join("\n")).unwrap();
        path
    };
    vec![write("first.jsonl", &first), write("second.jsonl", &second)]
}

struct Setting {
    server: Server,
    folder: TempDir,
    files: Vec<PathBuf>,
}

impl Setting {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start(&folder.path().join("data"), &[]);
        let files = transcripts(folder.path());
        Self {
            server,
            folder,
            files,
        }
    }

    fn run(&self, args: &[&str]) -> String {
        let server = format!("http://{}", self.server.address());
        let mut all = args.to_vec();
        all.extend(["--server", &server]);
        said(&all)
    }

    fn import(&self) -> Value {
        let files: Vec<&str> = self
            .files
            .iter()
            .map(|file| file.to_str().unwrap())
            .collect();
        let mut args = vec!["import", "--format", "claude-code", "--json"];
        args.extend(files);
        serde_json::from_str(&self.run(&args)).unwrap()
    }
}

#[test]
fn a_transcript_is_imported_inspected_and_exported() {
    let setting = Setting::new();
    let report = setting.import();
    assert_eq!(report[0]["sessions"][0]["appended"], 5);
    assert_eq!(report[0]["defects"][0], "line 4: is not JSON (column 2)");
    assert_eq!(report[1]["sessions"][0]["rewinds"], 1);
    // A second import adds nothing.
    let again = setting.import();
    assert_eq!(again[0]["sessions"][0]["appended"], 0);
    assert_eq!(again[0]["sessions"][0]["duplicates"], 5);

    let sessions = setting.run(&["sessions"]);
    assert!(
        sessions.contains("projects/default/sessions/first"),
        "{sessions}"
    );
    assert!(sessions.contains("read two files"), "{sessions}");

    let inspected = setting.run(&["inspect", "first"]);
    assert!(inspected.contains("→ Read"), "{inspected}");
    assert!(
        inspected.contains("3 messages to send, 0 repairs"),
        "{inspected}"
    );
    assert!(
        inspected.contains("of 200,000 tokens, normal"),
        "{inspected}"
    );

    for provider in ["anthropic", "openai"] {
        let view = setting.run(&["view", "first", "--provider", provider]);
        let view: Vec<Value> = serde_json::from_str(&view).unwrap();
        assert_eq!(view[0]["role"], "user");
        // OpenAI's API has one message for each tool result, and Anthropic's API one message for both.
        assert_eq!(view.len(), if provider == "openai" { 4 } else { 3 });
    }
    let view = setting.run(&["view", "second"]);
    assert!(
        !view.contains("abandoned") && view.contains("better"),
        "{view}"
    );

    let exported = setting.run(&["export", "second"]);
    let lines: Vec<Value> = exported
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    // The export consists of a header, the messages, and a last line that confirms completeness.
    assert_eq!(lines.len(), 5);
    assert_eq!(lines[2]["visibility"], "REWOUND");
    let array: Vec<Value> =
        serde_json::from_str(&setting.run(&["export", "first", "--format", "openai"])).unwrap();
    assert_eq!(array[2]["role"], "tool");
}

#[test]
fn an_export_for_claude_code_can_be_imported() {
    let setting = Setting::new();
    setting.import();
    for session in ["first", "second"] {
        let export = |session: &str| {
            // The lines of an export name their session, which differs in the copy.
            let text = setting.run(&["export", session, "--format", "claude-code"]);
            text.replace(
                &format!("\"sessionId\":\"{session}\""),
                "\"sessionId\":\"s\"",
            )
        };
        let exported = export(session);
        let copy = format!("{session}-again");
        let path = setting.folder.path().join(format!("{copy}.jsonl"));
        fs::write(&path, &exported).unwrap();
        setting.run(&["import", "--format", "claude-code", path.to_str().unwrap()]);
        assert_eq!(export(&copy), exported);
        let view = |session: &str| setting.run(&["view", session]);
        assert_eq!(view(&copy), view(session));
    }
}

#[test]
fn only_an_unused_store_is_compacted() {
    let setting = Setting::new();
    setting.import();
    let data = setting.folder.path().join("data");
    let before = setting.run(&["view", "first"]);
    let busy = palimpsest(&["compact-store", "--data-dir", data.to_str().unwrap()]);
    assert!(!busy.status.success(), "a store in use was compacted");
    let Setting { server, folder, .. } = setting;
    server.stop();
    let compacted = said(&["compact-store", "--data-dir", data.to_str().unwrap()]);
    assert!(compacted.starts_with("2 sessions"), "{compacted}");
    let server = Server::start(&data, &[]);
    let address = format!("http://{}", server.address());
    let after = said(&["view", "first", "--server", &address]);
    assert_eq!(after, before);
    drop((server, folder));
}

/// Adds a session that cannot be decoded to the store of a stopped server.
#[tokio::main(flavor = "current_thread")]
async fn add_unreadable_row(data: &Path, session: &str) {
    add_unreadable_session(data, session).await;
}

#[test]
fn sessions_lists_readable_rows_and_reports_unreadable_ones() {
    let setting = Setting::new();
    setting.import();
    let list = |server: &Server, more: &[&str]| {
        let address = format!("http://{}", server.address());
        let output = palimpsest(&[&["sessions", "--server", &address], more].concat());
        assert!(output.status.success(), "{output:?}");
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (text(output.stdout), text(output.stderr))
    };
    let (listed, note) = list(&setting.server, &[]);
    assert!(note.is_empty(), "{note}");

    let Setting { server, folder, .. } = setting;
    server.stop();
    let data = folder.path().join("data");
    for session in ["projects/default/sessions/x", "projects/default/sessions/y"] {
        add_unreadable_row(&data, session);
    }
    let server = Server::start(&data, &[]);
    for more in [&[][..], &["--limit", "1"], &["--json"]] {
        let (rows, note) = list(&server, more);
        assert!(
            note.starts_with("2 sessions are not listed") && note.contains("verify-store"),
            "{note}"
        );
        assert!(!rows.contains("not listed"), "{rows}");
        if more.is_empty() {
            assert_eq!(rows, listed);
        }
    }
}

#[test]
fn a_failed_deletion_names_the_sessions_after_it() {
    let setting = Setting::new();
    setting.import();
    let server = format!("http://{}", setting.server.address());
    let names = ["first", "missing", "second", "--yes"];
    let args = [&["sessions", "delete"][..], &names, &["--server", &server]];
    let output = palimpsest(&args.concat());
    assert_eq!(output.status.code(), Some(1));
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(
        printed.starts_with("projects/default/sessions/first: 1 deleted"),
        "{printed}"
    );
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.contains("sessions/missing does not exist")
            && error.contains("were not deleted: projects/default/sessions/second"),
        "{error}"
    );
    assert!(setting.run(&["sessions"]).contains("second"));
}

#[test]
fn verify_needs_no_server_and_rejects_empty_input() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap().to_owned();
    let empty = palimpsest(&["verify", "--format", "claude-code", &path]);
    assert!(!empty.status.success());
    transcripts(folder.path());
    let verified = said(&["verify", "--format", "claude-code", &path]);
    assert!(
        verified.contains("Every sendable view is valid"),
        "{verified}"
    );
    assert!(
        verified.contains("unreadable: first.jsonl line 4"),
        "{verified}"
    );
    fs::write(
        folder.path().join("chat.jsonl"),
        r#"{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"yes"}]}"#,
    )
    .unwrap();
    let chat = folder.path().join("chat.jsonl");
    let chat = chat.to_str().unwrap();
    for more in [&[][..], &["--provider", "bedrock"]] {
        let verified = said(&[&["verify", "--format", "openai", chat], more].concat());
        assert!(
            verified.contains("Every sendable view is valid"),
            "{verified}"
        );
    }
}

#[test]
fn the_output_of_config_is_a_valid_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("palimpsest.toml");
    fs::write(&file, said(&["config"])).unwrap();
    said(&["config", "--check", "--config", file.to_str().unwrap()]);
    fs::write(&file, "lissten = 1\n[limits]\nmax_messages = \"many\"\n").unwrap();
    let refused = palimpsest(&["config", "--check", "--config", file.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(64));
    let errors = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        errors.contains("lissten") && errors.contains("max_messages"),
        "{errors}"
    );
}

#[test]
fn the_default_ports_are_50051_and_50052() {
    let config = said(&["config"]);
    assert!(config.contains("127.0.0.1:50051"), "{config}");
    assert!(config.contains("127.0.0.1:50052"), "{config}");
}

#[test]
fn an_unreachable_server_is_reported_with_its_address() {
    let output = palimpsest(&["sessions", "--server", "http://127.0.0.1:9"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("no server answers at http://127.0.0.1:9"),
        "{said}"
    );
}
