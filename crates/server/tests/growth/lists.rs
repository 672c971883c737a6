//! Counts the reads of list calls: pages instead of single items, and one step of one list at a time.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use palimpsest_core::ids::SessionKey;
use palimpsest_core::session::SessionInfo;
use palimpsest_engine::call::Deadline;
use palimpsest_proto::context::v1::context_service_server::ContextService as _;
use palimpsest_proto::context::v1::session_service_server::SessionService as _;
use palimpsest_proto::context::v1::{
    AppendMessagesRequest, CreateSessionRequest, DeleteSessionRequest, EventKind,
    ListEventsRequest, ListSessionsRequest, ListSessionsResponse, Session, SessionEvent,
};
use palimpsest_server::services::{ContextHandlers, SessionHandlers};
use palimpsest_store::encoding::encode_list_row;
use palimpsest_store::{Batch, DueChange, Position, SessionLog};
use tonic::{Code, Request};

use crate::delta::{Log, handlers, message};

const EVENTS: [usize; 2] = [300, 3_000];

fn sessions_of(handlers: &ContextHandlers) -> SessionHandlers {
    SessionHandlers(handlers.0.clone())
}

/// Creates a session with the given number of events.
async fn grown(handlers: &ContextHandlers, events: usize) {
    for number in 0..events {
        let request = AppendMessagesRequest {
            session: "projects/p/sessions/s".into(),
            messages: vec![message(number)],
            ..AppendMessagesRequest::default()
        };
        let appended = handlers.append_messages(Request::new(request)).await;
        appended.unwrap();
    }
}

/// Returns all pages of a list of events.
async fn all(handlers: &SessionHandlers, list: &ListEventsRequest) -> Vec<SessionEvent> {
    let mut request = ListEventsRequest {
        session: "projects/p/sessions/s".into(),
        ..list.clone()
    };
    let mut events = Vec::new();
    loop {
        let page = handlers.list_events(Request::new(request.clone())).await;
        let page = page.unwrap().into_inner();
        events.extend(page.events);
        if page.next_page_token.is_empty() {
            return events;
        }
        request.page_token = page.next_page_token;
    }
}

#[tokio::test]
async fn the_latest_events_of_a_kind_are_read_in_pages() {
    for is_shared in [false, true] {
        let mut calls = Vec::new();
        for events in EVENTS {
            let log = if is_shared {
                Arc::new(Log::default().shared())
            } else {
                Arc::new(Log::default())
            };
            let context = handlers(&log);
            grown(&context, events).await;
            let sessions = sessions_of(&context);
            let before = log.reads();
            // No event has this kind, so every page is empty and the call reads up to the start of the log.
            let none = ListEventsRequest {
                kinds: vec![EventKind::Compacted.into()],
                descending: true,
                ..ListEventsRequest::default()
            };
            assert_eq!(all(&sessions, &none).await, []);
            let reads = log.reads();
            calls.push(reads.calls - before.calls);
            assert!(
                reads.events - before.events < 3 * events as u64,
                "{reads:?} after {before:?}"
            );
        }
        // A read for each event would be 3,000 calls.
        assert!(calls.iter().all(|calls| *calls < 50), "{calls:?}");
    }
}

#[tokio::test]
async fn descending_order_returns_the_same_events_reversed() {
    let log = Arc::new(Log::default());
    let context = handlers(&log);
    grown(&context, 150).await;
    // The messages are so large that only a few of them fit into one read.
    for number in 0..12 {
        let mut large = message(number);
        large.id = uuid::Uuid::from_u128(number as u128 + 1).to_string();
        if let Some(palimpsest_proto::context::v1::message_input::Content::Payload(payload)) =
            &mut large.content
        {
            // Distinct numbers compress poorly, so that the stored events stay large.
            let noise: Vec<String> = (0..60_000_usize)
                .map(|word| (word * 7_919 + number * 104_729).to_string())
                .collect();
            let text = noise.join(" ");
            payload.json = format!(r#"{{"role":"user","content":"{text}"}}"#).into();
        }
        let request = AppendMessagesRequest {
            session: "projects/p/sessions/s".into(),
            messages: vec![large],
            ..AppendMessagesRequest::default()
        };
        let appended = context.append_messages(Request::new(request)).await;
        appended.unwrap();
    }
    grown(&context, 20).await;
    let sessions = sessions_of(&context);
    let kinds = vec![EventKind::MessagesAppended.into()];
    for (kinds, after_revision) in [(vec![], 0), (kinds, 0), (vec![], 40)] {
        for page_size in [1, 7, 1_000] {
            let ascending = ListEventsRequest {
                kinds: kinds.clone(),
                after_revision,
                page_size,
                ..ListEventsRequest::default()
            };
            let descending = ListEventsRequest {
                descending: true,
                ..ascending.clone()
            };
            let mut backwards = all(&sessions, &descending).await;
            backwards.reverse();
            let forwards = all(&sessions, &ascending).await;
            assert!(forwards.len() > 20);
            assert!(backwards == forwards, "by {page_size}");
        }
    }
}

/// Writes sessions into the log, with the list rows from `row`.
async fn rows(log: &Log, count: usize, row: impl Fn(usize) -> bytes::Bytes) {
    for number in 0..count {
        let name = format!("projects/p/sessions/s{number:05}");
        let batch = Batch {
            expected: Position::START,
            events: NonZeroU32::MIN,
            // A list reads only rows. A read of this frame would fail to decode.
            frame: bytes::Bytes::from_static(b"never read"),
            list_row: row(number),
            parent: None,
            due: DueChange::Keep,
            blob_bytes: 0,
            completed_intents: Vec::new(),
            tips: None,
        };
        let key = SessionKey::parse(&name).unwrap();
        log.append(&key, batch).await.unwrap();
    }
}

fn about() -> bytes::Bytes {
    encode_list_row(&SessionInfo::default())
}

async fn list(
    handlers: &SessionHandlers,
    page_size: u32,
) -> Result<ListSessionsResponse, tonic::Status> {
    let request = ListSessionsRequest {
        parent: "projects/p".into(),
        page_size,
        ..ListSessionsRequest::default()
    };
    let listed = handlers.list_sessions(Request::new(request)).await;
    listed.map(tonic::Response::into_inner)
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_lists_read_one_page_at_a_time() {
    const ROWS: usize = 2_500;
    let log = Arc::new(Log::default());
    rows(&log, ROWS, |_| about()).await;
    let sessions = sessions_of(&handlers(&log));
    let before = log.reads();
    let page = list(&sessions, 50).await.unwrap();
    assert_eq!(page.sessions.len(), 50);
    let reads = log.reads();
    // Each row is read once, in pages of a thousand.
    assert_eq!(reads.rows - before.rows, ROWS as u64);
    assert_eq!(reads.calls - before.calls, 3);
    for page in join_all((0..20).map(|_| list(&sessions, 50))).await {
        assert_eq!(page.unwrap().sessions.len(), 50);
    }
    assert_eq!(log.most_at_once(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_list_reads_nothing() {
    let log = Arc::new(Log::default());
    rows(&log, 100, |_| about()).await;
    let sessions = sessions_of(&handlers(&log));
    let before = log.reads();
    let late = Deadline::after(Duration::ZERO).scope(list(&sessions, 50));
    assert_eq!(late.await.unwrap_err().code(), Code::DeadlineExceeded);
    assert_eq!(log.reads().rows, before.rows);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_row_is_reported_and_hides_no_other() {
    const ROWS: usize = 1_100;
    let log = Arc::new(Log::default());
    let row = |number: usize| match number {
        // A row of a later version, an invalid row, and an empty row.
        7 => bytes::Bytes::from_static(b"\xff\xff\xff"),
        8 => bytes::Bytes::from_static(b"junk"),
        1_050 => bytes::Bytes::new(),
        _ => about(),
    };
    rows(&log, ROWS, row).await;
    let context = handlers(&log);
    let sessions = sessions_of(&context);
    let page = list(&sessions, 1_000).await.unwrap();
    assert_eq!((page.sessions.len(), page.unreadable_sessions), (1_000, 3));
    // The count covers the whole list, not only the page, because an unreadable row has no place in a page.
    let small = list(&sessions, 10).await.unwrap();
    assert_eq!((small.sessions.len(), small.unreadable_sessions), (10, 3));

    // The unreadable rows do not prevent the deletion of another session in the project.
    grown(&context, 1).await;
    let request = DeleteSessionRequest {
        session: "projects/p/sessions/s".into(),
        ..DeleteSessionRequest::default()
    };
    let deleted = sessions.delete_session(Request::new(request)).await;
    assert_eq!(deleted.unwrap().into_inner().deleted_sessions, 1);
}

/// The number of other sessions of the project does not change the number of reads.
#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_reads_no_list() {
    let log = Arc::new(Log::default());
    rows(&log, 2_500, |_| about()).await;
    let context = handlers(&log);
    let sessions = sessions_of(&context);
    for (session, parent) in [("root", ""), ("child", "root"), ("grandchild", "child")] {
        let name = |id: &str| format!("projects/p/sessions/{id}");
        let request = CreateSessionRequest {
            parent: "projects/p".into(),
            session_id: session.into(),
            session: Some(Session {
                parent_session: if parent.is_empty() {
                    String::new()
                } else {
                    name(parent)
                },
                ..Session::default()
            }),
            ..CreateSessionRequest::default()
        };
        sessions
            .create_session(Request::new(request))
            .await
            .unwrap();
    }
    let before = log.reads();
    let request = |with_subagents| DeleteSessionRequest {
        session: "projects/p/sessions/root".into(),
        delete_subagents: with_subagents,
        ..DeleteSessionRequest::default()
    };
    // A session with subagents is deleted only on request, together with them.
    let refused = sessions.delete_session(Request::new(request(false))).await;
    assert_eq!(refused.unwrap_err().code(), Code::FailedPrecondition);
    let deleted = sessions.delete_session(Request::new(request(true))).await;
    assert_eq!(deleted.unwrap().into_inner().deleted_sessions, 3);
    assert_eq!(log.reads().rows, before.rows);
}
