//! Measures the delta of a view in a long session, and compares it with a short session. The log is in memory, so that
//! the commit is not measured.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bytes::Bytes;
use palimpsest_conformance::MemoryLog;
use palimpsest_load::figures::{count, grouped};

use super::Extent;
use crate::row::{MICROS, Row, Spread, Target};
use palimpsest_bench::in_process::{InProcessServer, TOKENS, median, message, micros, name};

const LIMIT_US: f64 = 200.0;
/// Messages of a short session, and the maximum ratio of the duration in a long session.
const SHORT: usize = 10;
const SLOWER: f64 = 1.5;
/// Calls are distributed over this many sessions, and each round uses new ones. Short sessions therefore stay short.
const SHORT_SESSIONS: usize = 100;
/// Number of copies of a view.
const COPIES: usize = 51;

/// A session and the state of its agent.
struct Known {
    session: String,
    etag: Bytes,
    said: usize,
}

impl Known {
    async fn grown(server: &InProcessServer, session: &str, messages: usize) -> Result<Self> {
        let last = server.grow(session, messages).await?;
        Ok(Self {
            session: name(session),
            etag: last.etag,
            said: messages,
        })
    }

    /// Runs a turn that appends two messages. The delta contains only these two.
    async fn turn(&mut self, server: &InProcessServer) -> Result<Duration> {
        let said = vec![message(self.said), message(self.said + 1)];
        self.said += 2;
        let (reply, took) = server.prepare(&self.session, said, &self.etag).await?;
        let told = reply.messages_json.len();
        ensure!(told == 2, "a delta of {told} messages");
        self.etag = reply.etag;
        Ok(took)
    }
}

/// Returns the median duration of `calls` turns, distributed over all sessions, in microseconds.
async fn turns(server: &InProcessServer, sessions: &mut [Known], calls: usize) -> Result<f64> {
    let mut times = Vec::with_capacity(calls);
    for call in 0..calls {
        let number = call % sessions.len();
        times.push(sessions[number].turn(server).await?);
    }
    Ok(micros(median(times)))
}

/// Measures a delta of a long view. The limit is a copy of that view.
pub(super) async fn of_long_view(extent: &Extent) -> Result<Row> {
    let server = InProcessServer::new(Arc::new(MemoryLog::new()))?;
    server.grow_to_tokens("tokens").await?;
    // An unknown etag returns the complete view, whose size is the limit.
    let (view, _) = server.prepare(&name("tokens"), vec![], b"unknown").await?;
    let messages = usize::try_from(view.view_messages)?;
    let mut session = [Known {
        session: name("tokens"),
        etag: view.etag,
        said: messages,
    }];
    let (mut rounds, mut copies) = (Vec::new(), Vec::new());
    for _ in 0..extent.rounds {
        let took = turns(&server, &mut session, extent.calls).await?;
        rounds.push((took, LIMIT_US));
        copies.push(copy(usize::try_from(view.view_bytes)?));
    }
    let what = format!(
        "PrepareContext, delta, view of {} tokens",
        count(TOKENS.into())
    );
    let row = Row::new(what, &rounds, (MICROS, "in process"), Target::AtMost(1.0));
    Ok(row.beside(format!(
        "a copy of that view, {} bytes of {messages} messages, takes {:.0} µs",
        count(view.view_bytes),
        Spread::of(copies).median,
    )))
}

/// Measures a delta after many messages. The limit is a delta after few.
pub(super) async fn after_many_messages(extent: &Extent) -> Result<Row> {
    let server = InProcessServer::new(Arc::new(MemoryLog::new()))?;
    let mut long = [Known::grown(&server, "long", extent.long).await?];
    let mut rounds = Vec::new();
    for round in 0..extent.rounds {
        let mut short = Vec::new();
        for number in 0..SHORT_SESSIONS {
            short.push(Known::grown(&server, &format!("short-{round}-{number}"), SHORT).await?);
        }
        let limit = turns(&server, &mut short, extent.calls).await?;
        let took = turns(&server, &mut long, extent.calls).await?;
        rounds.push((took, limit));
    }
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let messages = grouped(extent.long as f64);
    let what = format!("PrepareContext, delta after {messages} messages");
    let limit = (MICROS, "after 10");
    Ok(Row::new(what, &rounds, limit, Target::AtMost(SLOWER)))
}

/// Returns the duration of a copy of `bytes` bytes, in microseconds.
fn copy(bytes: usize) -> f64 {
    let from = vec![7_u8; bytes];
    let mut to = vec![0_u8; bytes];
    let times = (0..COPIES).map(|_| {
        let began = Instant::now();
        // Without `black_box`, the compiler could remove the copy, whose result is never read.
        black_box(&mut to).copy_from_slice(black_box(&from));
        began.elapsed()
    });
    micros(median(times.collect()))
}
