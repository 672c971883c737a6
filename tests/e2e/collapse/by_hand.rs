//! Tests of `Compact` with the level COLLAPSE.

use palimpsest_proto::context::v1::{EventKind, LevelAction, SkipReason, Trigger};
use palimpsest_tests::refused;
use palimpsest_tests::say::user;
use tonic::Code;

use super::{Agent, detail, ids, policy, report, spans, turn};
use crate::SERVER;

#[tokio::test]
async fn a_target_collapses_the_safest_spans_until_it_is_reached() {
    let shared = SERVER.get();
    let mut agent = Agent::new(&shared.0, "hand-target").await;
    let staged = agent.staged().await;
    // A response proves that the view was sent. The next pass finds the same spans.
    let work = turn(3, 1, false).split_off(1);
    assert_eq!(agent.prepare_and_stage(work).await, staged);
    let before = agent.prepare(vec![]).await;
    let mut dry = agent.fold_one();
    dry.dry_run = true;
    let would = agent.client.compact(dry).await.unwrap().into_inner();
    assert_eq!(
        report(&would.level_reports).action(),
        LevelAction::WouldApply
    );
    assert_eq!(agent.prepare(vec![]).await.revision, before.revision);

    let reply = agent.client.compact(agent.fold_one()).await.unwrap();
    let reply = reply.into_inner();
    let done = spans(&reply.level_reports);
    assert_eq!(done, detail(report(&would.level_reports)));
    let [only] = done.as_slice() else {
        panic!("{done:?}")
    };
    assert_eq!(only.collapse_id, staged[0].collapse_id);
    let effect = report(&reply.level_reports).effect.clone().unwrap();
    assert_eq!(effect.trigger(), Trigger::Manual);
    assert_eq!(effect.after_tokens, reply.tokens.unwrap().total_tokens);
    assert_eq!(
        reply.cache_ledger.unwrap().cause(),
        EventKind::SpansCollapsed
    );
    assert_eq!(reply.recovery.unwrap().total_items, 1);
    assert_eq!(agent.collapsed().await, ids(1, 1..9));

    // A target of zero tokens collapses all spans that can be collapsed.
    let mut all = agent.fold();
    all.target_tokens = Some(0);
    assert_eq!(agent.folded(all.clone()).await.len(), 1);
    assert_eq!(agent.placeholders().len(), 2);
    let nothing = agent.client.compact(all).await.unwrap_err();
    let metadata = refused(&nothing, Code::FailedPrecondition, "NOTHING_TO_COMPACT");
    assert_eq!(metadata["skip_reason"], "NOTHING_ELIGIBLE");
}

#[tokio::test]
async fn without_a_target_the_policy_limits_the_collapse() {
    let shared = SERVER.get();
    let mut agent = Agent::new(&shared.0, "hand-default").await;
    agent.staged().await;
    // The view is below the threshold already.
    let under = agent.client.compact(agent.fold()).await.unwrap_err();
    refused(&under, Code::FailedPrecondition, "NOTHING_TO_COMPACT");
    // The third question is already in the session, so only the work of its turn follows.
    let work: Vec<_> = turn(3, 3, false).split_off(1);
    let reply = agent.prepare(work).await;
    assert_eq!(
        report(&reply.level_reports).skip_reason(),
        SkipReason::UnderThreshold
    );
    let before = reply.tokens.unwrap().total_tokens;
    // The view is between the target of 70 % and the threshold of 90 % of 10,000 tokens.
    assert!(before > 7_000, "{before}");
    assert!(before < 9_000, "{before}");
    let reply = agent.client.compact(agent.fold()).await.unwrap();
    let tokens = reply.into_inner().tokens.unwrap().total_tokens;
    assert!(tokens <= 7_000, "{tokens}");
}

#[tokio::test]
async fn a_manual_collapse_works_if_the_policy_disables_the_level() {
    let shared = SERVER.get();
    let mut off = policy();
    off.collapse.get_or_insert_default().enabled = Some(false);
    let mut agent = Agent::with_policy(&shared.0, "hand-off", off).await;
    let mut said = turn(1, 4, true);
    said.extend(turn(2, 0, false));
    agent.prepare(said).await;
    // A call with an automatic trigger obeys the policy. A manual one overrides it.
    let mut auto = agent.fold_one();
    auto.trigger = Trigger::Auto.into();
    let reply = agent.client.compact(auto).await.unwrap().into_inner();
    assert_eq!(
        report(&reply.level_reports).skip_reason(),
        SkipReason::Disabled
    );
    let mut by_hand = agent.fold();
    by_hand.target_tokens = Some(0);
    assert_eq!(agent.folded(by_hand).await.len(), 1);
    assert_eq!(agent.placeholders().len(), 1);
}

#[tokio::test]
async fn a_repeated_collapse_is_idempotent_and_another_body_is_a_conflict() {
    let shared = SERVER.get();
    let mut agent = Agent::new(&shared.0, "hand-retry").await;
    agent.staged().await;
    let mut request = agent.fold_one();
    request.request_id = "fold-once".into();
    let first = agent.client.compact(request.clone()).await.unwrap();
    let first = first.into_inner();
    let again = agent.client.compact(request.clone()).await.unwrap();
    let again = again.into_inner();
    assert_eq!(
        (&again.level_reports, again.revision),
        (&first.level_reports, first.revision)
    );
    // The answer stays the same after more messages were appended.
    agent.prepare(vec![user("and more")]).await;
    let later = agent.client.compact(request.clone()).await.unwrap();
    assert_eq!(later.into_inner().level_reports, first.level_reports);
    assert_eq!(agent.events(EventKind::SpansCollapsed).await.len(), 1);
    request.target_tokens = Some(0);
    let other = agent.client.compact(request.clone()).await.unwrap_err();
    refused(&other, Code::AlreadyExists, "REQUEST_CONFLICT");
    request.request_id = "fold-stale".into();
    request.expected_revision = Some(1);
    let stale = agent.client.compact(request).await.unwrap_err();
    refused(&stale, Code::Aborted, "REVISION_MISMATCH");
}
