//! Tests of session memory over gRPC: `summary.md` is created and updated automatically, and its state is reported.

#![expect(
    clippy::disallowed_methods,
    reason = "what happens in the background takes real time"
)]

mod by_call;
mod by_model;
mod economy;
mod edits;
mod failures;
mod reads;
mod updates;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use palimpsest_proto::context::v1::{GetSessionMemoryRequest, MessageInput, SessionMemory};
use palimpsest_tests::say::{anthropic, append};
use palimpsest_tests::server::Context;
use palimpsest_tests::{Server, Shared, name};
use serde_json::json;

/// Settings with short intervals.
const QUICK: &[&str] = &[
    "--set",
    "worker.edit_debounce_ms=50",
    "--set",
    "worker.poll_ms=50",
    "--set",
    "worker.lease_ms=600",
    "--set",
    "worker.max_backoff_ms=500",
];

static SERVER: Shared = Shared::new(QUICK);

/// Time limit for an update in the background.
const PATIENCE: Duration = Duration::from_mins(2);

/// Returns a text of about `tokens` tokens that a person might write.
fn words(tokens: usize) -> String {
    "the importer reads every row and maps it to an account ".repeat(tokens.div_ceil(18))
}

fn call(id: &str, path: &str) -> MessageInput {
    anthropic(&json!({"role": "assistant", "content": [
        {"type": "text", "text": format!("I look at {path} next.")},
        {"type": "tool_use", "id": id, "name": "Read", "input": {"file_path": path}},
    ]}))
}

fn result(id: &str, text: &str) -> MessageInput {
    let block = json!({"type": "tool_result", "tool_use_id": id, "content": text});
    anthropic(&json!({"role": "user", "content": [block]}))
}

fn says(text: &str) -> MessageInput {
    anthropic(&json!({"role": "assistant", "content": [{"type": "text", "text": text}]}))
}

fn asks(text: &str) -> MessageInput {
    anthropic(&json!({"role": "user", "content": text}))
}

/// Returns a turn with `calls` calls. Their results have about `tokens` tokens together.
fn turn(number: usize, calls: usize, tokens: usize) -> Vec<MessageInput> {
    let mut messages = vec![asks(&format!(
        "Please mend module {number} of the importer."
    ))];
    for at in 0..calls {
        let id = format!("toolu_{number}_{at}");
        messages.push(call(&id, &format!("/repo/src/module_{number}_{at}.rs")));
        messages.push(result(&id, &words(tokens / calls)));
    }
    messages.push(says(&format!(
        "Module {number} is mended and its tests pass."
    )));
    messages
}

async fn say(client: &mut Context, session: &str, messages: Vec<MessageInput>) {
    client
        .append_messages(append(session, messages))
        .await
        .unwrap();
}

async fn memory(client: &mut Context, session: &str) -> SessionMemory {
    let request = GetSessionMemoryRequest {
        session: session.to_owned(),
        ..GetSessionMemoryRequest::default()
    };
    let response = client.get_session_memory(request).await.unwrap();
    response.into_inner().memory.unwrap()
}

/// Waits until session memory meets a condition, and returns it.
async fn memory_when(
    client: &mut Context,
    session: &str,
    wanted: impl Fn(&SessionMemory) -> bool,
) -> SessionMemory {
    let began = Instant::now();
    loop {
        let memory = memory(client, session).await;
        if wanted(&memory) {
            return memory;
        }
        assert!(
            began.elapsed() < PATIENCE,
            "timed out waiting for session memory: {memory:#?}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Returns the path of the file of a session in project `p`.
fn file(folder: &Path, session: &str) -> PathBuf {
    let session = session.rsplit('/').next().unwrap();
    let of_session = folder.join("blobs").join("p").join(session);
    of_session.join("session-memory").join("summary.md")
}

/// Returns the content of a file without the version mark in its last line.
fn unmarked(file: &str) -> String {
    match file.trim_end().rsplit_once('\n') {
        Some((text, mark)) if mark.starts_with("<!-- palimpsest: version ") => format!("{text}\n"),
        _ => file.to_owned(),
    }
}

/// Waits until the text of the file meets a condition, and returns it.
async fn file_when(path: &Path, wanted: impl Fn(&str) -> bool) -> String {
    let began = Instant::now();
    loop {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let text = unmarked(&text);
        if wanted(&text) {
            return text;
        }
        assert!(began.elapsed() < PATIENCE, "{}: {text}", path.display());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Starts a separate server on a folder.
fn own(folder: &Path, extra: &[&str]) -> Server {
    Server::start(folder, &[QUICK, extra].concat())
}

fn section(memory: &SessionMemory, title: &str) -> String {
    let found = memory.sections.iter().find(|it| it.title == title);
    found.unwrap().body.clone()
}

fn named(session: &str) -> String {
    name(&format!("memory-{session}"))
}
