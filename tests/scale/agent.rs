//! An agent whose calls can reach any server, and which records acknowledged calls.

use std::sync::Arc;
use std::time::Duration;

use palimpsest_core::validate::validate;
use palimpsest_core::view::Target;
use palimpsest_proto::context::v1::read_tool_result_request::Result as Which;
use palimpsest_proto::context::v1::rewind_session_request::TargetMessage;
use palimpsest_proto::context::v1::{
    AppendMessagesRequest, CallRef, CompactRequest, GetSessionMemoryRequest, MemoryState,
    ReadToolResultRequest, RewindSessionRequest, SessionMemory,
};
use palimpsest_tests::Array;
use palimpsest_tests::passing::{is_passing, whole};
use palimpsest_tests::say::{append, assistant_call, prepare, result, user, with_id};
use palimpsest_tests::turns::Turns;
use palimpsest_tests::{chance, name};
use tonic::{Code, Request, Status};

use crate::deployment::Deployment;

/// The deadline of a call.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Time limit for session memory after the load has stopped.
const SUMMARY: Duration = Duration::from_mins(1);

/// Totals of an agent's calls.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    /// Acknowledged turns.
    pub(crate) acknowledged: u64,
    /// Rejected or failed calls.
    pub(crate) failed: u64,
    /// Finished compactions.
    pub(crate) compacted: u64,
    /// Acknowledged rewinds.
    pub(crate) rewound: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.acknowledged += other.acknowledged;
        self.failed += other.failed;
        self.compacted += other.compacted;
        self.rewound += other.rewound;
    }
}

/// An agent and the expected state of its session.
#[derive(Debug)]
pub(crate) struct Agent {
    deployment: Arc<Deployment>,
    turns: Turns,
    random: u64,
    array: Array,
    pub(crate) counts: Counts,
}

/// Returns the tool's output in a turn. Short or long, and different for each turn.
fn said(turn: u64) -> String {
    let lines = match turn % 5 {
        // Exceeds the limit of a view and is stored.
        0 => 2_500,
        1 | 2 => 40,
        _ => 3,
    };
    format!("line of the output of turn {turn}\n").repeat(lines)
}

fn call(turn: u64) -> String {
    format!("call_{turn}")
}

impl Agent {
    pub(crate) fn new(deployment: &Arc<Deployment>, number: u64, seed: u64) -> Self {
        Self {
            deployment: Arc::clone(deployment),
            turns: Turns::new(&name(&format!("scale-{number}")), 3),
            // Agents of one seed must have different sequences.
            random: seed ^ (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15),
            array: Array::default(),
            counts: Counts::default(),
        }
    }

    fn server(&mut self) -> usize {
        let servers = u64::try_from(self.deployment.servers()).unwrap();
        usize::try_from(self.below(servers)).unwrap()
    }

    fn below(&mut self, most: u64) -> u64 {
        (chance::next(&mut self.random) >> 8) % most
    }

    /// Takes a turn, and makes further calls at regular intervals.
    pub(crate) async fn act(&mut self) {
        self.turn().await;
        match self.below(24) {
            0 => self.compact().await,
            1 => self.rewind().await,
            _ => {}
        }
    }

    /// Takes one turn: the previous turn if it failed, otherwise the next one. Half of the turns are one call. The
    /// others are two calls that can reach different servers.
    async fn turn(&mut self) {
        let turn = self.turns.begin();
        let says = [
            user(&format!("question {turn}")),
            assistant_call(&call(turn)),
            result(&call(turn), &said(turn)),
        ];
        let ids = self.turns.ids(turn);
        let mut messages: Vec<_> = ids.zip(says).map(|(id, it)| with_id(&id, it)).collect();
        if turn.is_multiple_of(2) {
            let request = AppendMessagesRequest {
                request_id: format!("turn {turn}"),
                ..append(self.turns.session(), std::mem::take(&mut messages))
            };
            let server = self.server();
            let mut client = self.deployment.context(server);
            if let Err(status) = client.append_messages(limited(request)).await {
                return self.bear(&status);
            }
        }
        let mut request = prepare(self.turns.session(), messages);
        request.known_etag = self.array.etag.clone();
        let server = self.server();
        let mut client = self.deployment.context(server);
        match client.prepare_context(limited(request)).await {
            Ok(reply) => {
                self.array.take(reply.get_ref());
                self.turns.done(turn);
                self.counts.acknowledged += 1;
            }
            Err(status) => self.bear(&status),
        }
    }

    async fn compact(&mut self) {
        let request = CompactRequest {
            session: self.turns.session().to_owned(),
            ..CompactRequest::default()
        };
        let server = self.server();
        let mut client = self.deployment.context(server);
        match client.compact(limited(request)).await {
            Ok(_) => self.counts.compacted += 1,
            Err(status) if status.code() == Code::FailedPrecondition => {}
            // Without an acknowledged turn, the session may not exist.
            Err(status) if status.code() == Code::NotFound => {
                assert!(self.turns.there().is_empty());
            }
            Err(status) => self.bear(&status),
        }
    }

    /// Rewinds to the last message, which removes nothing. Tests a view that changes on one server and is requested
    /// from another.
    async fn rewind(&mut self) {
        // If the outcome of a turn is unknown, the last message is unknown too.
        let last = self
            .turns
            .there()
            .last()
            .filter(|_| !self.turns.is_pending());
        let Some(last) = last.and_then(|turn| self.turns.ids(*turn).last()) else {
            return;
        };
        let request = RewindSessionRequest {
            session: self.turns.session().to_owned(),
            target_message: Some(TargetMessage::ToMessageId(last)),
            ..RewindSessionRequest::default()
        };
        let server = self.server();
        let mut client = self.deployment.context(server);
        match client.rewind_session(limited(request)).await {
            Ok(_) => self.counts.rewound += 1,
            Err(status) if status.code() == Code::FailedPrecondition => {}
            Err(status) => self.bear(&status),
        }
    }

    /// Counts a failed call. Panics unless the error is one that a caller can retry.
    fn bear(&mut self, status: &Status) {
        self.counts.failed += 1;
        assert!(is_passing(status), "{}: {status:?}", self.turns.session());
    }

    /// Compares the state on every server with the acknowledged turns, and asserts that all servers agree.
    pub(crate) async fn check(&mut self) {
        if !self.turns.has_begun() {
            return;
        }
        for server in 0..self.deployment.servers() {
            let mut sessions = self.deployment.sessions(server);
            self.turns.check(&mut sessions, None).await;
        }
        // The first server serves the pending messages. The others must return an equal view.
        let mut views = Vec::new();
        for server in 0..self.deployment.servers() {
            let mut client = self.deployment.context(server);
            let mut request = prepare(self.turns.session(), Vec::new());
            request.known_etag = self.array.etag.clone();
            let delta = client.prepare_context(request).await.unwrap();
            self.array.take(delta.get_ref());
            let request = prepare(self.turns.session(), Vec::new());
            let whole = client.prepare_context(request).await.unwrap().into_inner();
            assert_eq!(
                self.array.messages,
                whole.messages_json,
                "{}",
                self.turns.session()
            );
            assert_eq!(self.array.etag, whole.etag, "{}", self.turns.session());
            views.push((whole.etag, whole.messages_json));
        }
        assert!(
            views.iter().all(|view| *view == views[0]),
            "{}",
            self.turns.session()
        );
        let array: Vec<Vec<u8>> = views[0].1.iter().map(|json| json.to_vec()).collect();
        let violations = validate(&Target::default(), &array);
        assert!(
            violations.is_empty(),
            "{}: {violations:?}",
            self.turns.session()
        );
        for turn in self.turns.there().to_vec().into_iter().rev().take(4) {
            let server = self.server();
            assert_eq!(
                self.read(server, turn).await,
                said(turn),
                "{}",
                self.turns.session()
            );
        }
    }

    /// Waits for session memory and returns its state on every server.
    pub(crate) async fn summary(&self) -> Vec<SessionMemory> {
        let mut found = Vec::new();
        for server in 0..self.deployment.servers() {
            let began = tokio::time::Instant::now();
            loop {
                let request = GetSessionMemoryRequest {
                    session: self.turns.session().to_owned(),
                    ..GetSessionMemoryRequest::default()
                };
                let mut client = self.deployment.context(server);
                let memory = client.get_session_memory(request).await.unwrap();
                let memory = memory.into_inner().memory.unwrap();
                if memory.state() != MemoryState::Behind && !memory.running {
                    found.push(memory);
                    break;
                }
                assert!(
                    began.elapsed() < SUMMARY,
                    "{}: {memory:?}",
                    self.turns.session()
                );
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
        found
    }

    /// Reads a complete result.
    async fn read(&self, server: usize, turn: u64) -> String {
        let request = ReadToolResultRequest {
            session: self.turns.session().to_owned(),
            result: Some(Which::Call(CallRef {
                tool_use_id: call(turn),
                ..CallRef::default()
            })),
            ..ReadToolResultRequest::default()
        };
        let mut client = self.deployment.context(server);
        let stream = client.read_tool_result(request).await.unwrap().into_inner();
        whole(stream).await
    }
}

/// Returns a request with a deadline.
fn limited<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(TIMEOUT);
    request
}
