//! Agents that read a session back over the Model Context Protocol. The fake model calls a tool of the session, and the
//! next request contains the answer.

use std::fs;
use std::path::Path;

use palimpsest_fake_provider::FakeProvider;
use palimpsest_tests::markdown::blocks_of;
use palimpsest_tests::say::{append, user};
use palimpsest_tests::{Server, binary, name};
use serde_json::{Value, json};

use crate::assert_all_accepted;
use crate::job::{FIRST_ANSWER, Job, assert_answer, output};
use crate::kinds::{Kind, Prompt};

/// The session that is read, and a sentence that it contains.
const SESSION: &str = "earlier";
const SENTENCE: &str = "The keeper of the lighthouse is a heron.";

/// The page with the settings, which these tests use.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/mcp.md");

/// Returns the only block of the page in a language that contains a text.
fn snippet(language: &str, part: &str) -> String {
    let blocks = blocks_of(Path::new(PAGE)).into_iter();
    let mut fitting = blocks.filter(|it| it.language == language && it.text.contains(part));
    let block = fitting.next().unwrap();
    assert!(fitting.next().is_none(), "{part}");
    block.text
}

/// Adds the server of the session to the settings of the user, as the page describes. Returns the call of the search for
/// the fake model.
fn configure(kind: Kind, job: &Job, server: &str) -> Value {
    let input = json!({"pattern": "lighthouse"});
    match kind {
        // Over standard input and output.
        Kind::Codex => {
            let path = job.home.path().join(".codex/config.toml");
            let settings = snippet("toml", "command = \"palimpsest\"");
            let settings = settings.replace("\"palimpsest\"", &json!(binary()).to_string());
            // The settings contain the opening bracket of the arguments.
            let arguments = json!([name(SESSION), "--server", server]).to_string();
            let settings = settings.replace("\"my-session\"]", &arguments[1..]);
            let config = fs::read_to_string(&path).unwrap();
            fs::write(path, config + &settings).unwrap();
            json!({"namespace": "mcp__palimpsest", "name": "SearchTranscript", "input": input})
        }
        // Over HTTP.
        Kind::OpenCode => {
            let path = job.home.path().join(".config/opencode/opencode.json");
            let config = fs::read(&path).unwrap();
            let mut config: Value = serde_json::from_slice(&config).unwrap();
            let settings = snippet("json", "\"type\": \"remote\"");
            let settings = settings.replace("127.0.0.1:50051", server);
            let session = "projects/default/sessions/my-session";
            let settings = settings.replace(session, &name(SESSION));
            let settings: Value = serde_json::from_str(&settings).unwrap();
            config["mcp"] = settings["mcp"].clone();
            fs::write(path, config.to_string()).unwrap();
            json!({"name": "palimpsest_SearchTranscript", "input": input})
        }
        other => panic!("{other:?} has no settings for MCP servers here"),
    }
}

async fn reads_back(kind: Kind) {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &["--set", "worker.enabled=false"]);
    let mut context = server.context().await;
    let request = append(&name(SESSION), vec![user(SENTENCE)]);
    context.append_messages(request).await.unwrap();

    let provider = FakeProvider::start().await.unwrap();
    let job = Job::unscripted(kind, "mcp", 200_000);
    let call = configure(kind, &job, server.address());
    let script = json!({
        "match": {"key": job.key, "tools": true},
        "turns": [{"text": "I search.", "calls": [call]}, {"text": FIRST_ANSWER}],
    });
    provider
        .add_script(serde_json::from_value(script).unwrap())
        .unwrap();
    let done = output(&job.through_run(&provider, Prompt::First(&job.first())));
    assert_answer(&done, FIRST_ANSWER);
    assert_all_accepted(&job, &provider);
    let requests = job.round_requests(&provider);
    assert_eq!(requests.len(), 2);
    let before = requests[0].body.to_string();
    assert!(!before.contains(SENTENCE), "{before}");
    let after = requests[1].body.to_string();
    assert!(after.contains(SENTENCE), "{after}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codex_reads_a_session_back_over_standard_input_and_output() {
    reads_back(Kind::Codex).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opencode_reads_a_session_back_over_http() {
    reads_back(Kind::OpenCode).await;
}
