//! Tests exports in the formats of agents: a file has the view of the session, and an import restores it.

use std::fs;
use std::path::{Path, PathBuf};

use palimpsest_tests::{
    CHANGED_SESSION_SETTINGS, HIDDEN_TEXTS, SHOWN_TEXTS, Server, create_changed_session,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::reimport::unsalted;
use crate::{compacted, said};

const CHANGED: &str = "projects/default/sessions/changed";

struct World {
    server: Server,
    folder: TempDir,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let settings = CHANGED_SESSION_SETTINGS.iter();
        let args: Vec<&str> = settings.flat_map(|it| ["--set", it]).collect();
        let server = Server::start(&folder.path().join("data"), &args);
        Self { server, folder }
    }

    fn run(&self, args: &[&str]) -> String {
        let server = format!("http://{}", self.server.address());
        said(&[args, &["--server", &server]].concat())
    }

    /// Exports a session in a format.
    fn export(&self, session: &str, format: &str) -> (PathBuf, String) {
        let path = self.folder.path().join(format!("{session}.{format}.jsonl"));
        let file = path.to_str().unwrap();
        self.run(&["export", session, "--format", format, "--output", file]);
        (path.clone(), fs::read_to_string(path).unwrap())
    }

    /// Imports a file. Returns the report about its session.
    fn import(&self, path: &Path, session: &str) -> Value {
        let path = path.to_str().unwrap();
        let report = self.run(&["import", "--json", path, "--session", session]);
        let report: Value = serde_json::from_str(&report).unwrap();
        assert_eq!(report[0]["defects"], json!([]), "{report:#}");
        report[0]["sessions"][0].clone()
    }

    /// Returns the view without parts that differ between sessions.
    fn view(&self, session: &str, provider: &str) -> String {
        let view = self.run(&["view", session, "--provider", provider]);
        unsalted(&view.replace(&format!("/{session}/"), "/s/"))
    }
}

/// Returns the lines that Claude Code sends after a resume, in order.
fn resumed(file: &str) -> Vec<Value> {
    let lines = file
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let lines: Vec<Value> = lines.collect();
    // Claude Code continues after the message that its record `last-prompt` names, or else after the last message.
    let named = lines.iter().find(|line| line["type"] == "last-prompt");
    let last = lines.iter().rfind(|line| line["message"].is_object());
    let mut next = named.map_or_else(
        || last.unwrap()["uuid"].clone(),
        |it| it["leafUuid"].clone(),
    );
    let mut chain = Vec::new();
    while let Some(line) = lines
        .iter()
        .find(|line| line["uuid"].is_string() && line["uuid"] == next)
    {
        next = line["parentUuid"].clone();
        chain.push(line.clone());
    }
    chain.reverse();
    chain
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_for_claude_code_continues_with_the_view() {
    let world = World::new();
    create_changed_session(&world.server, CHANGED).await;
    let (path, file) = world.export("changed", "claude-code");

    let chain = resumed(&file);
    assert_eq!(chain[0]["subtype"], "compact_boundary", "{file}");
    assert_eq!(chain[0]["parentUuid"], json!(null));
    assert_eq!(chain[1]["isCompactSummary"], true, "{file}");
    assert_eq!(chain[1]["isVisibleInTranscriptOnly"], true);
    let mut messages = chain[2..].iter().filter(|line| {
        let text = line["message"].to_string();
        !text.contains("tool_use\"")
    });
    for text in SHOWN_TEXTS {
        let message = messages.next().unwrap()["message"].to_string();
        assert!(message.contains(text), "{text}: {message}");
    }
    assert!(messages.next().is_none(), "{file}");
    let sent: Vec<String> = chain
        .iter()
        .map(|line| line["message"].to_string())
        .collect();
    for text in HIDDEN_TEXTS {
        assert!(!sent[2..].concat().contains(text), "{text}");
        // The file has the whole transcript.
        assert!(file.contains(text), "{text}");
    }

    let report = world.import(&path, "back");
    let counts = ["rewinds", "compactions", "removals"].map(|it| report[it].clone());
    assert_eq!(counts, [json!(1), json!(1), json!(1)], "{file}");
    for provider in ["anthropic", "openai"] {
        assert_eq!(
            world.view("back", provider),
            world.view("changed", provider)
        );
    }
    // A repeated export has the same messages in the view.
    let (_, again) = world.export("back", "claude-code");
    let messages = |file: &str| -> Vec<Value> {
        let chain = resumed(file).into_iter().skip(2);
        chain
            .map(|mut line| line["message"]["content"].take())
            .collect()
    };
    let unsalted = |file: &str| {
        unsalted(
            &json!(messages(file))
                .to_string()
                .replace("/back/", "/changed/"),
        )
    };
    assert_eq!(unsalted(&again), unsalted(&file));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_for_codex_continues_with_the_view() {
    let world = World::new();
    create_changed_session(&world.server, CHANGED).await;
    let (path, file) = world.export("changed", "codex");
    let lines = file
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let lines: Vec<Value> = lines.collect();
    assert_eq!(lines[0]["type"], "session_meta");
    let at = lines.iter().position(|line| line["type"] == "compacted");
    let (before, after) = lines.split_at(at.unwrap());
    let record = &after[0]["payload"];
    assert!(record["message"].as_str().unwrap().contains("summary"));
    let history = record["replacement_history"].as_array().unwrap();
    let items = after[1..]
        .iter()
        .filter(|line| line["type"] == "response_item");
    let sent: Vec<&Value> = history
        .iter()
        .chain(items.map(|line| &line["payload"]))
        .collect();
    let mut items = sent[1..]
        .iter()
        .filter(|item| item["type"] != "function_call");
    for text in SHOWN_TEXTS {
        let item = items.next().unwrap().to_string();
        assert!(item.contains(text), "{text}: {item}");
    }
    assert!(items.next().is_none(), "{file}");
    for text in HIDDEN_TEXTS {
        assert!(!json!(sent[1..]).to_string().contains(text), "{text}");
        assert!(json!(before).to_string().contains(text), "{text}");
    }

    let report = world.import(&path, "back");
    assert_eq!(report["compactions"], 1, "{file}");
    let provider = "openai-responses";
    assert_eq!(
        world.view("back", provider),
        world.view("changed", provider)
    );
}

#[test]
fn compactions_of_another_program_survive_an_export() {
    let world = World::new();
    let path = world.folder.path().join("agent.jsonl");
    fs::write(&path, compacted::transcript()).unwrap();
    world.import(&path, "agent");
    let (path, file) = world.export("agent", "claude-code");
    world.import(&path, "back");
    assert_eq!(
        world.view("back", "anthropic"),
        world.view("agent", "anthropic"),
        "{file}"
    );
}
