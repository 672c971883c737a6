//! Tests of the updates of session memory: their time, their coverage, and sessions without any.

use palimpsest_proto::context::v1::{
    CreateSessionRequest, EventKind, ListEventsRequest, MemorySource, MemoryState,
    RewindSessionRequest, Session, rewind_session_request, session_event,
};
use palimpsest_tests::say::{uuid, with_id};

use super::*;

#[tokio::test]
async fn a_session_gets_its_template_and_first_version_automatically() {
    let running = SERVER.get();
    let (server, folder) = &*running;
    let (mut client, mut sessions) = (server.context().await, server.sessions().await);
    let session = named("first");
    // An update needs `start_tokens` (10,000), so 7,000 tokens start none.
    say(&mut client, &session, turn(1, 2, 7_000)).await;
    let before = memory(&mut client, &session).await;
    assert_eq!(before.state(), MemoryState::NotStarted, "{before:#?}");
    assert_eq!((before.version, before.text.as_str()), (0, ""));
    say(&mut client, &session, turn(2, 2, 4_000)).await;
    let ready = memory_when(&mut client, &session, |it| it.state() == MemoryState::Ready).await;
    // The template is version 1.
    assert_eq!(
        (ready.version, ready.source()),
        (2, MemorySource::Extractive)
    );
    assert!(section(&ready, "Task specification").contains("mend module 1"));
    assert!(section(&ready, "Files and Functions").contains("module_2_1.rs"));
    assert_eq!((ready.behind_messages, ready.behind_tokens), (0, 0));
    assert_eq!(ready.sections.len(), 10);
    let text = file_when(&file(folder.path(), &session), |text| text == ready.text).await;
    assert!(text.starts_with("# Session Title\n_"), "{text}");
    // The events that a watch sends.
    let list = ListEventsRequest {
        session: session.clone(),
        kinds: vec![
            EventKind::MemoryUpdateStarted.into(),
            EventKind::MemoryUpdated.into(),
        ],
        ..ListEventsRequest::default()
    };
    let events = sessions
        .list_events(list)
        .await
        .unwrap()
        .into_inner()
        .events;
    let told: Vec<_> = events.into_iter().filter_map(|event| event.event).collect();
    let [
        session_event::Event::MemoryUpdated(template),
        session_event::Event::MemoryUpdateStarted(started),
        session_event::Event::MemoryUpdated(first),
    ] = told.as_slice()
    else {
        panic!("{told:#?}");
    };
    assert_eq!(template.source(), MemorySource::Template);
    assert_eq!((started.version, first.version), (2, 2));
    assert!(template.changed_sections.is_empty());
    assert!(first.changed_sections.len() >= 5, "{first:?}");
    assert_eq!(
        first.last_summarized_message_id,
        ready.last_summarized_message_id
    );
}

#[tokio::test]
async fn an_update_needs_5000_tokens_and_three_calls_or_a_turn_without_calls() {
    let running = SERVER.get();
    let mut client = running.0.context().await;
    let session = named("update");
    say(&mut client, &session, turn(1, 3, 12_000)).await;
    let first = memory_when(&mut client, &session, |it| it.state() == MemoryState::Ready).await;
    // Enough tokens, but only two calls in an unfinished turn.
    let mut next = turn(2, 2, 6_500);
    next.pop();
    say(&mut client, &session, next).await;
    update_another_session(&mut client, "update-probe").await;
    let still = memory(&mut client, &session).await;
    assert_eq!(still.version, first.version, "two calls are too few");
    assert!(still.behind_tokens >= 5_000, "{still:#?}");
    assert_eq!(still.state(), MemoryState::Ready, "nothing is due");
    // The third call.
    say(
        &mut client,
        &session,
        vec![call("toolu_x", "/repo/x.rs"), result("toolu_x", "ok")],
    )
    .await;
    let second = memory_when(&mut client, &session, |it| it.version > first.version).await;
    assert_eq!(second.version, first.version + 1, "no other update ran");
    assert!(section(&second, "Files and Functions").contains("x.rs"));
    // A turn without calls can make an update due, but only with enough tokens.
    say(
        &mut client,
        &session,
        vec![says("Done."), asks(&words(3_000)), says("I see.")],
    )
    .await;
    update_another_session(&mut client, "update-second-probe").await;
    assert_eq!(memory(&mut client, &session).await.version, second.version);
    say(
        &mut client,
        &session,
        vec![asks(&words(3_000)), says("I see that too.")],
    )
    .await;
    let third = memory_when(&mut client, &session, |it| it.version > second.version).await;
    assert_eq!(third.version, second.version + 1, "no other update ran");
}

#[tokio::test]
async fn coverage_waits_for_open_calls() {
    let running = SERVER.get();
    let mut client = running.0.context().await;
    let session = named("gate");
    // A message with an open call is incomplete, so session memory must not replace it.
    let mut open = turn(1, 3, 12_000);
    open.push(asks("And now the exporter."));
    open.push(with_id(&uuid(71), call("toolu_open", "/repo/exporter.rs")));
    say(&mut client, &session, open).await;
    let written = memory_when(&mut client, &session, |it| it.version == 2).await;
    assert_eq!(
        written.last_summarized_message_id, "",
        "a call is open: {written:#?}"
    );
    assert!(section(&written, "Task specification").contains("And now the exporter"));
    say(
        &mut client,
        &session,
        vec![with_id(&uuid(72), result("toolu_open", "fn export"))],
    )
    .await;
    let after = memory(&mut client, &session).await;
    assert_eq!(after.version, 2, "no new text was due");
    assert_ne!(after.last_summarized_message_id, "");
    assert_eq!(
        after.behind_messages, 2,
        "the open call and its result were not read"
    );
}

#[tokio::test]
async fn a_rewind_before_the_coverage_makes_session_memory_stale() {
    let running = SERVER.get();
    let mut client = running.0.context().await;
    let session = named("rewind");
    let mut messages = turn(1, 3, 9_000);
    messages.push(with_id(&uuid(81), asks("Rename the importer to Gobbler.")));
    messages.push(says(&format!("It is Gobbler now. {}", words(3_000))));
    say(&mut client, &session, messages).await;
    let ready = memory_when(&mut client, &session, |it| it.state() == MemoryState::Ready).await;
    assert!(ready.text.contains("Gobbler"));
    let request = RewindSessionRequest {
        session: session.clone(),
        target_message: Some(rewind_session_request::TargetMessage::BeforeMessageId(
            uuid(81),
        )),
        ..RewindSessionRequest::default()
    };
    client.rewind_session(request).await.unwrap();
    let stale = memory(&mut client, &session).await;
    assert_eq!(stale.state(), MemoryState::Stale, "{stale:#?}");
    say(&mut client, &session, turn(2, 3, 7_000)).await;
    let fresh = memory_when(&mut client, &session, |it| it.state() == MemoryState::Ready).await;
    assert!(!fresh.text.contains("Gobbler"), "{}", fresh.text);
    assert!(fresh.text.contains("mend module 1") && fresh.text.contains("mend module 2"));
}

#[tokio::test]
async fn subagents_and_opted_out_sessions_have_no_session_memory() {
    let running = SERVER.get();
    let (mut client, mut sessions) = (running.0.context().await, running.0.sessions().await);
    let parent = named("parent");
    say(&mut client, &parent, vec![asks("hello")]).await;
    for id in ["memory-child", "memory-off"] {
        let mut session = Session::default();
        if id == "memory-child" {
            session.parent_session.clone_from(&parent);
        } else {
            let policy = session.policy_overrides.get_or_insert_default();
            policy.session_memory.get_or_insert_default().enabled = Some(false);
        }
        let create = CreateSessionRequest {
            parent: "projects/p".into(),
            session_id: id.into(),
            session: Some(session),
            ..CreateSessionRequest::default()
        };
        sessions.create_session(create).await.unwrap();
        say(&mut client, &name(id), turn(1, 3, 15_000)).await;
    }
    update_another_session(&mut client, "disabled-probe").await;
    for id in ["memory-child", "memory-off"] {
        let memory = memory(&mut client, &name(id)).await;
        assert_eq!(
            (memory.state(), memory.version),
            (MemoryState::Disabled, 0),
            "{id}"
        );
    }
}

#[tokio::test]
async fn a_busy_project_does_not_delay_the_updates_of_another() {
    let folder = tempfile::tempdir().unwrap();
    // All sessions are due before the worker starts, and the session of the quiet project is due last.
    let server = own(folder.path(), &["--set", "worker.enabled=false"]);
    let mut client = server.context().await;
    let flood: Vec<_> = (0..30)
        .map(|number| format!("projects/flood/sessions/s{number}"))
        .collect();
    let quiet = "projects/quiet/sessions/s";
    for session in flood.iter().map(String::as_str).chain([quiet]) {
        say(&mut client, session, turn(1, 3, 12_000)).await;
    }
    server.stop();

    let server = own(folder.path(), &["--set", "worker.concurrency=1"]);
    let mut client = server.context().await;
    let updated = async |client: &mut Context, session: &str| {
        let ready = memory_when(client, session, |it| it.state() == MemoryState::Ready).await;
        let at = ready.update_time.unwrap();
        (at.seconds, at.nanos)
    };
    let quiet = updated(&mut client, quiet).await;
    let mut earlier = 0;
    for session in &flood {
        // With one worker slot, the order of the updates is the order of the queue.
        earlier += usize::from(updated(&mut client, session).await < quiet);
    }
    // In the order of the due times, all 30 would come first.
    assert!(earlier < 8, "{earlier} sessions of the busy project");
}

/// Makes another session due and waits for its update. The worker starts due sessions in order, so the update of a
/// session that was due before has started.
async fn update_another_session(client: &mut Context, session: &str) {
    let session = named(session);
    say(client, &session, turn(1, 3, 12_000)).await;
    memory_when(client, &session, |it| it.state() == MemoryState::Ready).await;
}
