//! Measures a turn in a session of about 200,000 tokens with every level on and without a disk. Results are stored and
//! cleared, and spans are staged and collapsed.
//!
//! The bench only prints and never fails a build. The handlers run in this process and the log is in memory, so the
//! figures consist of deciding and rendering.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench prints, and stops where it cannot go on"
)]

use std::sync::Arc;
use std::time::Duration;

use palimpsest_conformance::MemoryLog;
use palimpsest_core::ids::SessionKey;
use palimpsest_core::limits::Limits;
use palimpsest_core::policy::Overlay;
use palimpsest_engine::clock::{Clock, IdSource, SystemClock};
use palimpsest_engine::sessions::{DefaultPolicies, Sessions};
use palimpsest_proto::context::v1::context_service_server::ContextService as _;
use palimpsest_proto::context::v1::{
    CompactRequest, Format, Level, MessageInput, Payload, PrepareContextRequest,
    PrepareContextResponse, Target, message_input,
};
use palimpsest_server::grpc::Mutations;
use palimpsest_server::services::{ContextHandlers, Service};
use palimpsest_store::blobs::Blobs;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tonic::Request;

const SESSION: &str = "projects/bench/sessions/levels";
const TOKENS: u32 = 200_000;
const TURNS: usize = 600;
const MAX_ROUNDS: usize = 10_000;
const LIMIT_US: f64 = 200.0;
const POLICY: &str = "
    preset = \"claude-code\"
    snip = { nudge = true, wrap_interjections = true }
    microcompact.time.enabled = true
    microcompact.cached.enabled = true
    microcompact.size.enabled = true
    collapse = { enabled = true, max_risk = 1.0 }
";

struct Bench {
    sessions: Arc<Sessions>,
    handlers: ContextHandlers,
    clock: Arc<dyn Clock>,
    window_tokens: u32,
    cache_edits: bool,
    etag: Vec<u8>,
    next: usize,
}

impl Bench {
    fn new() -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let overlay = Overlay::from_toml(POLICY).unwrap();
        let sessions = Sessions::new(
            Arc::new(MemoryLog::new()),
            Arc::clone(&clock),
            Arc::new(Limits::default()),
            DefaultPolicies::new(&overlay, []).unwrap(),
            1 << 30,
        );
        let blobs = Arc::new(Blobs::in_memory());
        let sessions = sessions.with_blobs(Arc::clone(&blobs));
        let ids = Arc::new(IdSource::random(Arc::clone(&clock)));
        let sessions = Arc::new(sessions);
        let service = Service::new(
            Arc::clone(&sessions),
            blobs,
            ids,
            Mutations::default(),
            CancellationToken::new(),
        );
        Self {
            sessions,
            handlers: ContextHandlers(service),
            clock,
            window_tokens: 320_000,
            cache_edits: false,
            etag: Vec::new(),
            next: 0,
        }
    }

    /// Calls `PrepareContext`. Returns the reply and the duration.
    async fn prepare(&mut self, messages: Vec<MessageInput>) -> (PrepareContextResponse, Duration) {
        let request = PrepareContextRequest {
            session: SESSION.into(),
            messages,
            known_etag: self.etag.clone().into(),
            cache_edits_supported: self.cache_edits,
            target: Some(Target {
                window_tokens: Some(self.window_tokens),
                ..Target::default()
            }),
            ..PrepareContextRequest::default()
        };
        let start = self.clock.monotonic();
        let reply = self.handlers.prepare_context(Request::new(request)).await;
        let took = self.clock.monotonic().saturating_sub(start);
        let reply = reply.unwrap().into_inner();
        self.etag = reply.etag.to_vec();
        (reply, took)
    }

    /// Returns a call and its result. Every tenth round begins with a user input, and every fiftieth result is large.
    fn round(&mut self) -> Vec<MessageInput> {
        let n = self.next;
        self.next += 1;
        let id = format!("call_{n}");
        let call = json!({"type": "tool_use", "id": id, "name": "Read", "input": {"path": format!("/src/{n}.rs")}});
        let lines = if n % 50 == 25 { 4_000 } else { 60 };
        let said: Vec<String> = (0..lines)
            .map(|k| format!("line {} of {n}\n", k * 7_919))
            .collect();
        let said = said.concat();
        let result = json!({"type": "tool_result", "tool_use_id": id, "content": said});
        let mut said = vec![
            message(&json!({"role": "assistant", "content": [call]})),
            message(&json!({"role": "user", "content": [result]})),
        ];
        if n.is_multiple_of(10) {
            said.insert(
                0,
                message(&json!({"role": "user", "content": format!("question {n}")})),
            );
            said.insert(
                0,
                message(&json!({"role": "assistant", "content": format!("answer {n}")})),
            );
        }
        said
    }

    async fn compact(&self, level: Level, target_tokens: u32) {
        let request = CompactRequest {
            session: SESSION.into(),
            level: level.into(),
            target_tokens: Some(target_tokens),
            ..CompactRequest::default()
        };
        self.handlers.compact(Request::new(request)).await.unwrap();
    }

    /// Appends rounds until the view has `tokens` tokens.
    async fn grow(&mut self, tokens: u32) -> u32 {
        for _ in 0..MAX_ROUNDS {
            let round = self.round();
            let (reply, _) = self.prepare(round).await;
            let now = reply.tokens.unwrap().total_tokens;
            if now >= tokens {
                return now;
            }
        }
        panic!("the view does not grow to {tokens} tokens");
    }

    /// Returns the median and the 99th percentile of some turns, in microseconds.
    async fn time(&mut self) -> (f64, f64) {
        let mut times = Vec::with_capacity(TURNS);
        for turn in 0..TURNS {
            // Messages that are appended between two calls are not part of the measurement.
            let role = ["user", "assistant"][turn % 2];
            let said = json!({"role": role, "content": "and so on"});
            times.push(self.prepare(vec![message(&said)]).await.1);
        }
        times.sort_unstable();
        let micros = |at: usize| times[at].as_secs_f64() * 1e6;
        (micros(TURNS / 2), micros(TURNS * 99 / 100))
    }
}

fn message(json: &Value) -> MessageInput {
    MessageInput {
        content: Some(message_input::Content::Payload(Payload {
            format: Format::AnthropicMessages.into(),
            json: json.to_string().into(),
        })),
        ..MessageInput::default()
    }
}

async fn run() {
    let mut bench = Bench::new();
    // Each growth overshoots the final size, so that the level after it has content to remove.
    bench.grow(TOKENS * 5 / 4).await;
    bench.compact(Level::Microcompact, TOKENS / 4).await;
    bench.grow(TOKENS * 5 / 4).await;
    bench.compact(Level::Collapse, TOKENS * 9 / 10).await;
    let tokens = bench.grow(TOKENS).await;
    let key = SessionKey::parse(SESSION).unwrap();
    // Waits for the staging pass that follows the last reply.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let told = bench.sessions.read(&key, |session| {
        (
            session.transcript().len(),
            session.sealed().pieces().len(),
            session.stored_results().iter().len(),
            session.spans().staged().len(),
            session.placeholders().count(),
        )
    });
    let (messages, pieces, stored, staged, folded) = told.await.unwrap();
    println!(
        "{tokens} tokens: {messages} messages, {pieces} pieces, {stored} results stored, {staged} spans staged, {folded} folded"
    );
    let (p50, p99) = bench.time().await;
    println!(
        "prepare, all levels on and none due: {p50:.0} µs median, {p99:.0} µs p99 (limit {LIMIT_US:.0} µs)"
    );
    bench.cache_edits = true;
    let (p50, p99) = bench.time().await;
    println!("the same with edits of the provider's cache: {p50:.0} µs median, {p99:.0} µs p99");
    bench.cache_edits = false;
    // With the smaller window the view is under pressure, so the staged spans are folded.
    bench.window_tokens = 200_000;
    // A new window takes effect when the next message is served.
    let said = message(&json!({"role": "user", "content": "and on"}));
    let before = bench.prepare(vec![said]).await.1;
    println!(
        "the prepare that folds under pressure: {:.0} µs",
        before.as_secs_f64() * 1e6
    );
    let (p50, p99) = bench.time().await;
    println!("prepare, the window full: {p50:.0} µs median, {p99:.0} µs p99");
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(run());
}
