//! The cost of frequent calls in a long session, counted in allocations instead of timed. It must equal the cost in a
//! short session, because no call reads the earlier messages.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

use std::sync::Arc;

use palimpsest_conformance::MemoryLog;
use palimpsest_core::ids::Timestamp;
use palimpsest_core::limits::Limits;
use palimpsest_engine::clock::{Clock, IdSource, ManualClock};
use palimpsest_engine::sessions::{DefaultPolicies, Sessions};
use palimpsest_proto::context::v1::context_service_server::ContextService as _;
use palimpsest_proto::context::v1::message_input::Content;
use palimpsest_proto::context::v1::{
    AppendMessagesRequest, CallRef, Format, GetSessionMemoryRequest, MessageInput, Payload,
    PersistToolResultRequest, PrepareContextRequest, SnipRequest, ToolResultContent,
    tool_result_content,
};
use palimpsest_server::grpc::Mutations;
use palimpsest_server::services::{ContextHandlers, Service};
use palimpsest_store::blobs::Blobs;
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;
use tonic::Request;

/// The number of messages in a short and in a long session.
const MESSAGES: [usize; 2] = [60, 6_000];
/// The number of measured calls.
const CALLS: usize = 21;
const SESSION: &str = "projects/p/sessions/s";

struct Client {
    runtime: Runtime,
    handlers: ContextHandlers,
    said: usize,
    calls: usize,
}

impl Client {
    /// Creates a client with a session whose messages were served once.
    fn new(messages: usize) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(Timestamp::from_millis(1)));
        let blobs = Arc::new(Blobs::in_memory());
        let sessions = Sessions::new(
            Arc::new(MemoryLog::new()),
            Arc::clone(&clock),
            Arc::new(Limits::default()),
            DefaultPolicies::default(),
            1 << 30,
        );
        let service = Service::new(
            Arc::new(sessions.with_blobs(Arc::clone(&blobs))),
            blobs,
            Arc::new(IdSource::random(clock)),
            Mutations::default(),
            CancellationToken::new(),
        );
        let mut client = Self {
            // A single thread, because the counter covers only the current thread.
            runtime: Builder::new_current_thread().enable_all().build().unwrap(),
            handlers: ContextHandlers(service),
            said: 0,
            calls: 0,
        };
        while client.said < messages {
            client.append(messages.min(500));
        }
        let request = PrepareContextRequest {
            session: SESSION.into(),
            ..PrepareContextRequest::default()
        };
        let served = client.handlers.prepare_context(Request::new(request));
        let served = client.runtime.block_on(served).unwrap().into_inner();
        assert_eq!(served.view_messages as usize, client.said);
        client
    }

    fn append(&mut self, messages: usize) {
        let said = self.said..self.said + messages;
        self.said = said.end;
        let request = AppendMessagesRequest {
            session: SESSION.into(),
            messages: said.map(message).collect(),
            ..AppendMessagesRequest::default()
        };
        let appended = self.handlers.append_messages(Request::new(request));
        self.runtime.block_on(appended).unwrap();
    }

    fn persist(&mut self) {
        let number = self.calls;
        self.calls += 1;
        let text = tool_result_content::Content::Text(format!("returned {number:08}"));
        let request = PersistToolResultRequest {
            session: SESSION.into(),
            call: Some(CallRef {
                tool_use_id: format!("call_{number:08}"),
                ..CallRef::default()
            }),
            tool_name: "Read".into(),
            content: Some(ToolResultContent {
                content: Some(text),
            }),
            ..PersistToolResultRequest::default()
        };
        let decided = self.handlers.persist_tool_result(Request::new(request));
        self.runtime.block_on(decided).unwrap();
    }

    fn memory(&mut self) {
        let request = GetSessionMemoryRequest {
            session: SESSION.into(),
            ..GetSessionMemoryRequest::default()
        };
        let read = self.handlers.get_session_memory(Request::new(request));
        self.runtime.block_on(read).unwrap();
    }

    /// Snips one message, starting 30 messages before the end.
    fn snip(&mut self) {
        let number = self.said - 30 + self.calls;
        self.calls += 1;
        let request = SnipRequest {
            session: SESSION.into(),
            message_ids: vec![id(number)],
            ..SnipRequest::default()
        };
        let snipped = self.handlers.snip(Request::new(request));
        self.runtime.block_on(snipped).unwrap();
    }
}

fn id(number: usize) -> String {
    format!("01920000-0000-7000-8000-{number:012x}")
}

/// Returns a message. All messages have the same size, so that costs can be compared.
fn message(number: usize) -> MessageInput {
    let role = ["user", "assistant"][number % 2];
    let json = format!(r#"{{"role":"{role}","content":"message {number:08} of many"}}"#);
    MessageInput {
        id: id(number),
        content: Some(Content::Payload(Payload {
            format: Format::AnthropicMessages.into(),
            json: json.into(),
        })),
        ..MessageInput::default()
    }
}

/// Returns the median number and the median bytes of the allocations of a call.
fn cost(messages: usize, call: fn(&mut Client)) -> (u64, u64) {
    let mut client = Client::new(messages);
    let counted = (0..CALLS).map(|_| allocation_counter::measure(|| call(&mut client)));
    let counted: Vec<_> = counted.collect();
    let median = |get: fn(&allocation_counter::AllocationInfo) -> u64| {
        let mut all: Vec<_> = counted.iter().map(get).collect();
        all.sort_unstable();
        all[CALLS / 2]
    };
    (median(|one| one.count_total), median(|one| one.bytes_total))
}

/// Compares the cost of a call in both sessions. The long session may use `a_message` more bytes per additional
/// message.
#[track_caller]
fn check(call: fn(&mut Client), a_message: usize) {
    let [short, long] = MESSAGES.map(|messages| cost(messages, call));
    assert!(short.0 > 5, "nothing was counted: {short:?}");
    let granted = (a_message * (MESSAGES[1] - MESSAGES[0])) as u64;
    // The long session has 100 times the messages, so a cost per message would exceed the margin by far.
    let is_bounded = |long: u64, short: u64| long * 2 <= short * 3;
    assert!(
        is_bounded(long.0, short.0) && is_bounded(long.1.saturating_sub(granted), short.1),
        "allocations and bytes of a call: {short:?} after {} messages, {long:?} after {}",
        MESSAGES[0],
        MESSAGES[1],
    );
}

#[test]
fn p22_allocations_of_an_append_do_not_grow_with_the_session() {
    check(|client| client.append(1), 0);
}

#[test]
fn p22_allocations_of_a_persist_decision_do_not_grow_with_the_session() {
    check(Client::persist, 0);
}

#[test]
fn p22_allocations_of_a_memory_read_do_not_grow_with_the_session() {
    check(Client::memory, 0);
}

/// A view change rewrites the list of pieces a few times, but never their contents. The number of allocations is
/// therefore the same in a long session, and only the lists are longer.
#[test]
fn a_snip_allocates_only_new_piece_lists() {
    check(Client::snip, 256);
}
