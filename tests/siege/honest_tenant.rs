//! The honest tenant: agents that work at a steady rate, and the record of all acknowledged turns.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use palimpsest_proto::context::v1::text_pattern::Pattern;
use palimpsest_proto::context::v1::{
    ListMessagesRequest, SearchMessagesRequest, TextPattern, WatchSessionRequest,
};
use palimpsest_tests::passing::is_passing;
use palimpsest_tests::say::{append, assistant, prepare, user, with_id};
use palimpsest_tests::tenant::with;
use palimpsest_tests::turns::Turns;
use palimpsest_tests::{Context, Sessions};
use tokio::task::JoinSet;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status};

use crate::latency::Latencies;
use crate::wire::outcome_of;

/// Number of agents, and the time between the turns of one.
const AGENTS: usize = 4;
const EVERY: Duration = Duration::from_millis(250);
/// Turns per session.
const TURNS: usize = 60;
/// Messages per turn.
const PARTS: u64 = 2;
/// The deadline of one attempt, the pause before the next, and the time after which an agent gives up a call.
const ATTEMPT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(50);
const TIMEOUT: Duration = Duration::from_mins(1);

/// The running agents.
pub(crate) struct HonestTenant {
    agents: JoinSet<Vec<Turns>>,
    stop: Arc<AtomicBool>,
}

impl HonestTenant {
    /// Starts the agents on the server at this endpoint.
    pub(crate) fn start(endpoint: &Endpoint, key: &str, latencies: &Arc<Latencies>) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let mut agents = JoinSet::new();
        for number in 0..AGENTS {
            // The channel connects with its first call, and again after each loss of the connection.
            let channel = endpoint.connect_lazy();
            let agent = Agent {
                context: Context::new(channel.clone()),
                sessions: Sessions::new(channel),
                key: key.to_owned(),
                latencies: Arc::clone(latencies),
                stop: Arc::clone(&stop),
                number,
            };
            agents.spawn(agent.work());
        }
        Self { agents, stop }
    }

    /// Stops each agent after its current call. Returns the acknowledged turns.
    pub(crate) async fn stop(self) -> Vec<Turns> {
        self.stop.store(true, Relaxed);
        self.agents.join_all().await.into_iter().flatten().collect()
    }
}

struct Agent {
    context: Context,
    sessions: Sessions,
    key: String,
    latencies: Arc<Latencies>,
    stop: Arc<AtomicBool>,
    number: usize,
}

impl Agent {
    async fn work(mut self) -> Vec<Turns> {
        let mut all = Vec::new();
        let mut ticks = tokio::time::interval(EVERY);
        // After a stall, missed ticks are not made up, so no burst of turns follows.
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        for life in 0.. {
            let session = format!("projects/honest/sessions/agent-{}-{life}", self.number);
            let mut turns = Turns::new(&session, PARTS);
            while turns.there().len() < TURNS {
                ticks.tick().await;
                if self.stop.load(Relaxed) {
                    all.push(turns);
                    return all;
                }
                self.turn(&mut turns).await;
            }
            all.push(turns);
        }
        all
    }

    /// Takes one turn: appends new messages, requests the view, and at intervals reads and searches the transcript.
    async fn turn(&mut self, turns: &mut Turns) {
        let number = turns.begin();
        let session = turns.session().to_owned();
        let said = [
            user(&format!("and now file {number}")),
            assistant(&format!("I have read file {number}.")),
        ];
        let messages: Vec<_> = turns
            .ids(number)
            .zip(said)
            .map(|(id, message)| with_id(&id, message))
            .collect();
        let (context, sessions) = (self.context.clone(), self.sessions.clone());
        let new = append(&session, messages);
        let appended = self.until_done("append", new, |request| {
            let mut client = context.clone();
            async move { client.append_messages(request).await }
        });
        // The outcome of the turn is unknown. `begin` returns the same turn again, with the same message ids.
        if !appended.await {
            return;
        }
        turns.done(number);
        let view = prepare(&session, Vec::new());
        self.until_done("prepare", view, |request| {
            let mut client = context.clone();
            async move { client.prepare_context(request).await }
        })
        .await;
        if number.is_multiple_of(2) {
            let list = ListMessagesRequest {
                session: session.clone(),
                page_size: 20,
                descending: true,
                ..ListMessagesRequest::default()
            };
            self.until_done("read", list, |request| {
                let mut client = sessions.clone();
                async move { client.list_messages(request).await }
            })
            .await;
        }
        if number.is_multiple_of(4) {
            let pattern = TextPattern {
                pattern: Some(Pattern::Literal("now file".into())),
                ..TextPattern::default()
            };
            let search = SearchMessagesRequest {
                session,
                pattern: Some(pattern),
                ..SearchMessagesRequest::default()
            };
            self.until_done("search", search, |request| {
                let mut client = sessions.clone();
                async move { client.search_messages(request).await }
            })
            .await;
        }
    }

    /// Repeats a call until it is served, as agents do. The latency is measured from the first attempt to the reply, so
    /// that a rejection counts as latency. Returns false if the agent gave up.
    async fn until_done<M: Clone, R, F>(
        &self,
        what: &str,
        message: M,
        call: impl Fn(Request<M>) -> F,
    ) -> bool
    where
        F: Future<Output = Result<Response<R>, Status>>,
    {
        let began = Instant::now();
        loop {
            let mut request = with(&self.key, message.clone());
            request.set_timeout(ATTEMPT);
            // The server ends a call at its deadline. The outer limit ends one on a connection that is stalled.
            let answer = tokio::time::timeout(ATTEMPT * 2, call(request)).await;
            let status = match answer {
                Ok(Ok(_)) => {
                    self.latencies.served(what, began);
                    return true;
                }
                Ok(Err(status)) => status,
                Err(_elapsed) => Status::deadline_exceeded("no answer"),
            };
            assert!(
                is_passing(&status),
                "{what}: an honest call failed permanently: {status:?}"
            );
            self.latencies.refused(&outcome_of(&status));
            // The last calls get a shorter time limit, because the test waits for them.
            let max_wait = if self.stop.load(Relaxed) {
                ATTEMPT
            } else {
                TIMEOUT
            };
            if began.elapsed() > max_wait {
                self.latencies.given_up(what, began);
                return false;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Opens a connection and a watch each second, and probes the admin port as Kubernetes does, until it is dropped.
pub(crate) async fn newcomers(
    endpoint: Endpoint,
    admin: String,
    key: String,
    latencies: Arc<Latencies>,
) {
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let began = Instant::now();
        let channel = loop {
            let tried = tokio::time::timeout(ATTEMPT, endpoint.connect()).await;
            if let Ok(Ok(channel)) = tried {
                latencies.served("connect", began);
                break Some(channel);
            }
            if began.elapsed() > TIMEOUT {
                latencies.given_up("connect", began);
                break None;
            }
            latencies.refused("no new connection");
            tokio::time::sleep(PAUSE).await;
        };
        if let Some(channel) = channel {
            watch(channel, &key, &latencies).await;
        }
        let began = Instant::now();
        if crate::sample::is_alive(&admin, ATTEMPT).await {
            latencies.served("healthz", began);
        } else {
            latencies.given_up("healthz", began);
        }
    }
}

/// Watches a session until its first event arrives.
async fn watch(channel: Channel, key: &str, latencies: &Latencies) {
    let request = WatchSessionRequest {
        session: "projects/honest/sessions/agent-0-0".to_owned(),
        after_revision: Some(0),
        ..WatchSessionRequest::default()
    };
    let mut client = Sessions::new(channel);
    let began = Instant::now();
    loop {
        let first = async {
            let opened = client.watch_session(with(key, request.clone())).await?;
            opened.into_inner().message().await
        };
        let tried = tokio::time::timeout(ATTEMPT, first).await;
        match tried.unwrap_or_else(|_elapsed| Err(Status::deadline_exceeded("no answer"))) {
            Ok(_) => return latencies.served("watch", began),
            // The agent has not created its session yet.
            Err(status) if status.code() == Code::NotFound => return,
            Err(status) => latencies.refused(&outcome_of(&status)),
        }
        if began.elapsed() > TIMEOUT {
            return latencies.given_up("watch", began);
        }
        tokio::time::sleep(PAUSE).await;
    }
}
