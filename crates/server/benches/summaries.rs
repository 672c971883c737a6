//! Measures the cost of session memory and its lag: 500 sessions that grow concurrently, with and without a worker, in
//! alternating rounds.
//!
//! The bench only prints and never fails a build. Handlers and worker run in this process on the embedded store.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench prints, and stops where it cannot go on"
)]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use palimpsest_core::command::{memory_due_at, memory_update_due_at};
use palimpsest_core::event::Event;
use palimpsest_core::ids::{Revision, SessionKey, Timestamp};
use palimpsest_core::limits::Limits;
use palimpsest_core::session::Session;
use palimpsest_engine::clock::{Clock, IdSource, SystemClock};
use palimpsest_engine::sessions::{DefaultPolicies, Sessions};
use palimpsest_proto::context::v1::context_service_server::ContextService as _;
use palimpsest_proto::context::v1::{
    AppendMessagesRequest, Format, MessageInput, Payload, message_input,
};
use palimpsest_server::grpc::Mutations;
use palimpsest_server::services::{ContextHandlers, Service};
use palimpsest_store::Store;
use palimpsest_store::StoreId;
use palimpsest_store::blobs::{BlobOwner, Blobs};
use palimpsest_store::sled::{SledLog, SledOptions};
use palimpsest_worker::{WorkerConfig, sessions};
use serde_json::{Value, json};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;
use tonic::Request;

const SESSIONS: usize = 500;
const ROUNDS: usize = 6;
/// Turns per session and round. After all rounds, a session has about 20,000 tokens.
const TURNS_A_ROUND: usize = 4;
/// Number of concurrent callers.
const CALLERS: usize = 16;
/// Maximum lag of session memory behind its trigger.
const MAX_LAG: Duration = Duration::from_secs(5);

struct Bench {
    sessions: Arc<Sessions>,
    handlers: ContextHandlers,
    clock: Arc<dyn Clock>,
    worker: Option<JoinHandle<()>>,
}

impl Bench {
    fn new(folder: &Path, with_worker: bool) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let log: Arc<dyn Store> =
            Arc::new(SledLog::open(&SledOptions::new(folder.join("log"))).unwrap());
        let blobs = folder.join("blobs");
        let blobs = Arc::new(
            Blobs::open(&blobs.to_string_lossy())
                .unwrap()
                .bind(BlobOwner {
                    store: StoreId::from_bytes([1; 16]),
                    adopts: true,
                    takes_over_from: None,
                    restored_from: None,
                }),
        );
        let limits = Arc::new(Limits::default());
        let policies = DefaultPolicies::default();
        let sessions = Sessions::new(log, Arc::clone(&clock), limits, policies, 1 << 30);
        let sessions = Arc::new(sessions.with_blobs(Arc::clone(&blobs)));
        let ids = Arc::new(IdSource::random(Arc::clone(&clock)));
        let worker = with_worker.then(|| {
            let config = WorkerConfig::default();
            let worker = sessions::worker(&sessions, &blobs, &clock, &ids, &config, None);
            tokio::spawn(worker.run(CancellationToken::new()))
        });
        let service = Service::new(
            Arc::clone(&sessions),
            blobs,
            ids,
            Mutations::default(),
            CancellationToken::new(),
        )
        .with_worker(with_worker);
        Self {
            sessions,
            handlers: ContextHandlers(service),
            clock,
            worker,
        }
    }

    async fn append(&self, session: &str, messages: Vec<MessageInput>) -> Duration {
        let request = AppendMessagesRequest {
            session: session.into(),
            messages,
            ..AppendMessagesRequest::default()
        };
        let start = self.clock.monotonic();
        let reply = self.handlers.append_messages(Request::new(request)).await;
        reply.unwrap();
        self.clock.monotonic().saturating_sub(start)
    }

    /// Runs a round of turns in all sessions. Returns the duration of each append.
    async fn round(self: &Arc<Self>, round: usize) -> Vec<Duration> {
        let mut callers = JoinSet::new();
        for caller in 0..CALLERS {
            let bench = Arc::clone(self);
            callers.spawn(async move {
                let mut times = Vec::new();
                for turn in 0..TURNS_A_ROUND {
                    // Each caller has its own sessions, so no append waits for another one of its session.
                    for session in (caller..SESSIONS).step_by(CALLERS) {
                        let messages = messages(round * TURNS_A_ROUND + turn, 1_600);
                        times.push(bench.append(&name(session), messages).await);
                    }
                }
                times
            });
        }
        callers.join_all().await.concat()
    }

    /// Waits until no update of session memory is due. Returns the duration.
    async fn caught_up(&self) -> Duration {
        let start = self.clock.monotonic();
        for session in 0..SESSIONS {
            self.until_noted(&name(session)).await;
        }
        self.clock.monotonic().saturating_sub(start)
    }

    async fn until_noted(&self, session: &str) {
        let key = SessionKey::parse(session).unwrap();
        let settled = |session: &Session| {
            let now = self.clock.now();
            let is_due = memory_due_at(session, now).is_some_and(|due| due <= now);
            !is_due && session.memory().running.is_none()
        };
        while !self.sessions.read(&key, settled).await.unwrap() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Returns the maximum lag of a session's memory and the number of updates, according to its log.
    async fn lag(&self, session: &str) -> (Duration, usize) {
        let key = SessionKey::parse(session).unwrap();
        let all = self.sessions.events(&key, Revision::new(0), usize::MAX);
        let mut events = all.await.unwrap().into_iter();
        let (_, first) = events.next().unwrap();
        let Event::SessionCreated(created) = &first.event else {
            panic!("a log begins with its session");
        };
        let mut session = Session::create(key, first.at, created);
        let (mut due_since, mut worst, mut updates): (Option<Timestamp>, _, _) = (None, 0, 0);
        for (_, recorded) in events {
            session.apply(&recorded).unwrap();
            let is_due = memory_update_due_at(&session, recorded.at).is_some();
            // An update is due from the event that makes it due until the event after which it is not.
            due_since = match due_since {
                Some(since) if !is_due => {
                    worst = worst.max(recorded.at.millis_since(since));
                    updates += 1;
                    None
                }
                None if is_due => Some(recorded.at),
                same => same,
            };
        }
        (Duration::from_millis(worst), updates)
    }
}

fn name(session: usize) -> String {
    format!("projects/bench/sessions/s-{session}")
}

/// Returns a turn: a user input, a tool call with its result, and a response.
fn messages(turn: usize, result_bytes: usize) -> Vec<MessageInput> {
    let id = format!("call_{turn}");
    let path = format!("/src/module_{}.rs", turn % 17);
    let asks = format!("Now make module {turn} return an error instead of panicking.");
    let says = format!("I read {path} first.");
    let call = json!({"type": "tool_use", "id": id, "name": "Read", "input": {"file_path": path}});
    let lines = (0..).map(|line| format!("{line}  let value_{line} = {};\n", line * 7_919 + turn));
    let mut text = String::new();
    for line in lines {
        text.push_str(&line);
        if text.len() >= result_bytes {
            break;
        }
    }
    let result = json!({"type": "tool_result", "tool_use_id": id, "content": text});
    let done = format!("Module {turn} returns an error now, and its tests pass.");
    let all = [
        json!({"role": "user", "content": asks}),
        json!({"role": "assistant", "content": [{"type": "text", "text": says}, call]}),
        json!({"role": "user", "content": [result]}),
        json!({"role": "assistant", "content": done}),
    ];
    all.iter().map(message).collect()
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

/// Returns the median and the 99th percentile, in milliseconds.
fn quantiles(mut times: Vec<Duration>) -> (f64, f64) {
    times.sort_unstable();
    let millis = |at: usize| times[at.min(times.len() - 1)].as_secs_f64() * 1e3;
    (millis(times.len() / 2), millis(times.len() * 99 / 100))
}

async fn grow() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let idle = Arc::new(Bench::new(folders[0].path(), false));
    let busy = Arc::new(Bench::new(folders[1].path(), true));
    let mut ratios = Vec::new();
    println!("{SESSIONS} sessions grow, {CALLERS} callers: append of a turn, ms");
    println!(
        "{:<8}{:>10}{:>10}{:>14}{:>14}",
        "", "p50", "p99", "p50 worker", "p99 worker"
    );
    for round in 0..ROUNDS {
        let (p50, p99) = quantiles(idle.round(round).await);
        let (with_p50, with_p99) = quantiles(busy.round(round).await);
        println!("round {round:<2}{p50:>10.2}{p99:>10.2}{with_p50:>14.2}{with_p99:>14.2}");
        ratios.push(with_p99 / p99);
    }
    // Single rounds vary with the disk, so the median of the ratios is compared.
    ratios.sort_by(f64::total_cmp);
    let (median, worst) = (ratios[ratios.len() / 2], ratios[ratios.len() - 1]);
    println!("p99 with the worker: {median:.2} times that without, at worst {worst:.2} (limit 2)");
    let after = busy.caught_up().await;
    let (mut worst, mut updates) = (Duration::ZERO, 0);
    for session in 0..SESSIONS {
        let (lag, count) = busy.lag(&name(session)).await;
        worst = worst.max(lag);
        updates += count;
    }
    println!(
        "{updates} updates; the one that came last was {:.2} s behind its trigger (limit {:.0} s); \
         all were there {:.2} s after the last append",
        worst.as_secs_f64(),
        MAX_LAG.as_secs_f64(),
        after.as_secs_f64(),
    );
    if let Some(worker) = &busy.worker {
        worker.abort();
    }
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(grow());
}
