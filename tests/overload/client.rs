//! Closed-loop callers, which wait for each answer, and open-loop callers, which call at a fixed rate.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use palimpsest_proto::context::v1::{
    Format, MessageInput, Payload, PrepareContextRequest, message_input,
};
use palimpsest_tests::{Context, Server};
use tokio::sync::mpsc;
use tonic::Code;

/// Number of connections of all callers.
const CONNECTIONS: usize = 8;
/// Minimum number of open sessions, and turns per session. A completed session is replaced by a new one, so that memory
/// does not grow by itself.
const SESSIONS: u64 = 512;
const TURNS: u64 = 20;
/// The deadline of a call.
const DEADLINE: Duration = Duration::from_secs(5);

/// The outcomes of the calls of a phase.
#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) done: Vec<Duration>,
    pub(crate) shed: u64,
    pub(crate) failed: u64,
    pub(crate) took: Duration,
}

impl Outcome {
    /// Returns the completed calls per second.
    pub(crate) fn rate(&self) -> f64 {
        self.done.len() as f64 / self.took.as_secs_f64()
    }

    /// Returns a quantile of the call durations, in milliseconds.
    pub(crate) fn quantile_ms(&self, quantile: f64) -> f64 {
        let mut sorted = self.done.clone();
        sorted.sort();
        let at = ((sorted.len() as f64 * quantile) as usize).min(sorted.len().saturating_sub(1));
        sorted.get(at).map_or(0.0, |t| t.as_secs_f64() * 1_000.0)
    }

    fn count(&mut self, took: Duration, answer: Result<(), Code>) {
        match answer {
            Ok(()) => self.done.push(took),
            Err(Code::ResourceExhausted) => self.shed += 1,
            Err(_) => self.failed += 1,
        }
    }

    /// Combines the outcomes of two consecutive phases.
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.done.extend(other.done);
        self.shed += other.shed;
        self.failed += other.failed;
        self.took += other.took;
        self
    }
}

/// The callers of a server. They are agents, and each call is one turn. After a rejected call, the agent repeats the
/// same turn, so that the work per turn does not depend on overload.
pub(crate) struct Callers {
    clients: Vec<Context>,
    calls: AtomicU64,
    sessions: AtomicU64,
    words: String,
    /// Agents without a call in flight, longest idle first.
    idle: Mutex<VecDeque<Agent>>,
}

/// An agent within its session.
struct Agent {
    session: u64,
    turn: u64,
    etag: Bytes,
}

impl Callers {
    /// Creates agents whose tools return about `bytes` bytes.
    pub(crate) async fn of(server: &Server, bytes: usize) -> Arc<Self> {
        let mut clients = Vec::new();
        for _ in 0..CONNECTIONS {
            clients.push(server.context().await);
        }
        let words = "some words of a tool's answer ";
        let agent = |session| Agent {
            session,
            // Agents start at different turns, so that sessions do not all end at the same time.
            turn: session % TURNS,
            etag: Bytes::new(),
        };
        Arc::new(Self {
            clients,
            calls: AtomicU64::new(0),
            sessions: AtomicU64::new(SESSIONS),
            words: words.repeat(bytes.div_ceil(words.len())),
            idle: Mutex::new((0..SESSIONS).map(agent).collect()),
        })
    }

    /// Returns an idle agent. Creates one if all agents are in calls.
    fn agent(&self) -> Agent {
        let idle = self.idle.lock().unwrap().pop_front();
        idle.unwrap_or_else(|| self.new_session())
    }

    fn new_session(&self) -> Agent {
        Agent {
            session: self.sessions.fetch_add(1, Relaxed),
            turn: 0,
            etag: Bytes::new(),
        }
    }

    /// Returns the messages of a turn: a response and a tool result.
    fn messages(&self, agent: &Agent) -> Vec<MessageInput> {
        let asked = "{\"role\":\"user\",\"content\":\"Look at the files.\"}".to_owned();
        let number = agent.turn;
        let said = format!(
            "{{\"role\":\"assistant\",\"content\":[{{\"type\":\"text\",\"text\":\"I read the next one.\"}},\
             {{\"type\":\"tool_use\",\"id\":\"t{number}\",\"name\":\"read\",\"input\":{{\"path\":\"f{number}\"}}}}]}}"
        );
        let answered = format!(
            "{{\"role\":\"user\",\"content\":[{{\"type\":\"tool_result\",\"tool_use_id\":\"t{number}\",\
             \"content\":\"{}\"}}]}}",
            self.words
        );
        let asked = agent.etag.is_empty().then_some(asked);
        let messages = asked.into_iter().chain([said, answered]);
        let input = |json: String| MessageInput {
            content: Some(message_input::Content::Payload(Payload {
                format: Format::AnthropicMessages.into(),
                json: json.into(),
            })),
            ..MessageInput::default()
        };
        messages.map(input).collect()
    }

    async fn call(&self) -> (Duration, Result<(), Code>) {
        let mut agent = self.agent();
        let mut request = tonic::Request::new(PrepareContextRequest {
            session: format!("projects/bench/sessions/s{}", agent.session),
            known_etag: agent.etag.clone(),
            messages: self.messages(&agent),
            ..PrepareContextRequest::default()
        });
        request.set_timeout(DEADLINE);
        let number = self.calls.fetch_add(1, Relaxed);
        let mut client = self.clients[number as usize % CONNECTIONS].clone();
        let sent = Instant::now();
        let answer = client.prepare_context(request).await;
        let took = sent.elapsed();
        let answer = match answer {
            Ok(reply) => {
                agent.etag = reply.into_inner().etag;
                agent.turn += 1;
                if agent.turn >= TURNS {
                    agent = self.new_session();
                }
                Ok(())
            }
            Err(status) => Err(status.code()),
        };
        let mut idle = self.idle.lock().unwrap();
        // Drops the agents that were created because all others were in calls.
        if idle.len() < SESSIONS as usize {
            idle.push_back(agent);
        }
        (took, answer)
    }

    /// Runs `callers` closed-loop callers for `time`.
    pub(crate) async fn closed(self: &Arc<Self>, callers: usize, time: Duration) -> Outcome {
        let began = Instant::now();
        let tasks = (0..callers).map(|_| {
            let this = Arc::clone(self);
            tokio::spawn(async move {
                let mut outcome = Outcome::default();
                while began.elapsed() < time {
                    let (took, answer) = this.call().await;
                    if answer.is_err() {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                    outcome.count(took, answer);
                }
                outcome
            })
        });
        let mut all = Outcome::default();
        for task in tasks.collect::<Vec<_>>() {
            all = all.and(task.await.unwrap());
        }
        all.took = began.elapsed();
        all
    }

    /// Makes calls at a fixed rate, regardless of earlier calls.
    pub(crate) async fn open(self: &Arc<Self>, rate: f64, time: Duration) -> Outcome {
        let (sender, mut results) = mpsc::unbounded_channel();
        let began = Instant::now();
        let mut count = 0_u64;
        while began.elapsed() < time {
            let due = (began.elapsed().as_secs_f64() * rate) as u64;
            while count < due {
                count += 1;
                let (this, results) = (Arc::clone(self), sender.clone());
                tokio::spawn(async move {
                    let _ = results.send(this.call().await);
                });
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let mut outcome = Outcome {
            took: began.elapsed(),
            ..Outcome::default()
        };
        drop(sender);
        while let Some((took, answer)) = results.recv().await {
            outcome.count(took, answer);
        }
        outcome
    }
}
