//! Does a long session cost more than a short one? Every row is a ratio with its limit beside it,
//! measured in rounds that alternate, because machines are shared and noisy.
//!
//! Nothing here fails a build: it prints. The handlers run in process, so that the wire's own cost,
//! which is the same for both, does not hide the difference.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a bench prints, and stops where it cannot go on"
)]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use palimpsest_core::ids::SessionKey;
use palimpsest_core::limits::Limits;
use palimpsest_proto::context::v1::context_service_server::ContextService as _;
use palimpsest_proto::context::v1::{
    AppendMessagesRequest, Format, MessageInput, Payload, PrepareContextRequest, message_input,
};
use palimpsest_server::clock::{Clock, IdSource, SystemClock};
use palimpsest_server::grpc::Mutations;
use palimpsest_server::services::{ContextHandlers, Service};
use palimpsest_server::sessions::{Policies, Sessions};
use palimpsest_store::SessionLog;
use palimpsest_store::blobs::Blobs;
use palimpsest_store::memory::MemoryLog;
use palimpsest_store::sled::{SledLog, SledOptions};
use tokio_util::sync::CancellationToken;
use tonic::Request;

const SHORT: usize = 10;
const LONG: usize = 10_000;
const MESSAGE_BYTES: usize = 1_000;
const ROUNDS: usize = 7;
const CALLS_A_ROUND: usize = 400;

struct Bench {
    sessions: Arc<Sessions>,
    handlers: ContextHandlers,
    clock: Arc<dyn Clock>,
}

impl Bench {
    fn new(log: Arc<dyn SessionLog>) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let sessions = Sessions::new(
            log,
            Arc::clone(&clock),
            Arc::new(Limits::default()),
            Policies::default(),
            1 << 30,
        );
        let ids = Arc::new(IdSource::random(Arc::clone(&clock)));
        let sessions = Arc::new(sessions);
        let service = Service::new(
            Arc::clone(&sessions),
            Arc::new(Blobs::open("memory://").unwrap()),
            ids,
            Mutations::default(),
            CancellationToken::new(),
        );
        Self {
            sessions,
            handlers: ContextHandlers(service),
            clock,
        }
    }

    async fn grow(&self, session: &str, messages: usize) {
        let mut left = messages;
        let mut turn = 0;
        while left > 0 {
            let batch = left.min(500);
            let messages = (0..batch).map(|n| message(turn + n)).collect();
            self.append(session, messages).await;
            turn += batch;
            left -= batch;
        }
        self.prepare(session, vec![], &[]).await;
    }

    async fn append(&self, session: &str, messages: Vec<MessageInput>) {
        let request = AppendMessagesRequest {
            session: session.into(),
            messages,
            ..AppendMessagesRequest::default()
        };
        self.handlers
            .append_messages(Request::new(request))
            .await
            .unwrap();
    }

    async fn prepare(&self, session: &str, messages: Vec<MessageInput>, etag: &[u8]) -> Vec<u8> {
        let request = PrepareContextRequest {
            session: session.into(),
            messages,
            known_etag: etag.to_vec().into(),
            ..PrepareContextRequest::default()
        };
        let reply = self
            .handlers
            .prepare_context(Request::new(request))
            .await
            .unwrap();
        reply.into_inner().etag.to_vec()
    }

    /// How long each of some appends of one message takes.
    async fn time_appends(&self, sessions: &[String]) -> Vec<Duration> {
        let mut times = Vec::with_capacity(CALLS_A_ROUND);
        for n in 0..CALLS_A_ROUND {
            let session = &sessions[n % sessions.len()];
            let messages = vec![message(2 * n)];
            let start = self.clock.monotonic();
            self.append(session, messages).await;
            times.push(self.clock.monotonic().saturating_sub(start));
        }
        times
    }

    /// How long each of some turns takes: two messages in, the delta out.
    async fn time_deltas(&self, sessions: &[String]) -> Vec<Duration> {
        let mut etags = Vec::new();
        for session in sessions {
            etags.push(self.prepare(session, vec![], &[]).await);
        }
        let mut times = Vec::with_capacity(CALLS_A_ROUND);
        for n in 0..CALLS_A_ROUND {
            let at = n % sessions.len();
            let messages = vec![message(1), message(2)];
            let start = self.clock.monotonic();
            etags[at] = self.prepare(&sessions[at], messages, &etags[at]).await;
            times.push(self.clock.monotonic().saturating_sub(start));
        }
        times
    }
}

/// One message of a thousand bytes, the user's and the model's in turn.
fn message(n: usize) -> MessageInput {
    let role = if n.is_multiple_of(2) {
        "user"
    } else {
        "assistant"
    };
    // Digits of a counter, so that no two messages are alike and zstd finds as much as in prose.
    let text: String = (0..)
        .map(|k| format!("{} ", n * 7_919 + k * 104_729))
        .flat_map(|w| w.chars().collect::<Vec<_>>())
        .take(MESSAGE_BYTES)
        .collect();
    let json = format!(r#"{{"role":"{role}","content":"{text}"}}"#);
    MessageInput {
        content: Some(message_input::Content::Payload(Payload {
            format: Format::AnthropicMessages.into(),
            json: json.into(),
        })),
        ..MessageInput::default()
    }
}

fn names(kind: &str, count: usize) -> Vec<String> {
    (0..count)
        .map(|n| format!("projects/bench/sessions/{kind}-{n}"))
        .collect()
}

fn quantile(times: &mut [Duration], share: f64) -> Duration {
    times.sort_unstable();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an index"
    )]
    let at = ((times.len() as f64 - 1.0) * share) as usize;
    times[at]
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// One row: long against short, the median of the rounds' ratios, and the worst.
async fn row(bench: &Bench, name: &str, deltas: bool) {
    let long = names("long", 1);
    let (mut short_us, mut long_us, mut p50, mut p99) = (vec![], vec![], vec![], vec![]);
    for round in 0..ROUNDS {
        // Short sessions stay short: each round has new ones.
        let short = names(&format!("{}-{round}-{deltas}", name.len()), 100);
        for session in &short {
            bench.grow(session, SHORT).await;
        }
        let (mut of_short, mut of_long) = if deltas {
            (
                bench.time_deltas(&short).await,
                bench.time_deltas(&long).await,
            )
        } else {
            (
                bench.time_appends(&short).await,
                bench.time_appends(&long).await,
            )
        };
        short_us.push(micros(quantile(&mut of_short, 0.5)));
        long_us.push(micros(quantile(&mut of_long, 0.5)));
        p50.push(long_us[round] / short_us[round]);
        p99.push(micros(quantile(&mut of_long, 0.99)) / micros(quantile(&mut of_short, 0.99)));
    }
    println!(
        "{name:<44} {:>9.1} {:>9.1} {:>8.2} {:>8.2} {:>7}",
        median(&mut short_us),
        median(&mut long_us),
        median(&mut p50),
        median(&mut p99),
        "1.50"
    );
}

async fn growth(name: &str, log: Arc<dyn SessionLog>) {
    let bench = Bench::new(log);
    bench.grow(&names("long", 1)[0], LONG).await;
    row(&bench, &format!("append 1 KB, {name}"), false).await;
    row(&bench, &format!("prepare, delta of 2 KB, {name}"), true).await;
}

fn open(dir: &Path) -> Arc<dyn SessionLog> {
    Arc::new(SledLog::open(&SledOptions::new(dir)).unwrap())
}

/// Loads a long session into a process that has never seen it: two messages came with each call, as
/// agents send them.
async fn cold_open(log: Arc<dyn SessionLog>) {
    let session = "projects/bench/sessions/cold";
    let bench = Bench::new(Arc::clone(&log));
    let mut etag = vec![];
    for n in 0..LONG / 2 {
        let messages = vec![message(2 * n), message(2 * n + 1)];
        etag = bench.prepare(session, messages, &etag).await;
    }
    let mut rows = [
        ("open", vec![]),
        ("then a delta", vec![]),
        ("then all of it", vec![]),
    ];
    for _ in 0..ROUNDS {
        let bench = Bench::new(Arc::clone(&log));
        let key = SessionKey::parse(session).unwrap();
        let mut start = bench.clock.monotonic();
        let mut lap = |times: &mut Vec<Duration>| {
            let now = bench.clock.monotonic();
            times.push(now.saturating_sub(std::mem::replace(&mut start, now)));
        };
        let [open, delta, all] = &mut rows;
        bench.sessions.read(&key, |_| ()).await.unwrap();
        lap(&mut open.1);
        bench.prepare(session, vec![], &etag).await;
        lap(&mut delta.1);
        bench.prepare(session, vec![], b"unknown").await;
        lap(&mut all.1);
    }
    println!("\ncold open of {LONG} messages, sled (limit for the open: 20 ms)");
    for (name, mut times) in rows {
        let millis = micros(quantile(&mut times, 0.5)) / 1e3;
        println!("{name:<44} {millis:>8.1} ms");
    }
}

/// The median of a delta in a session of about 200,000 tokens, without a disk.
async fn delta_of_200k_tokens() {
    let bench = Bench::new(Arc::new(MemoryLog::new()));
    let session = names("tokens", 1);
    bench.grow(&session[0], 500).await;
    let mut times = bench.time_deltas(&session).await;
    let median = micros(quantile(&mut times, 0.5));
    println!(
        "prepare, delta, session of 200K tokens, no disk: {median:.0} µs median (limit 200 µs)"
    );
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        println!(
            "{:<44} {:>9} {:>9} {:>8} {:>8} {:>7}",
            "", "10 µs", "10,000 µs", "p50 x", "p99 x", "limit"
        );
        growth("no disk", Arc::new(MemoryLog::new())).await;
        let dir = tempfile::tempdir().unwrap();
        let log = open(dir.path());
        growth("sled", Arc::clone(&log)).await;
        cold_open(log).await;
        delta_of_200k_tokens().await;
    });
}
