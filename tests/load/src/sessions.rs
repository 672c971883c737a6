//! How many sessions a server can have: the time until it is ready, the memory that it takes while nothing
//! goes on, and what calls take then.

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
use crate::site::{PATIENT, memory};

/// What each session says.
const BYTES: usize = 2_000;
/// How many are made at one time, so that they share the disk's syncs.
const AT_ONCE: usize = 128;
/// On so many connections.
const CONNECTIONS: usize = 8;
/// How many times a server is started; the middle of them counts.
const STARTS: usize = 3;
/// How many sessions are asked for afterwards, each for the first time.
const ASKED: usize = 200;
/// How long nothing goes on before memory is looked at.
const REST: Duration = Duration::from_secs(1);

/// A server with so many sessions on disk.
#[derive(Debug, Clone, Serialize)]
pub struct Crowd {
    /// How many.
    pub sessions: usize,
    /// The time until it is ready.
    pub ready_ms: f64,
    /// Its memory while nothing goes on, mapped files included.
    pub resident: u64,
    /// Of that, what is no mapped file.
    pub own: u64,
    /// What first calls take.
    pub p50_ms: Option<f64>,
    /// What the slowest of them take.
    pub p99_ms: Option<f64>,
}

/// Fills the store of a data folder with more and more sessions, and starts a server on it at each of these numbers.
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

/// A server that starts on what is there.
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
    let first = prepare("projects/load/sessions/another", vec![user("hello")]);
    client.prepare_context(first).await?;
    let mut took = Vec::new();
    for number in 0..sessions.min(ASKED) {
        // Spread over all that are there.
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

/// What a reader has to know of it.
pub fn about() -> String {
    format!(
        "One store with more and more sessions of {BYTES} bytes. The server stops in order and starts again, {STARTS} times, of which the middle counts; it is ready when \
         it says so. After {} s in which nothing goes on its memory is read, with and without mapped files. Then up to {ASKED} \
         sessions are asked, one after another, each for the first time: a message comes in, and the whole view goes back.",
        REST.as_secs()
    )
}
