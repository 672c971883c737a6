//! The cost of a turn in a long session equals the cost in a short one, counted in reads and reply bytes.

use std::sync::Arc;

use palimpsest_conformance::MemoryLog;
use palimpsest_core::ids::Timestamp;
use palimpsest_core::limits::Limits;
use palimpsest_engine::clock::{Clock, IdSource, ManualClock};
use palimpsest_engine::sessions::{DefaultPolicies, Sessions};
use palimpsest_proto::context::v1::context_service_server::ContextService as _;
use palimpsest_proto::context::v1::message_input::Content;
use palimpsest_proto::context::v1::{
    Format, MessageInput, Payload, PrepareContextRequest, PrepareContextResponse,
};
use palimpsest_server::grpc::Mutations;
use palimpsest_server::services::{ContextHandlers, Service};
use palimpsest_store::Store;
use palimpsest_store::blobs::Blobs;
use tokio_util::sync::CancellationToken;
use tonic::Request;

use crate::counting::{CountingLog, Reads};

const SHORT: usize = 10;
const LONG: usize = 10_000;
const TURNS: usize = 20;
const BATCH: usize = 500;

pub(crate) type Log = CountingLog<MemoryLog>;

/// Returns the handlers of a newly started process on a log.
pub(crate) fn handlers(log: &Arc<Log>) -> ContextHandlers {
    let log: Arc<dyn Store> = log.clone();
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(Timestamp::from_millis(1)));
    let limits = Arc::new(Limits::default());
    let sessions = Sessions::new(
        log,
        Arc::clone(&clock),
        limits,
        DefaultPolicies::default(),
        1 << 30,
    );
    ContextHandlers(Service::new(
        Arc::new(sessions),
        Arc::new(Blobs::in_memory()),
        Arc::new(IdSource::random(clock)),
        Mutations::default(),
        CancellationToken::new(),
    ))
}

/// Returns a message. All messages have the same size, so that replies can be compared.
pub(crate) fn message(number: usize) -> MessageInput {
    let role = if number.is_multiple_of(2) {
        "user"
    } else {
        "assistant"
    };
    let json = format!(r#"{{"role":"{role}","content":"message {number:08} of many"}}"#);
    MessageInput {
        content: Some(Content::Payload(Payload {
            format: Format::AnthropicMessages.into(),
            json: json.into(),
        })),
        ..MessageInput::default()
    }
}

/// A client with the state of its session.
struct Client {
    handlers: ContextHandlers,
    etag: bytes::Bytes,
    said: usize,
}

impl Client {
    fn new(log: &Arc<Log>) -> Self {
        Self {
            handlers: handlers(log),
            etag: bytes::Bytes::new(),
            said: 0,
        }
    }

    async fn prepare(&mut self, messages: usize) -> PrepareContextResponse {
        let said = self.said..self.said + messages;
        self.said = said.end;
        let request = PrepareContextRequest {
            session: "projects/p/sessions/s".into(),
            messages: said.map(message).collect(),
            known_etag: self.etag.clone(),
            ..PrepareContextRequest::default()
        };
        let reply = self.handlers.prepare_context(Request::new(request)).await;
        let reply = reply.unwrap().into_inner();
        self.etag = reply.etag.clone();
        reply
    }
}

/// The cost of some turns.
#[derive(Debug, PartialEq, Eq)]
struct Cost {
    reads: Reads,
    /// The number of messages and of bytes in each reply.
    rendered: Vec<(usize, u64)>,
}

/// Returns the cost of turns in a session with the given number of messages.
async fn cost(messages: usize) -> Cost {
    let log = Arc::new(Log::default());
    let mut client = Client::new(&log);
    for _ in 0..messages.div_ceil(BATCH) {
        client.prepare(messages.min(BATCH)).await;
    }
    assert_eq!(client.said, messages);
    let before = log.reads();
    let mut rendered = Vec::new();
    for turn in 1..=TURNS {
        let reply = client.prepare(2).await;
        assert_eq!(reply.view_messages as usize, messages + 2 * turn);
        assert!(!reply.view_omitted);
        let bytes = reply.messages_json.iter().map(|m| m.len() as u64).sum();
        rendered.push((reply.messages_json.len(), bytes));
    }
    let after = log.reads();
    let reads = Reads {
        calls: after.calls - before.calls,
        rows: 0,
        events: after.events - before.events,
        bytes: after.bytes - before.bytes,
    };
    counts_at_all(&log).await;
    Cost { reads, rendered }
}

/// Checks that the log counts reads. Every test would pass with a log that counts nothing.
async fn counts_at_all(log: &Arc<Log>) {
    let before = log.reads();
    Client::new(log).prepare(0).await;
    let after = log.reads();
    assert!(after.events > before.events && after.bytes > before.bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn p22_cost_of_a_delta_does_not_grow_with_the_session() {
    let (short, long) = (cost(SHORT).await, cost(LONG).await);
    assert_eq!(long, short);
    assert_eq!(
        // The session is in memory after the first turns, so a turn reads nothing.
        long.reads,
        Reads::default(),
        "the delta read from the store"
    );
    let (messages, _) = long.rendered[0];
    assert_eq!(messages, 2, "the delta must contain only the new messages");
}
