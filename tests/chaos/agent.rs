//! An agent that keeps working while its server fails, and records which calls were acknowledged.

use std::time::Duration;

use palimpsest_core::validate::validate;
use palimpsest_core::view::Target;
use palimpsest_proto::context::v1::read_tool_result_request::Result as Which;
use palimpsest_proto::context::v1::{CallRef, CompactRequest, ReadToolResultRequest};
use palimpsest_tests::Array;
use palimpsest_tests::passing::{is_passing, whole};
use palimpsest_tests::say::{assistant_call, prepare, result, with_id};
use palimpsest_tests::server::{Context, Server};
use palimpsest_tests::tenant::with;
use palimpsest_tests::turns::Turns;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use crate::intruder::Intruder;

/// The deadline of a call.
const TIMEOUT: Duration = Duration::from_millis(800);
/// Number of turns between two compactions.
const COMPACT_EVERY: u64 = 9;
/// Number of turns between two calls for another tenant's data.
const INTRUDE_EVERY: u64 = 3;
/// Maximum number of results that one check reads back.
const READ_BACK: usize = 4;

/// An agent and the expected state of its session.
#[derive(Debug)]
pub(crate) struct Agent {
    turns: Turns,
    /// The key of the agent's tenant.
    key: String,
    /// The calls for the other tenant's data.
    pub(crate) intruder: Intruder,
    array: Array,
    /// Total acknowledged calls.
    pub(crate) acknowledged: u64,
    /// Total rejected or failed calls.
    pub(crate) failed: u64,
    /// Total results that were read back.
    pub(crate) read_back: u64,
}

/// Returns the tool's output in a turn. Short or long, and different for each turn.
fn said(turn: u64) -> String {
    let lines = match turn % 5 {
        0 => 300,
        1 | 2 => 60,
        _ => 3,
    };
    format!("line of the output of turn {turn}\n").repeat(lines)
}

fn call(turn: u64) -> String {
    format!("call_{turn}")
}

impl Agent {
    /// Creates two agents with the keys of two tenants. Each one also calls for the session of the other.
    pub(crate) fn pair(number: usize, keys: &[(&str, String); 2], random: u64) -> [Self; 2] {
        let name = |at: usize| format!("projects/{}/sessions/chaos-{number}", keys[at].0);
        [(0, 1, random), (1, 0, !random)].map(|(own, other, seed)| {
            let key = &keys[own].1;
            let theirs = (name(other), keys[other].1.clone());
            Self::new(&name(own), key, Intruder::new(key, theirs, seed))
        })
    }

    fn new(session: &str, key: &str, intruder: Intruder) -> Self {
        Self {
            turns: Turns::new(session, 2),
            key: key.to_owned(),
            intruder,
            array: Array::default(),
            acknowledged: 0,
            failed: 0,
            read_back: 0,
        }
    }

    /// Returns the name of the session.
    pub(crate) fn name(&self) -> &str {
        self.turns.session()
    }

    /// Takes one turn, and intrudes at regular intervals.
    pub(crate) async fn act(&mut self, client: &mut Context, channel: &Channel) {
        self.turn(client).await;
        if self.acknowledged.is_multiple_of(INTRUDE_EVERY) {
            self.intruder.intrude(client, channel).await;
        }
    }

    /// Takes one turn: the previous turn if it failed, otherwise the next one.
    async fn turn(&mut self, client: &mut Context) {
        let turn = self.turns.begin();
        let says = [
            assistant_call(&call(turn)),
            result(&call(turn), &said(turn)),
        ];
        let ids = self.turns.ids(turn);
        let messages = ids.zip(says).map(|(id, it)| with_id(&id, it)).collect();
        let mut request = prepare(self.turns.session(), messages);
        request.known_etag = self.array.etag.clone();
        match client.prepare_context(self.limited(request)).await {
            Ok(reply) => {
                self.array.take(reply.get_ref());
                self.turns.done(turn);
                self.acknowledged += 1;
            }
            Err(status) => self.bear(&status),
        }
        if turn % COMPACT_EVERY == COMPACT_EVERY - 1 {
            self.compact(client).await;
        }
    }

    async fn compact(&mut self, client: &mut Context) {
        let request = CompactRequest {
            session: self.turns.session().to_owned(),
            ..CompactRequest::default()
        };
        if let Err(status) = client.compact(self.limited(request)).await {
            // Either nothing can be compacted, or no turn has created the session.
            let has_nothing_to_do = status.code() == Code::FailedPrecondition;
            if !has_nothing_to_do && status.code() != Code::NotFound {
                self.bear(&status);
            }
        }
    }

    /// Counts a failed call. Panics unless the error is one that a caller can retry.
    fn bear(&mut self, status: &Status) {
        self.failed += 1;
        assert!(is_passing(status), "{}: {status:?}", self.turns.session());
    }

    /// Compares the server's state with the acknowledged turns.
    pub(crate) async fn check(&mut self, server: &Server) {
        let mut sessions = server.sessions().await;
        if !self.turns.check(&mut sessions, Some(&self.key)).await {
            return;
        }
        let mut client = server.context().await;
        self.check_view(&mut client).await;
        for turn in self
            .turns
            .there()
            .to_vec()
            .into_iter()
            .rev()
            .take(READ_BACK)
        {
            assert_eq!(self.read(&mut client, turn).await, said(turn));
            self.read_back += 1;
        }
        self.intruder.steal(&server.channel().await).await;
    }

    /// Asserts that the delta to the acknowledged array gives the complete view, and that the view is valid for its
    /// provider.
    async fn check_view(&mut self, client: &mut Context) {
        let mut request = prepare(self.turns.session(), Vec::new());
        request.known_etag = self.array.etag.clone();
        let reply = client
            .prepare_context(with(&self.key, request))
            .await
            .unwrap();
        self.array.take(reply.get_ref());
        let request = prepare(self.turns.session(), Vec::new());
        let whole = client
            .prepare_context(with(&self.key, request))
            .await
            .unwrap()
            .into_inner();
        assert_eq!(
            self.array.messages,
            whole.messages_json,
            "{}",
            self.turns.session()
        );
        let array: Vec<Vec<u8>> = whole
            .messages_json
            .iter()
            .map(|json| json.to_vec())
            .collect();
        let violations = validate(&Target::default(), &array);
        assert!(
            violations.is_empty(),
            "{}: {violations:?}",
            self.turns.session()
        );
    }

    /// Reads a complete result.
    async fn read(&self, client: &mut Context, turn: u64) -> String {
        let request = ReadToolResultRequest {
            session: self.turns.session().to_owned(),
            result: Some(Which::Call(CallRef {
                tool_use_id: call(turn),
                ..CallRef::default()
            })),
            ..ReadToolResultRequest::default()
        };
        let stream = client
            .read_tool_result(with(&self.key, request))
            .await
            .unwrap()
            .into_inner();
        whole(stream).await
    }

    /// Returns a request with a deadline.
    fn limited<T>(&self, message: T) -> Request<T> {
        let mut request = with(&self.key, message);
        request.set_timeout(TIMEOUT);
        request
    }
}
