//! Measures a server with many sessions: the time until it is ready, its idle memory, and the duration of first calls.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use palimpsest_tests::say::{append, prepare, user};
use palimpsest_tests::{Context, Server};
use serde::Serialize;

use crate::data::conversation;
use crate::figures::Latencies;
use crate::retry::answered;
use crate::test_server::{PATIENT, memory};

/// Bytes of text in each session.
const BYTES: usize = 2_000;
/// Number of sessions that are created in parallel, so that they share the syncs of the disk.
const AT_ONCE: usize = 128;
/// Number of connections.
const CONNECTIONS: usize = 8;
/// Number of starts. The report contains their median.
const STARTS: usize = 3;
/// Number of sessions that are called for the first time.
const ASKED: usize = 200;
/// Idle time before the memory is measured.
const REST: Duration = Duration::from_secs(1);

/// A server with a number of sessions on disk.
#[derive(Debug, Clone, Serialize)]
pub struct Crowd {
    /// Number of sessions.
    pub sessions: usize,
    /// Time until the server is ready, in milliseconds.
    pub ready_ms: f64,
    /// Idle resident memory in bytes, mapped files included.
    pub resident: u64,
    /// The part of it that is not mapped files, in bytes.
    pub own: u64,
    /// Median duration of first calls, in milliseconds.
    pub p50_ms: Option<f64>,
    /// 99th percentile of first calls, in milliseconds.
    pub p99_ms: Option<f64>,
}

/// Fills the store with more and more sessions, and starts a server at each of the given numbers.
pub async fn run(
    folder: &Path,
    numbers: &[usize],
    mut tell: impl FnMut(&Crowd),
) -> Result<Vec<Crowd>> {
    let mut rows = Vec::new();
    let mut there = 0;
    for number in numbers {
        let server = Server::start(folder, &["--set", PATIENT]);
        make(&server, there..*number).await?;
        there = *number;
        server.stop();
        let row = look(folder, there).await?;
        tell(&row);
        rows.push(row);
    }
    Ok(rows)
}

fn name(number: usize) -> String {
    format!("projects/load/sessions/one-of-many-{number}")
}

async fn make(server: &Server, numbers: std::ops::Range<usize>) -> Result<()> {
    let mut clients: Vec<Context> = Vec::new();
    for _ in 0..CONNECTIONS {
        clients.push(server.context().await);
    }
    let clients = &clients;
    let made = stream::iter(numbers).map(|number| async move {
        let said = serde_json::Value::from(conversation(number, BYTES));
        let messages = vec![palimpsest_tests::say::anthropic(&said)];
        let request = append(&name(number), messages);
        let client = &clients[number % CONNECTIONS];
        answered(client, &request, |mut client, request| async move {
            client.append_messages(request).await
        })
        .await
    });
    made.buffer_unordered(AT_ONCE)
        .try_for_each(|_appended| async { Ok(()) })
        .await
        .context("a session could not be made")
}

/// Starts a server on the existing data and measures it.
async fn look(folder: &Path, sessions: usize) -> Result<Crowd> {
    let mut ready = Vec::new();
    for _ in 1..STARTS {
        let (server, took) = start(folder);
        ready.push(took);
        server.stop();
    }
    let (server, took) = start(folder);
    ready.push(took);
    tokio::time::sleep(REST).await;
    let (resident, own) = memory(&server);
    let mut client = server.context().await;
    // The first call of a connection is slower, so a session that is not measured makes it.
    let first = prepare("projects/load/sessions/another", vec![user("hello")]);
    client.prepare_context(first).await?;
    let mut took = Vec::new();
    for number in 0..sessions.min(ASKED) {
        // The called sessions are distributed over all existing ones.
        let session = name(number * sessions / sessions.min(ASKED));
        let request = prepare(&session, vec![user("and now?")]);
        let began = Instant::now();
        client.prepare_context(request).await?;
        took.push(began.elapsed());
    }
    server.stop();
    let took = Latencies::new(took);
    Ok(Crowd {
        sessions,
        ready_ms: Latencies::new(ready).ms(0.5).unwrap_or_default(),
        resident,
        own,
        p50_ms: took.ms(0.5),
        p99_ms: took.ms(0.99),
    })
}

fn start(folder: &Path) -> (Server, Duration) {
    let began = Instant::now();
    let server = Server::start(folder, &[]);
    (server, began.elapsed())
}

/// Returns the explanation of the measurement for the report.
pub fn about() -> String {
    format!(
        "One store with more and more sessions of {BYTES} bytes. The server stops in order and starts again, {STARTS} times, of which the middle counts; it is ready when \
         it says so. After {} s in which nothing goes on its memory is read, with and without mapped files. Then up to {ASKED} \
         sessions are asked, one after another, each for the first time: a message comes in, and the whole view goes back.",
        REST.as_secs()
    )
}
