//! Tests of `GetSessionMemory`: its fields, its options and its waiting.

#![expect(clippy::disallowed_methods, reason = "a worker takes real time")]

use std::collections::BTreeMap;

use palimpsest_proto::context::v1::session_event::Event;
use palimpsest_proto::context::v1::{
    DeleteSessionRequest, EventKind, ListEventsRequest, MemoryState,
};
use palimpsest_tests::{refused, refused_field};
use tonic::Code;

use super::*;

async fn get(
    client: &mut Context,
    session: &str,
    wait_ms: i64,
    known_version: u64,
) -> (SessionMemory, bool) {
    let request = GetSessionMemoryRequest {
        session: session.to_owned(),
        wait: (wait_ms > 0).then(|| prost_types::Duration {
            seconds: wait_ms / 1_000,
            nanos: i32::try_from(wait_ms % 1_000 * 1_000_000).unwrap(),
        }),
        known_version,
        ..GetSessionMemoryRequest::default()
    };
    let response = client
        .get_session_memory(request)
        .await
        .unwrap()
        .into_inner();
    (response.memory.unwrap(), response.unchanged)
}

#[tokio::test]
async fn a_read_waits_for_a_running_update_only() {
    let running = SERVER.get();
    let mut client = running.0.context().await;
    let session = named("wait");
    say(&mut client, &session, vec![asks("hello")]).await;
    let began = Instant::now();
    let (small, _) = get(&mut client, &session, 60_000, 0).await;
    assert_eq!(small.state(), MemoryState::NotStarted);
    assert!(
        began.elapsed() < Duration::from_mins(1),
        "the read waited although no update is running"
    );
    say(&mut client, &session, turn(1, 3, 12_000)).await;
    let (ready, _) = get(&mut client, &session, 30_000, 0).await;
    assert_eq!(ready.state(), MemoryState::Ready, "{ready:#?}");
    assert!(!ready.running && ready.run_start_time.is_none() && ready.last_failure.is_none());
    assert!(ready.update_time.is_some() && ready.run_duration.is_some());
    assert_eq!(ready.reference, "p/memory-wait/session-memory/summary.md");
    assert_eq!(ready.sha256.len(), 32);
    assert!(ready.tokens > 0 && ready.source_revision > 0);
    let bodies: u32 = ready.sections.iter().map(|section| section.tokens).sum();
    assert!(bodies > 0 && bodies <= ready.tokens);
}

#[tokio::test]
async fn a_known_version_is_returned_without_its_text() {
    let running = SERVER.get();
    let mut client = running.0.context().await;
    let session = named("known");
    say(&mut client, &session, turn(1, 3, 12_000)).await;
    let ready = memory_when(&mut client, &session, |it| it.state() == MemoryState::Ready).await;
    let (known, unchanged) = get(&mut client, &session, 0, ready.version).await;
    assert!(unchanged && known.text.is_empty() && known.sections.is_empty());
    assert_eq!((known.version, known.sha256), (ready.version, ready.sha256));
    let (other, unchanged) = get(&mut client, &session, 0, ready.version - 1).await;
    assert!(!unchanged && other.text == ready.text);
}

#[tokio::test]
async fn invalid_requests_and_deleted_sessions_are_rejected() {
    let running = SERVER.get();
    let (server, folder) = &*running;
    let (mut client, mut sessions) = (server.context().await, server.sessions().await);
    let ask = |session: &str, seconds: i64| GetSessionMemoryRequest {
        session: session.to_owned(),
        wait: Some(prost_types::Duration { seconds, nanos: 0 }),
        known_version: 0,
        ..GetSessionMemoryRequest::default()
    };
    let session = named("refused");
    let missing = client
        .get_session_memory(ask(&session, 0))
        .await
        .unwrap_err();
    refused(&missing, Code::NotFound, "SESSION_NOT_FOUND");
    say(&mut client, &session, turn(1, 3, 12_000)).await;
    for seconds in [-1, 61] {
        let wrong = client
            .get_session_memory(ask(&session, seconds))
            .await
            .unwrap_err();
        refused_field(&wrong, "wait");
    }
    let ready = memory_when(&mut client, &session, |it| it.state() == MemoryState::Ready).await;
    let path = file(folder.path(), &session);
    file_when(&path, |text| text == ready.text).await;
    let delete = DeleteSessionRequest {
        session: session.clone(),
        ..DeleteSessionRequest::default()
    };
    sessions.delete_session(delete).await.unwrap();
    assert!(!path.exists(), "the file of a deleted session remains");
    say(&mut client, &session, vec![asks("hello again")]).await;
    let fresh = memory(&mut client, &session).await;
    assert_eq!((fresh.state(), fresh.version), (MemoryState::NotStarted, 0));
}

#[tokio::test]
async fn an_earlier_version_is_read_by_the_revision_of_its_event() {
    let running = SERVER.get();
    let mut client = running.0.context().await;
    let mut sessions = running.0.sessions().await;
    let session = named("versions");
    let mut texts = BTreeMap::new();
    for number in 1..=2 {
        say(&mut client, &session, turn(number, 3, 12_000)).await;
        let last = texts.last_key_value().map_or(0, |(version, _)| *version);
        let is_new =
            |memory: &SessionMemory| memory.state() == MemoryState::Ready && memory.version > last;
        let memory = memory_when(&mut client, &session, is_new).await;
        texts.insert(memory.version, memory.text);
    }
    let list = ListEventsRequest {
        session: session.clone(),
        kinds: vec![EventKind::MemoryUpdated.into()],
        ..ListEventsRequest::default()
    };
    let events = sessions
        .list_events(list)
        .await
        .unwrap()
        .into_inner()
        .events;
    let mut at = async |revision: u64, wait| {
        let request = GetSessionMemoryRequest {
            session: session.clone(),
            revision,
            wait,
            ..GetSessionMemoryRequest::default()
        };
        client.get_session_memory(request).await
    };
    for event in &events {
        let memory = at(event.revision, None).await.unwrap().into_inner().memory;
        let memory = memory.unwrap();
        let Some(Event::MemoryUpdated(updated)) = &event.event else {
            panic!("{event:?}");
        };
        assert_eq!(memory.version, updated.version);
        // The template is a version too, and no read above waited for it.
        if let Some(text) = texts.remove(&memory.version) {
            assert_eq!(memory.text, text);
        }
    }
    assert_eq!(texts, BTreeMap::new(), "{events:?}");
    let before = at(1, None).await.unwrap().into_inner().memory.unwrap();
    assert_eq!(before.state(), MemoryState::NotStarted);
    let unknown = at(1_000_000, None).await.unwrap_err();
    refused(&unknown, Code::NotFound, "REVISION_NOT_FOUND");
    let second = prost_types::Duration {
        seconds: 1,
        nanos: 0,
    };
    // A read of an old revision has nothing to wait for, so the two options exclude each other.
    let both = at(1, Some(second)).await.unwrap_err();
    refused_field(&both, "wait");
}
