//! Agents that create a session, use it, and delete it at its end. The number of sessions stays constant.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use palimpsest_proto::context::v1::DeleteSessionRequest;
use palimpsest_tests::say::{assistant_call, prepare, result, user};
use palimpsest_tests::{Array, Server, name};
use tokio::task::JoinSet;

/// Number of concurrent agents.
const AGENTS: u64 = 8;
/// Turns per session.
const TURNS: u64 = 60;
/// Pause between turns. A leak is visible only if the service is not saturated.
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

    /// Returns the latencies since the last call, sorted.
    pub(crate) fn take(&self) -> Vec<Duration> {
        let mut latencies = std::mem::take(&mut *self.latencies.lock().unwrap());
        latencies.sort_unstable();
        latencies
    }

    /// Stops the load and returns the number of turns.
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

    /// Takes one turn: an occasional question, a call and its result. Results are short or long, and some exceed the
    /// limit and are stored.
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
