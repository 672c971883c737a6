//! Agents that begin a session, work in it, and delete it when it is done: the number of sessions stays.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use palimpsest_proto::context::v1::DeleteSessionRequest;
use palimpsest_tests::say::{assistant_call, prepare, result, user};
use palimpsest_tests::{Array, Server, name};
use tokio::task::JoinSet;

/// Agents at one time.
const AGENTS: u64 = 8;
/// Turns of a session until it is deleted.
const TURNS: u64 = 60;
/// Between turns: a service that is never idle shows how fast it is, and not whether it leaks.
const PAUSE: Duration = Duration::from_millis(10);

/// The load of one server.
pub(crate) struct Load {
    agents: JoinSet<()>,
    stop: Arc<AtomicBool>,
    turns: Arc<AtomicU64>,
    latencies: Arc<Mutex<Vec<Duration>>>,
}

impl Load {
    pub(crate) async fn start(server: &Server) -> Self {
        let mut load = Self {
            agents: JoinSet::new(),
            stop: Arc::default(),
            turns: Arc::default(),
            latencies: Arc::default(),
        };
        for number in 0..AGENTS {
            let agent = Agent {
                context: server.context().await,
                sessions: server.sessions().await,
                number,
                stop: Arc::clone(&load.stop),
                turns: Arc::clone(&load.turns),
                latencies: Arc::clone(&load.latencies),
            };
            load.agents.spawn(agent.work());
        }
        load
    }

    /// The latencies since the last look, sorted.
    pub(crate) fn take(&self) -> Vec<Duration> {
        let mut latencies = std::mem::take(&mut *self.latencies.lock().unwrap());
        latencies.sort_unstable();
        latencies
    }

    /// Ends it; returns how many turns there were.
    pub(crate) async fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.agents.join_all().await;
        self.turns.load(Ordering::Relaxed)
    }
}

struct Agent {
    context: palimpsest_tests::Context,
    sessions: palimpsest_tests::Sessions,
    number: u64,
    stop: Arc<AtomicBool>,
    turns: Arc<AtomicU64>,
    latencies: Arc<Mutex<Vec<Duration>>>,
}

impl Agent {
    async fn work(mut self) {
        for life in 0.. {
            let session = name(&format!("soak-{}-{life}", self.number));
            let mut array = Array::default();
            for turn in 0..TURNS {
                if self.stop.load(Ordering::Relaxed) {
                    return;
                }
                self.turn(&session, &mut array, turn).await;
                tokio::time::sleep(PAUSE).await;
            }
            let request = DeleteSessionRequest {
                session,
                ..DeleteSessionRequest::default()
            };
            self.sessions.delete_session(request).await.unwrap();
        }
    }

    /// A question now and then, a call and its result: short, long, and now and then too long to be shown.
    async fn turn(&mut self, session: &str, array: &mut Array, turn: u64) {
        let id = format!("call_{turn}");
        let lines = match turn % 10 {
            0 => 3_000,
            1..=4 => 200,
            _ => 10,
        };
        let said = format!("what the tool says in turn {turn}\n").repeat(lines);
        let mut messages = vec![assistant_call(&id), result(&id, &said)];
        if turn.is_multiple_of(6) {
            messages.insert(0, user(&format!("and now do step {turn}")));
        }
        let mut request = prepare(session, messages);
        request.known_etag = array.etag.clone();
        let began = Instant::now();
        let reply = self.context.prepare_context(request).await.unwrap();
        self.latencies.lock().unwrap().push(began.elapsed());
        array.take(reply.get_ref());
        self.turns.fetch_add(1, Ordering::Relaxed);
    }
}
