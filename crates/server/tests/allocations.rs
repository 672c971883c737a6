//! The cost of the levels in a long session, counted in allocations instead of timed. A level examines only new
//! content.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

use std::sync::Arc;

use palimpsest_conformance::MemoryLog;
use palimpsest_core::ids::{SessionKey, Timestamp};
use palimpsest_core::limits::Limits;
use palimpsest_core::policy::Overlay;
use palimpsest_engine::clock::{Clock, IdSource, ManualClock};
use palimpsest_engine::sessions::{DefaultPolicies, Sessions};
use palimpsest_proto::context::v1::context_service_server::ContextService as _;
use palimpsest_proto::context::v1::message_input::Content;
use palimpsest_proto::context::v1::{
    AppendMessagesRequest, Format, MessageInput, Payload, PrepareContextRequest,
    PrepareContextResponse, Target,
};
use palimpsest_server::grpc::Mutations;
use palimpsest_server::services::{ContextHandlers, Service};
use palimpsest_store::blobs::Blobs;
use serde_json::json;
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;
use tonic::Request;

/// The number of rounds in a short and in a long session.
const ROUNDS: [usize; 2] = [60, 3_000];
/// The number of measured turns.
const TURNS: usize = 40;
/// Enables all levels with thresholds that are never reached, because the cost of an action is not measured here.
const POLICY: &str = "
    preset = \"claude-code\"
    snip = { nudge = true, wrap_interjections = true }
    tool_results.max_result_chars = 2000
    microcompact.time.enabled = true
    microcompact.cached.enabled = true
    microcompact.size.enabled = true
    collapse = { enabled = true, max_risk = 1.0 }
    session_memory.enabled = false
";

struct Client {
    runtime: Runtime,
    sessions: Arc<Sessions>,
    handlers: ContextHandlers,
    etag: bytes::Bytes,
    rounds: usize,
}

impl Client {
    fn new() -> Self {
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(Timestamp::from_millis(1)));
        let blobs = Arc::new(Blobs::in_memory());
        let overlay: Overlay = toml::from_str(POLICY).unwrap();
        let sessions = Sessions::new(
            Arc::new(MemoryLog::new()),
            Arc::clone(&clock),
            Arc::new(Limits::default()),
            DefaultPolicies::new(&overlay, []).unwrap(),
            1 << 30,
        );
        let sessions = Arc::new(sessions.with_blobs(Arc::clone(&blobs)));
        let service = Service::new(
            Arc::clone(&sessions),
            blobs,
            Arc::new(IdSource::random(clock)),
            Mutations::default(),
            CancellationToken::new(),
        );
        Self {
            // A single thread, because the counter covers only the current thread.
            runtime: Builder::new_current_thread().enable_all().build().unwrap(),
            sessions,
            handlers: ContextHandlers(service),
            etag: bytes::Bytes::new(),
            rounds: 0,
        }
    }

    /// Appends a call with a result of the given size in bytes.
    fn append(&mut self, number: usize, bytes: usize) {
        let id = format!("more_{number:08}");
        let call = json!({"type": "tool_use", "id": id, "name": "Read", "input": {"path": format!("/src/{number:08}.rs")}});
        let result =
            json!({"type": "tool_result", "tool_use_id": id, "content": "x".repeat(bytes)});
        let said = [
            json!({"role": "assistant", "content": [call]}),
            json!({"role": "user", "content": [result]}),
        ];
        let request = AppendMessagesRequest {
            session: "projects/p/sessions/s".into(),
            messages: said.iter().map(message).collect(),
            ..AppendMessagesRequest::default()
        };
        let reply = self.handlers.append_messages(Request::new(request));
        self.runtime.block_on(reply).unwrap();
    }

    /// Appends a call with its result, and in every third round an answer and the next question.
    fn round(&mut self) -> PrepareContextResponse {
        let number = self.rounds;
        self.rounds += 1;
        let id = format!("call_{number:08}");
        let call = json!({"type": "tool_use", "id": id, "name": "Read", "input": {"path": format!("/src/{number:08}.rs")}});
        let result = json!({"type": "tool_result", "tool_use_id": id, "content": format!("contents of {number:08}")});
        let mut said = vec![
            json!({"role": "assistant", "content": [call]}),
            json!({"role": "user", "content": [result]}),
        ];
        if number.is_multiple_of(3) {
            let answer = format!("answer {number:08}");
            let question = format!("question {number:08}");
            said.insert(0, json!({"role": "assistant", "content": answer}));
            said.insert(1, json!({"role": "user", "content": question}));
        }
        let request = PrepareContextRequest {
            session: "projects/p/sessions/s".into(),
            messages: said.iter().map(message).collect(),
            known_etag: self.etag.clone(),
            target: Some(Target {
                window_tokens: Some(2_000_000),
                ..Target::default()
            }),
            ..PrepareContextRequest::default()
        };
        let reply = self.handlers.prepare_context(Request::new(request));
        let reply = self.runtime.block_on(reply).unwrap().into_inner();
        self.etag = reply.etag.clone();
        reply
    }
}

fn message(json: &serde_json::Value) -> MessageInput {
    MessageInput {
        content: Some(Content::Payload(Payload {
            format: Format::AnthropicMessages.into(),
            json: json.to_string().into(),
        })),
        ..MessageInput::default()
    }
}

/// Returns the median number and the median bytes of the allocations of a turn.
fn cost(rounds: usize) -> (u64, u64) {
    let mut client = Client::new();
    for _ in 0..rounds {
        client.round();
    }
    let mut counts = Vec::new();
    let mut bytes = Vec::new();
    for _ in 0..TURNS {
        let mut reports = 0;
        let counted = allocation_counter::measure(|| reports = client.round().level_reports.len());
        assert!(reports > 0, "no level has looked");
        counts.push(counted.count_total);
        bytes.push(counted.bytes_total);
    }
    counts.sort_unstable();
    bytes.sort_unstable();
    (counts[TURNS / 2], bytes[TURNS / 2])
}

#[test]
fn p22_allocations_of_a_turn_with_all_levels_do_not_grow_with_the_session() {
    let [short, long] = ROUNDS.map(cost);
    assert!(short.0 > 50, "nothing was counted: {short:?}");
    // The margin of a half covers trees and maps that grow slowly. A cost per round would be 50 times higher.
    let is_bounded = |long: u64, short: u64| long * 2 <= short * 3;
    assert!(
        is_bounded(long.0, short.0) && is_bounded(long.1, short.1),
        "allocations and bytes of a turn: {short:?} after {} rounds, {long:?} after {}",
        ROUNDS[0],
        ROUNDS[1],
    );
}

/// Returns the estimated and the actual memory of a session after `count` calls with results of `bytes` bytes.
///
/// Both values include constant parts, which callers remove by comparing two sizes.
fn weighed(count: usize, bytes: usize) -> (i64, i64) {
    let mut client = Client::new();
    for number in 0..count {
        client.append(number, bytes);
    }
    let weighs = client.sessions.cache_stats().bytes;
    let key = SessionKey::parse("projects/p/sessions/s").unwrap();
    let head = client.sessions.log().head(&key);
    let log = client.runtime.block_on(head).unwrap().unwrap().log_bytes;
    // The freed memory is the actual size. The log in memory is part of it, and the cache does not count that part.
    let given_back = allocation_counter::measure(|| drop(client));
    let takes = -given_back.bytes_current - i64::try_from(log).unwrap();
    (i64::try_from(weighs).unwrap(), takes)
}

/// The cache's estimate of a session must be within 20 % of its actual memory.
#[test]
fn the_estimated_size_of_a_session_is_within_20_percent() {
    // Both sizes are below the 2,000 characters of the policy, so no result is moved out of the session.
    for bytes in [20, 1_900] {
        let (few, many) = (weighed(1_000, bytes), weighed(5_000, bytes));
        let (weighs, takes) = (many.0 - few.0, many.1 - few.1);
        let off = (weighs - takes).abs() * 100 / takes;
        assert!(off <= 20, "{weighs} for {takes}, with {bytes} bytes each");
    }
}
