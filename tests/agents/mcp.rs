//! Agents that read a session back over the Model Context Protocol. The fake model calls a tool of the session, and the
//! next request contains the answer.

use std::fs;

use palimpsest_fake_provider::FakeProvider;
use palimpsest_tests::say::{append, user};
use palimpsest_tests::{Server, binary, name};
use serde_json::{Value, json};

use crate::assert_all_accepted;
use crate::job::{FIRST_ANSWER, Job, assert_answer, output};
use crate::kinds::{Kind, Prompt};

/// The session that is read, and a sentence that it contains.
const SESSION: &str = "earlier";
const SENTENCE: &str = "The keeper of the lighthouse is a heron.";

/// Adds the server of the session to the settings of the user. Returns the call of the search for the fake model.
fn configure(kind: Kind, job: &Job, server: &str) -> Value {
    let input = json!({"pattern": "lighthouse"});
    match kind {
        // Over standard input and output.
        Kind::Codex => {
            let path = job.home.path().join(".codex/config.toml");
            let mut config = fs::read_to_string(&path).unwrap();
            let (command, session) = (binary().display(), name(SESSION));
            config += &format!(
                "[mcp_servers.palimpsest]\ncommand = \"{command}\"\n\
                 args = [\"mcp\", \"--server\", \"{server}\", \"--session\", \"{session}\"]\n"
            );
            fs::write(path, config).unwrap();
            json!({"namespace": "mcp__palimpsest", "name": "SearchTranscript", "input": input})
        }
        // Over HTTP.
        Kind::OpenCode => {
            let path = job.home.path().join(".config/opencode/opencode.json");
            let config = fs::read(&path).unwrap();
            let mut config: Value = serde_json::from_slice(&config).unwrap();
            let url = format!("http://{server}/mcp/{}", name(SESSION));
            config["mcp"] = json!({"palimpsest": {"type": "remote", "url": url}});
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
    if std::env::var_os("SHOW").is_some() {
        for request in provider.requests() {
            println!("{} {}", request.status, request.body);
        }
    }
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
