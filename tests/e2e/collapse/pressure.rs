//! Tests of automatic actions: staging passes after the replies, and collapses when the window fills.

use palimpsest_proto::context::v1::session_event::Event;
use palimpsest_proto::context::v1::{
    CollapsePolicy, CompactionMode, EventKind, Level, LevelAction, PromptTooLong,
    RecoveryHandleKind, RemovedItemKind, SkipReason, Trigger,
};
use palimpsest_tests::say::{prepare, user};
use palimpsest_tests::{Server, name};
use serde_json::{Value, json};

use super::{Agent, EFFECTIVE_TOKENS, detail, ids, policy, report, spans, turn};
use crate::SERVER;

#[tokio::test]
async fn p21_spans_are_staged_after_a_reply_and_collapsed_at_ninety_percent() {
    let shared = SERVER.get();
    let mut agent = Agent::new(&shared.0, "fold-auto").await;
    let staged = agent.staged().await;
    let found: Vec<_> = staged
        .iter()
        .map(|span| (span.first_message_id.clone(), span.messages))
        .collect();
    assert_eq!(
        found,
        [(ids(1, 1..2)[0].clone(), 8), (ids(2, 1..2)[0].clone(), 8)]
    );
    assert!(
        staged.iter().all(|span| span.freed_tokens > 1_000),
        "{staged:?}"
    );
    assert!(staged.iter().all(|span| span.summary_message_id.is_empty()));
    // Staging does not change the view.
    let told = agent.events(EventKind::SpansStaged).await;
    let [event] = told.as_slice() else {
        panic!("{told:?}")
    };
    assert_eq!(event.epoch, 0);
    let before = agent.prepare(vec![]).await;
    assert_eq!(
        report(&before.level_reports).skip_reason(),
        SkipReason::UnderThreshold
    );
    assert!(agent.placeholders().is_empty());
    assert!(agent.collapsed().await.is_empty());

    // The third turn fills the window.
    // Five rounds of about 500 tokens bring the view between the thresholds of 90 % and 95 %.
    let work: Vec<_> = turn(3, 5, false).split_off(1);
    let reply = agent.prepare(work).await;
    let done = spans(&reply.level_reports);
    let effect = report(&reply.level_reports).effect.clone().unwrap();
    assert_eq!(effect.trigger(), Trigger::Auto);
    assert!(
        effect.before_tokens >= EFFECTIVE_TOKENS * 9 / 10,
        "{effect:?}"
    );
    assert!(
        effect.before_tokens < EFFECTIVE_TOKENS * 95 / 100,
        "{effect:?}"
    );
    assert_eq!(
        effect.freed_tokens,
        effect.before_tokens - effect.after_tokens
    );
    let tokens = reply.tokens.as_ref().unwrap().total_tokens;
    assert_eq!(tokens, effect.after_tokens);
    assert!(tokens <= EFFECTIVE_TOKENS * 7 / 10, "{tokens}");
    assert_eq!(reply.epoch, 1);
    assert!(reply.sendable);

    // The older span is safer. It is collapsed alone if that is sufficient.
    let keys: Vec<_> = done.iter().map(|span| span.collapse_id.clone()).collect();
    assert_eq!(keys[0], staged[0].collapse_id);
    assert!(
        done.windows(2).all(|two| two[0].risk <= two[1].risk),
        "{done:?}"
    );
    let placeholders = agent.placeholders();
    let told: Vec<_> = done.iter().map(|span| span.summary.clone()).collect();
    assert_eq!(placeholders, told);
    assert!(placeholders[0].contains(&format!("collapse_id \"{}\"", keys[0])));
    let mut collapsed = ids(1, 1..9);
    if done.len() == 2 {
        collapsed.extend(ids(2, 1..9));
    }
    assert_eq!(agent.collapsed().await, collapsed);
    let said = agent.texts();
    let said = Value::from(said).to_string();
    for stays in [
        "question 1", "answer 1", "question 2", "answer 2", "question 3",
    ] {
        assert!(said.contains(stays), "{stays}: {said}");
    }

    // The effect on the prompt cache, and the recovery handles for the removed content.
    let ledger = reply.cache_ledger.unwrap();
    assert_eq!(ledger.cause(), EventKind::SpansCollapsed);
    assert_eq!(ledger.cause_revision, reply.revision);
    assert_eq!(ledger.saved_tokens, effect.freed_tokens);
    let recovery = reply.recovery.unwrap();
    assert_eq!(recovery.total_items as usize, done.len());
    let item = &recovery.items[0];
    assert_eq!(
        (item.kind(), item.level(), item.cause()),
        (
            RemovedItemKind::Span,
            Level::Collapse,
            EventKind::SpansCollapsed
        )
    );
    assert_eq!(
        (item.handle_kind(), &item.handle),
        (RecoveryHandleKind::Placeholder, &keys[0])
    );
    // The collapse is the last event, so the revision before it has the complete view.
    assert_eq!(item.restore_to_revision, reply.revision - 1);
    assert_eq!(item.messages, 8);
    let tool = item.tool_use.as_ref().unwrap();
    let input: Value = serde_json::from_slice(&tool.input_json).unwrap();
    assert_eq!(
        (&*tool.name, input),
        ("ReadTranscript", json!({"collapse_id": keys[0]}))
    );

    // A watch sends the same event.
    let event = agent.next(0, EventKind::SpansCollapsed).await;
    assert_eq!((event.revision, event.epoch), (reply.revision, 1));
    let told = event.effect.unwrap();
    assert_eq!(
        (told.before_tokens, told.freed_tokens, told.trigger()),
        (effect.before_tokens, effect.freed_tokens, Trigger::Auto)
    );
    match event.event {
        Some(Event::SpansCollapsed(event)) => assert_eq!(event.spans, done),
        other => panic!("{other:?}"),
    }
    // Until the next change, the view only grows.
    let epoch = agent.prepare(vec![]).await.epoch;
    assert_eq!(epoch, 1);
    assert_eq!(agent.whole().await, agent.array.messages);
}

#[tokio::test]
async fn at_ninety_five_percent_all_staged_spans_are_collapsed() {
    let shared = SERVER.get();
    let mut agent = Agent::new(&shared.0, "fold-all").await;
    let staged = agent.staged().await;
    let work: Vec<_> = turn(3, 11, false).split_off(1);
    let reply = agent.prepare(work).await;
    let effect = report(&reply.level_reports).effect.clone().unwrap();
    assert!(
        effect.before_tokens >= EFFECTIVE_TOKENS * 95 / 100,
        "{effect:?}"
    );
    let keys = |spans: &[palimpsest_proto::context::v1::Span]| -> Vec<String> {
        spans.iter().map(|span| span.collapse_id.clone()).collect()
    };
    assert_eq!(keys(&spans(&reply.level_reports)), keys(&staged));
    assert_eq!(agent.placeholders().len(), 2);
    // No span is left, because the current turn is never collapsed.
    let next = agent.prepare(vec![]).await;
    assert_eq!(report(&next.level_reports).action(), LevelAction::Skipped);
}

#[tokio::test]
async fn a_dry_run_reports_the_collapse_and_changes_nothing() {
    let shared = SERVER.get();
    let mut agent = Agent::new(&shared.0, "fold-dry").await;
    agent.staged().await;
    let (before, whole) = (agent.prepare(vec![]).await.revision, agent.whole().await);
    let work: Vec<_> = turn(3, 5, false).split_off(1);
    let mut request = agent.request(work.clone());
    request.dry_run = true;
    let would = agent.send(request).await;
    let would_fold = report(&would.level_reports);
    assert_eq!(would_fold.action(), LevelAction::WouldApply);
    assert_eq!(agent.prepare(vec![]).await.revision, before);
    assert_eq!(agent.whole().await, whole);
    // The real call does exactly that.
    let done = agent.prepare(work).await;
    assert_eq!(spans(&done.level_reports), detail(would_fold));
    assert_eq!(
        done.cache_ledger.unwrap().saved_tokens,
        would.cache_ledger.unwrap().saved_tokens
    );
}

#[tokio::test]
async fn a_rejected_prompt_collapses_all_staged_spans_once() {
    let shared = SERVER.get();
    let mut agent = Agent::new(&shared.0, "fold-overflow").await;
    let staged = agent.staged().await;
    let mut request = agent.request(vec![]);
    request.messages = vec![user("is it too long?")];
    request.request_id = "refused-once".into();
    request.prompt_too_long = Some(PromptTooLong::default());
    let reply = agent.send(request.clone()).await;
    assert_eq!(spans(&reply.level_reports).len(), staged.len());
    let effect = report(&reply.level_reports).effect.clone().unwrap();
    assert_eq!(effect.trigger(), Trigger::PromptTooLong);
    // The estimate is below the threshold. The provider's rejection alone causes the collapse.
    assert!(effect.before_tokens < EFFECTIVE_TOKENS * 9 / 10);
    // A repeated request does not act again.
    request.known_etag = agent.array.etag.clone();
    let again = agent.send(request).await;
    assert_eq!((again.revision, again.epoch), (reply.revision, reply.epoch));
    assert_eq!(agent.events(EventKind::SpansCollapsed).await.len(), 1);
}

#[tokio::test]
async fn a_disabled_level_is_reported_as_the_reason() {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let request = prepare(&name("fold-off"), vec![user("hello")]);
    let reply = client.prepare_context(request).await.unwrap().into_inner();
    let told = report(&reply.level_reports);
    assert_eq!(
        (told.action(), told.skip_reason()),
        (LevelAction::Skipped, SkipReason::Disabled)
    );
    let mut off = policy();
    off.collapse.get_or_insert_default().enabled = Some(false);
    let mut agent = Agent::with_policy(&shared.0, "fold-off-full", off).await;
    let mut said = turn(1, 8, true);
    said.extend(turn(2, 8, true));
    said.extend(turn(3, 0, false));
    let mut request = agent.request(said);
    request.set_compaction_mode(CompactionMode::Never);
    let reply = agent.send(request).await;
    assert!(reply.tokens.unwrap().total_tokens > EFFECTIVE_TOKENS * 9 / 10);
    assert_eq!(
        report(&reply.level_reports).skip_reason(),
        SkipReason::Disabled
    );
    assert!(agent.events(EventKind::SpansStaged).await.is_empty());
}

#[tokio::test]
async fn spans_with_high_risk_or_little_gain_are_not_collapsed() {
    let shared = SERVER.get();
    let of = |max_risk, min_freed_tokens| {
        let mut policy = policy();
        policy.collapse = Some(CollapsePolicy {
            max_risk: Some(max_risk),
            min_freed_tokens: Some(min_freed_tokens),
            ..policy.collapse.unwrap()
        });
        policy
    };
    // No span has a risk of 0, and no span frees 9,000 tokens.
    for (session, policy) in [("fold-risk", of(0.0, 50)), ("fold-gain", of(1.0, 9_000))] {
        let mut agent = Agent::with_policy(&shared.0, session, policy).await;
        assert!(agent.staged().await.is_empty(), "{session}");
        let work: Vec<_> = turn(3, 5, false).split_off(1);
        let reply = agent.prepare(work).await;
        assert_eq!(
            report(&reply.level_reports).skip_reason(),
            SkipReason::NothingEligible
        );
    }
}

#[tokio::test]
async fn spans_staged_before_a_kill_are_collapsed_after_the_restart() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let mut agent = Agent::new(&server, "fold-kill").await;
    let staged = agent.staged().await;
    server.kill();
    let server = Server::start(data.path(), &[]);
    let mut agent = agent.at(&server).await;
    let work: Vec<_> = turn(3, 5, false).split_off(1);
    let reply = agent.prepare(work).await;
    let done = spans(&reply.level_reports);
    assert_eq!(done[0].collapse_id, staged[0].collapse_id);
    let folded = agent.whole().await;
    assert_eq!(folded, agent.array.messages);
    server.kill();
    let server = Server::start(data.path(), &[]);
    let mut agent = agent.at(&server).await;
    assert_eq!(agent.whole().await, folded);
    // The service still accepts the agent's etag.
    let next = agent.prepare(vec![]).await;
    assert_eq!((next.keep_messages as usize, next.epoch), (folded.len(), 1));
}

/// A crash after the commit loses the follow-up. The session still shows that spans are due, so the next call stages
/// them.
#[tokio::test]
async fn staging_lost_in_a_crash_starts_with_the_next_call() {
    let data = tempfile::tempdir().unwrap();
    // The first commit creates the session, and the second one is that of the reply.
    let crash = [("CRASH_AT", "session.committed:2")];
    let server = Server::start_with(data.path(), &[], &crash);
    let mut agent = Agent::new(&server, "fold-lost").await;
    let mut said = turn(1, 4, true);
    said.extend(turn(2, 4, true));
    said.extend(turn(3, 0, false));
    let request = agent.request(said);
    assert!(agent.client.prepare_context(request).await.is_err());
    server.wait();
    let server = Server::start(data.path(), &[]);
    let mut agent = agent.at(&server).await;
    assert!(agent.events(EventKind::SpansStaged).await.is_empty());
    let staged = agent.prepare_and_stage(vec![]).await;
    assert_eq!(staged.len(), 2, "{staged:?}");
}
