//! Checks the effects that follow from the state of a session. The files of decisions are checked by random histories.

use std::sync::Arc;

use palimpsest_core::command::{
    Append, CheckThresholds, Command, Decided, FailMemoryUpdate, ServeView, StartMemoryUpdate,
    effects_of_state, memory_due_at,
};
use palimpsest_core::effect::{Effect, FollowUp};
use palimpsest_core::event::Trigger;
use palimpsest_core::ids::{MessageId, Timestamp};
use palimpsest_core::message::{Block, Message, Role};
use palimpsest_core::policy::{Policy, Thresholds};
use palimpsest_histories::SessionHarness;
use uuid::Uuid;

const NOW: Timestamp = Timestamp::from_millis(1_000_000);

/// Returns a policy without follow-ups except compactions.
fn policy() -> Policy {
    let mut policy = Policy::default();
    policy.collapse.enabled = false;
    policy.autocompact.enabled = true;
    policy.autocompact.prepare_ahead = false;
    policy.autocompact.reactive_only = false;
    policy.autocompact.truncate_when_critical = false;
    policy
}

/// Returns a session with a served view of at least this number of tokens.
fn session(policy: Policy, tokens: impl Fn(Thresholds) -> u64) -> SessionHarness {
    let mut world = SessionHarness::with_policy(policy);
    let tokens = usize::try_from(tokens(world.session.thresholds())).expect("a threshold fits");
    // Each of these words counts as 5/3 tokens.
    let words = "word ".repeat(tokens * 3 / 5 + 10);
    let id = MessageId::new(Uuid::from_u128(1 << 64));
    world.run(Command::Append(Append {
        messages: vec![Arc::new(Message::new(
            id,
            Role::User,
            vec![Block::text(words)],
        ))],
        ..Append::default()
    }));
    world.run(Command::ServeView(ServeView::default()));
    world
}

#[track_caller]
fn check(
    change: impl Fn(&mut Policy),
    tokens: impl Fn(Thresholds) -> u64,
    prompt_was_rejected: bool,
    expected: &[FollowUp],
) {
    let mut policy = policy();
    change(&mut policy);
    let mut world = session(policy, tokens);
    let revision = world.session.revision();
    let decided = world.try_run(Command::CheckThresholds(CheckThresholds {
        prompt_was_rejected,
        ..CheckThresholds::default()
    }));
    let Ok(Decided::Now(decision)) = decided else {
        panic!("{decided:?}");
    };
    let expected: Vec<_> = expected.iter().copied().map(Effect::FollowUp).collect();
    assert_eq!(decision.effects, expected);
    assert_eq!(world.session.revision(), revision, "a check makes no event");
}

#[test]
fn each_threshold_has_its_follow_up() {
    let compact = |trigger| FollowUp::Compact(trigger);
    let (auto, rejected) = (compact(Trigger::Auto), compact(Trigger::PromptTooLong));
    check(|_| (), |_| 10, false, &[]);
    check(|_| (), |_| 10, true, &[rejected]);
    check(|_| (), |of| of.compact, false, &[auto]);
    // A rejected prompt takes precedence over the threshold, and only one compaction follows.
    check(|_| (), |of| of.compact, true, &[rejected]);
    check(
        |policy| policy.autocompact.enabled = false,
        |of| of.compact,
        false,
        &[],
    );

    let ahead = |policy: &mut Policy| policy.autocompact.prepare_ahead = true;
    check(ahead, |_| 10, false, &[]);
    check(ahead, |of| of.warn, false, &[FollowUp::PrepareSummary]);
    check(
        ahead,
        |of| of.warn,
        true,
        &[rejected, FollowUp::PrepareSummary],
    );
    // From the compaction threshold on, a prepared summary would come too late.
    check(ahead, |of| of.compact, false, &[auto]);

    let staging = |policy: &mut Policy| {
        policy.collapse.enabled = true;
        policy.collapse.pass_every_tokens = 500;
    };
    check(staging, |_| 10, false, &[]);
    check(staging, |_| 500, false, &[FollowUp::StageSpans]);
    check(
        staging,
        |of| of.compact,
        false,
        &[auto, FollowUp::StageSpans],
    );

    let reactive = |policy: &mut Policy| {
        policy.autocompact.reactive_only = true;
        policy.autocompact.proactive_percent = None;
    };
    // In this mode, only a rejected prompt makes a compaction due, unless the view may be truncated.
    check(reactive, |of| of.critical, false, &[]);
    let truncating = |policy: &mut Policy| {
        reactive(policy);
        policy.autocompact.truncate_when_critical = true;
    };
    check(truncating, |of| of.critical, false, &[auto]);
}

#[test]
fn due_session_memory_is_enqueued_and_wakes_the_worker() {
    let of = |world: &SessionHarness| effects_of_state(&world.session, NOW).collect::<Vec<_>>();
    let mut policy = policy();
    policy.session_memory.enabled = true;
    assert_eq!(of(&session(policy.clone(), |_| 10)), []);
    let mut world = session(policy, |_| 10_000);
    assert_eq!(of(&world), [Effect::MemoryDue(NOW), Effect::WakeWorker]);

    // A failed update is retried later. Workers find the session in the queue, so none is woken.
    let retry_at = NOW.plus_millis(9);
    world.run(Command::FailMemoryUpdate(FailMemoryUpdate {
        is_file_failure: false,
        detail: "no".into(),
        retry_at,
    }));
    assert_eq!(of(&world), [Effect::MemoryDue(retry_at)]);

    // The outcome of a running update determines the next due time.
    world.run(Command::StartMemoryUpdate(StartMemoryUpdate));
    let began = world.session.memory().running.unwrap();
    assert_eq!(memory_due_at(&world.session, began), None);
    assert_eq!(effects_of_state(&world.session, began).count(), 0);
}

#[test]
fn a_caller_can_request_a_compaction_at_a_size_of_the_view() {
    let check = |change: &dyn Fn(&mut Policy), tokens: u64, at: u64, is_due: bool| {
        let mut policy = policy();
        change(&mut policy);
        let mut world = session(policy, |_| tokens);
        let decided = world.try_run(Command::CheckThresholds(CheckThresholds {
            prompt_was_rejected: false,
            compact_at: Some(at),
            ..CheckThresholds::default()
        }));
        let Ok(Decided::Now(decision)) = decided else {
            panic!("{decided:?}");
        };
        let due = Effect::FollowUp(FollowUp::Compact(Trigger::Manual));
        assert_eq!(decision.effects.contains(&due), is_due, "{tokens} {at}");
    };
    check(&|_| (), 60_000, 50_000, true);
    check(&|_| (), 40_000, 50_000, false);
    let manual = |policy: &mut Policy| policy.autocompact.manual_enabled = false;
    check(&manual, 60_000, 50_000, false);
    // A smaller view than the minimum input of a compaction.
    let least = |policy: &mut Policy| policy.autocompact.min_input_tokens = 70_000;
    check(&least, 60_000, 50_000, false);
}
