//! Exported sessions that released agents continue. The request of the agent contains the view of the session.

use std::fs;
use std::path::Path;

use palimpsest_fake_provider::FakeProvider;
use palimpsest_tests::{
    CHANGED_SESSION_SETTINGS, HIDDEN_TEXTS, SHOWN_TEXTS, Server, create_changed_session, palimpsest,
};
use serde_json::Value;

use crate::job::{Job, NEXT_ANSWER, Task, assert_answer, output};
use crate::kinds::{Kind, Prompt};

/// The id of the session. The agents require a UUID.
const SESSION: &str = "6f1f5c1e-52d5-4a3b-9a54-0b8f1d3c2a10";

/// Exports a session, lets the agent continue it, and checks its first request.
async fn continues_an_export(kind: Kind, format: &str, file: impl Fn(&Path) -> String) {
    let provider = FakeProvider::start().await.unwrap();
    let task = Task {
        rounds: 1,
        output_bytes: (1_000, 2_000),
        window: 200_000,
    };
    let job = Job::new(kind, "exported", &provider, task);
    let settings = CHANGED_SESSION_SETTINGS.iter();
    let args: Vec<&str> = settings.flat_map(|it| ["--set", it]).collect();
    let server = Server::start(&job.data(), &args);
    create_changed_session(&server, &format!("projects/default/sessions/{SESSION}")).await;
    let path = job.home.path().join(file(job.home.path()));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let exported = palimpsest(&[
        "export",
        SESSION,
        "--format",
        format,
        "--output",
        path.to_str().unwrap(),
        "--server",
        server.address(),
    ]);
    assert!(exported.status.success(), "{exported:?}");
    server.stop();

    let next = job.next();
    let prompt = Prompt::Resume(SESSION, &next);
    let done = output(&job.to(&provider.url(), prompt));
    assert_answer(&done, NEXT_ANSWER);
    let requests = job.round_requests(&provider);
    assert!(requests.iter().all(|request| request.status == 200));
    let sent = Value::from(job.array(&requests[0]).to_vec()).to_string();
    // The summary may quote what it replaces, so only the messages after it count.
    let end = sent.find("</conversation-summary>");
    let shown = &sent[end.unwrap_or_else(|| panic!("the summary is missing: {sent}"))..];
    let mut last = 0;
    for text in SHOWN_TEXTS.into_iter().chain([&*next]) {
        let place = shown[last..].find(text);
        last += place.unwrap_or_else(|| panic!("{text:?} is missing or moved: {sent}"));
    }
    for text in HIDDEN_TEXTS {
        assert!(!shown.contains(text), "{text:?} is in {sent}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codex_continues_an_export() {
    let file = format!(".codex/sessions/2026/01/02/rollout-2026-01-02T03-04-05-{SESSION}.jsonl");
    continues_an_export(Kind::Codex, "codex", |_| file.clone()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claude_code_continues_an_export() {
    if !Kind::all().contains(&Kind::ClaudeCode) {
        return;
    }
    // The folder of a project has the path of its working directory, with hyphens in place of other characters.
    let file = |home: &Path| {
        let work = home.join("work").to_str().unwrap().to_owned();
        let project = work.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        format!(".claude/projects/{project}/{SESSION}.jsonl")
    };
    continues_an_export(Kind::ClaudeCode, "claude-code", file).await;
}
