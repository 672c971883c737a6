//! The cost of a repeated call after a restart.
//!
//! The call reads only the data of a normal load, and no data for the part of the reply outside of the view.

use std::sync::Arc;
use std::time::Duration;

use palimpsest_core::ids::SessionKey;
use palimpsest_core::limits::Limits;
use palimpsest_engine::clock::{Clock, ManualClock};
use palimpsest_engine::sessions::{DefaultPolicies, Sessions};
use palimpsest_proto::context::v1::context_service_server::ContextService as _;
use palimpsest_proto::context::v1::message_input::Content;
use palimpsest_proto::context::v1::{
    CacheBreakpointOptions, CompactionMode, Format, MessageInput, Payload, PrepareContextRequest,
    PrepareContextResponse,
};
use palimpsest_server::services::ContextHandlers;
use palimpsest_store::SessionLog;
use tonic::Request;

use crate::counting::Reads;
use crate::delta::{Log, handlers};

const NAME: &str = "projects/p/sessions/s";
const TURNS: usize = 600;

/// Returns a message of many different numbers. They compress poorly, so that snapshots become due.
fn message(number: usize) -> MessageInput {
    let role = ["user", "assistant"][number % 2];
    let words: Vec<_> = (0..60)
        .map(|word| (number * 7_919 + word * 104_729).to_string())
        .collect();
    let json = serde_json::json!({"role": role, "content": words.join(" ")});
    MessageInput {
        content: Some(Content::Payload(Payload {
            format: Format::AnthropicMessages.into(),
            json: json.to_string().into(),
        })),
        ..MessageInput::default()
    }
}

fn request(etag: &bytes::Bytes) -> PrepareContextRequest {
    PrepareContextRequest {
        session: NAME.into(),
        known_etag: etag.clone(),
        cache_edits_supported: true,
        compaction_mode: CompactionMode::Never.into(),
        cache_breakpoints: Some(CacheBreakpointOptions::default()),
        ..PrepareContextRequest::default()
    }
}

async fn prepare(
    handlers: &ContextHandlers,
    request: PrepareContextRequest,
) -> PrepareContextResponse {
    let reply = handlers.prepare_context(Request::new(request)).await;
    reply.unwrap().into_inner()
}

fn since(log: &Log, before: Reads) -> (u64, u64) {
    let after = log.reads();
    (after.events - before.events, after.bytes - before.bytes)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_after_a_restart_reads_as_much_as_a_load() {
    let log = Arc::new(Log::default());
    let before = handlers(&log);
    let mut etag = bytes::Bytes::new();
    for turn in 0..TURNS {
        let mut next = request(&etag);
        // The model answers, and the user sends the next message.
        let from = (2 * turn).saturating_sub(1);
        next.messages = (from..=2 * turn).map(message).collect();
        etag = prepare(&before, next).await.etag;
    }
    let expected = prepare(&before, request(&etag)).await;
    // The caller repeats the call with the current etag, so it keeps the whole array.
    assert_eq!(expected.keep_messages, expected.view_messages);
    let key = SessionKey::parse(NAME).unwrap();
    // The snapshot is taken in the background.
    for _ in 0..100 {
        if log.head(&key).await.unwrap().unwrap().snapshot.is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    let start = log.reads();
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(
        palimpsest_core::ids::Timestamp::from_millis(1),
    ));
    let sessions = Sessions::new(
        log.clone(),
        clock,
        Arc::new(Limits::default()),
        DefaultPolicies::default(),
        1 << 30,
    );
    let whole = sessions
        .read(&key, |session| session.transcript().is_fully_loaded())
        .await
        .unwrap();
    assert!(!whole, "a load that reads everything would prove nothing");
    let load = since(&log, start);

    let start = log.reads();
    let reply = prepare(&handlers(&log), request(&etag)).await;
    assert_eq!(since(&log, start), load);
    assert_eq!(reply.cache_breakpoints, expected.cache_breakpoints);
    assert_eq!(reply.cache_breakpoints.len(), 2);
    let reused = |reply: &PrepareContextResponse| reply.cache_ledger.unwrap().reused_messages;
    assert_eq!(reused(&reply), reused(&expected));
    // The view has 1,199 messages. The last turn added the two that were not sent before.
    assert_eq!(reused(&reply) as usize, 2 * TURNS - 3);
}
