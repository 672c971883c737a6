//! Tests that collapsed spans return after an undo or a rewind into them, and leave with their turn.

use palimpsest_proto::context::v1::rewind_session_request::TargetMessage;
use palimpsest_proto::context::v1::session_event::Event;
use palimpsest_proto::context::v1::{
    EventKind, ListEventsRequest, MessageFilter, RestoreContextRequest, RewindSessionRequest,
    SnipRequest, Visibility,
};
use palimpsest_tests::refused;
use palimpsest_tests::say::{assistant, user, uuid};
use palimpsest_tests::{Server, array::check_prefix};
use tonic::Code;

use super::{Agent, ids};
use crate::SERVER;

impl Agent {
    fn back_to(&self, to_revision: u64) -> RestoreContextRequest {
        RestoreContextRequest {
            session: self.session.clone(),
            to_revision,
            ..RestoreContextRequest::default()
        }
    }

    /// Asserts that a repeat added no event. Spans can be staged in the background meanwhile.
    async fn check_no_event_after(&mut self, revision: u64) {
        let later = ListEventsRequest {
            session: self.session.clone(),
            after_revision: revision,
            ..ListEventsRequest::default()
        };
        let listed = self.sessions.list_events(later).await.unwrap();
        let mut events = listed.into_inner().events;
        events.retain(|event| !matches!(event.event, Some(Event::SpansStaged(_))));
        assert_eq!(events, []);
    }

    fn rewind_to(&self, id: String) -> RewindSessionRequest {
        RewindSessionRequest {
            session: self.session.clone(),
            target_message: Some(TargetMessage::ToMessageId(id)),
            ..RewindSessionRequest::default()
        }
    }

    /// Returns the id of a turn, by its question.
    fn tag(&self, question: &str) -> String {
        let mut blocks = self.texts().into_iter().flat_map(|message| {
            let blocks = message["content"].as_array().cloned();
            blocks.unwrap_or_default()
        });
        let text = blocks.find_map(|block| {
            let text = block["text"].as_str()?;
            text.strip_prefix(question)?
                .strip_prefix("\n[id:")
                .map(ToOwned::to_owned)
        });
        text.unwrap().trim_end_matches(']').to_owned()
    }
}

#[tokio::test]
async fn p13_undo_restores_a_collapsed_span_exactly_and_can_be_undone() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let mut agent = Agent::new(&server, "unfold").await;
    agent.staged().await;
    let before = agent.prepare(vec![]).await.revision;
    let original = agent.whole().await;
    agent.folded(agent.fold_one()).await;
    let folded = agent.whole().await;
    assert_ne!(folded, original);
    let said = vec![assistant("an answer"), user("a later question")];
    agent.prepare(said).await;
    let (later, with_later) = (agent.prepare(vec![]).await.revision, agent.whole().await);
    check_prefix(&folded[..folded.len() - 1], &with_later);

    server.kill();
    let server = Server::start(data.path(), &[]);
    let mut agent = agent.at(&server).await;
    let mut dry = agent.back_to(before);
    dry.dry_run = true;
    let would = agent.client.restore_context(dry).await.unwrap();
    assert_eq!(would.into_inner().restored.unwrap().undone.len(), 1);
    assert_eq!(agent.whole().await, with_later);
    let undo = agent.client.restore_context(agent.back_to(before)).await;
    let undo = undo.unwrap().into_inner();
    assert_eq!(undo.restored.unwrap().undone.len(), 1);
    assert_eq!(
        undo.cache_ledger.unwrap().cause(),
        EventKind::ContextRestored
    );
    let back = undo.recovery.unwrap();
    assert_eq!((back.total_returned_items, back.total_items), (1, 0));
    agent.prepare(vec![]).await;
    let unfolded = agent.whole().await;
    assert_eq!(unfolded, agent.array.messages);
    check_prefix(&original, &unfolded);
    assert_eq!(unfolded.len(), original.len() + 2);
    assert!(agent.collapsed().await.is_empty() && agent.placeholders().is_empty());

    // An undo of the undo collapses the span again.
    agent
        .client
        .restore_context(agent.back_to(later))
        .await
        .unwrap();
    agent.prepare(vec![]).await;
    assert_eq!(agent.whole().await, with_later);
    assert_eq!(agent.collapsed().await, ids(1, 1..9));
}

#[tokio::test]
async fn a_rewind_into_a_collapsed_span_restores_it_first() {
    let shared = SERVER.get();
    let mut agent = Agent::new(&shared.0, "unfold-rewind").await;
    agent.staged().await;
    agent.prepare(vec![]).await;
    let original = agent.whole().await;
    let mut all = agent.fold();
    all.target_tokens = Some(0);
    assert_eq!(agent.folded(all).await.len(), 2);
    let folded = agent.whole().await;
    // The target is the result of the second round in the first turn. Everything up to it is restored.
    let mut dry = agent.rewind_to(uuid(104));
    dry.dry_run = true;
    agent.client.rewind_session(dry).await.unwrap();
    assert_eq!(agent.whole().await, folded);
    let mut request = agent.rewind_to(uuid(104));
    request.request_id = "rewind-once".into();
    let done = agent.client.rewind_session(request.clone()).await.unwrap();
    let done = done.into_inner();
    assert_eq!(done.rewound.as_ref().unwrap().to_message_id, uuid(104));
    agent.client.rewind_session(request).await.unwrap();
    agent.check_no_event_after(done.revision).await;
    let reply = agent.prepare(vec![]).await;
    assert!(reply.sendable);
    // Five messages lead up to the target: the question and two rounds of a call and a result.
    assert_eq!(agent.array.messages, original[..5]);
    assert!(agent.collapsed().await.is_empty());
    let filter = MessageFilter {
        visibilities: vec![Visibility::Rewound.into()],
        ..MessageFilter::default()
    };
    let rewound: Vec<_> = agent
        .list(filter)
        .await
        .into_iter()
        .map(|message| message.id)
        .collect();
    let mut expected = ids(1, 5..9);
    expected.push(uuid(199));
    expected.extend(ids(2, 0..9));
    expected.extend([uuid(299), uuid(300)]);
    assert_eq!(rewound, expected);
}

#[tokio::test]
async fn a_late_repeat_of_a_rewind_into_a_collapsed_span_changes_nothing() {
    let shared = SERVER.get();
    let mut agent = Agent::new(&shared.0, "unfold-repeat").await;
    agent.staged().await;
    agent.folded(agent.fold_one()).await;
    let (folded, revision) = (agent.whole().await, agent.prepare(vec![]).await.revision);
    let mut request = agent.rewind_to(uuid(104));
    request.request_id = "rewind-once".into();
    request.expected_revision = Some(revision);
    let first = agent.client.rewind_session(request.clone()).await.unwrap();
    // The undo collapses the span again.
    let undo = agent.client.restore_context(agent.back_to(revision)).await;
    undo.unwrap();
    assert_eq!(agent.whole().await, folded);
    let undone = agent.prepare(vec![]).await;
    let again = agent.client.rewind_session(request).await.unwrap();
    let again = again.into_inner();
    assert_eq!(again.rewound, first.into_inner().rewound);
    agent.check_no_event_after(undone.revision).await;
    assert_eq!(agent.whole().await, folded);
}

#[tokio::test]
async fn a_rewind_after_a_collapsed_span_keeps_it() {
    let shared = SERVER.get();
    let mut agent = Agent::new(&shared.0, "rewind-behind").await;
    agent.staged().await;
    agent.folded(agent.fold_one()).await;
    let folded = agent.whole().await;
    agent
        .client
        .rewind_session(agent.rewind_to(uuid(200)))
        .await
        .unwrap();
    agent.prepare(vec![]).await;
    assert_eq!(agent.placeholders().len(), 1);
    check_prefix(&agent.array.messages, &folded);
}

#[tokio::test]
async fn a_snip_of_a_turn_removes_its_collapsed_span() {
    let shared = SERVER.get();
    let mut agent = Agent::new(&shared.0, "fold-snip").await;
    agent.staged().await;
    let span = agent.folded(agent.fold_one()).await.remove(0);
    let folded = agent.whole().await;
    let before = agent.prepare(vec![]).await.revision;
    // Messages behind a placeholder are not visible and therefore cannot be snipped.
    let mut request = SnipRequest {
        session: agent.session.clone(),
        message_ids: vec![uuid(102)],
        ..SnipRequest::default()
    };
    let hidden = agent.client.snip(request.clone()).await.unwrap_err();
    refused(&hidden, Code::FailedPrecondition, "MESSAGE_NOT_VISIBLE");
    request.message_ids.clear();
    request.turn_ids = vec![agent.tag("question 1")];
    let done = agent.client.snip(request).await.unwrap().into_inner();
    let mut all = ids(1, 0..9);
    all.push(uuid(199));
    assert_eq!(done.snipped.unwrap().message_ids, all);
    agent.prepare(vec![]).await;
    assert!(agent.placeholders().is_empty() && agent.collapsed().await.is_empty());
    // The span can still be read by its id.
    let filter = MessageFilter {
        collapse_id: span.collapse_id.clone(),
        ..MessageFilter::default()
    };
    assert_eq!(agent.list(filter).await.len(), 8);
    agent
        .client
        .restore_context(agent.back_to(before))
        .await
        .unwrap();
    agent.prepare(vec![]).await;
    assert_eq!(agent.whole().await, folded);
    assert_eq!(agent.collapsed().await, ids(1, 1..9));
}
