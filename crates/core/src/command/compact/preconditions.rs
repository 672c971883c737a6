//! The conditions under which a compaction may start.

use crate::command::decision::SkipReason;
use crate::event::{CompactionFailed, CompactionFailureReason, Event, Trigger};
use crate::ids::Timestamp;
use crate::policy::BudgetState;
use crate::session::Session;

/// Returns the reason if a compaction may not start now.
pub(super) fn check_can_start(
    session: &Session,
    asked: Trigger,
    now: Timestamp,
) -> Result<(), SkipReason> {
    let policy = &session.policy().autocompact;
    // A running preparation does not block: the new compaction replaces it.
    let compactions = session.compactions();
    if compactions
        .running
        .as_ref()
        .is_some_and(|running| !running.is_expired(now) && !running.ahead)
    {
        return Err(SkipReason::AlreadyRunning);
    }
    match asked {
        Trigger::Manual | Trigger::Model if policy.manual_enabled => Ok(()),
        Trigger::Manual | Trigger::Model => Err(SkipReason::Disabled),
        Trigger::PromptTooLong if !policy.enabled => Err(SkipReason::Disabled),
        Trigger::PromptTooLong => may_retry(session),
        Trigger::Auto => {
            if !policy.enabled {
                return Err(SkipReason::Disabled);
            }
            // From here on the order of the checks determines the reported reason.
            let (tokens, thresholds) = (session.tokens().tokens, session.thresholds());
            let collapse = &session.policy().collapse;
            // With level 4 enabled, a compaction starts only above the upper threshold of level 4.
            if collapse.enabled && tokens < collapse.compact_at_percent.of(thresholds.effective) {
                return Err(SkipReason::CollapseEnabled);
            }
            if !is_compaction_due(session) && !session.compaction_reduces_cost(now) {
                return Err(SkipReason::UnderThreshold);
            }
            if compactions.held_after_restore {
                return Err(SkipReason::HeldAfterRestore);
            }
            if compactions.held_after_veto {
                return Err(SkipReason::HeldAfterVeto);
            }
            may_retry(session)?;
            // The last compaction could not reach its threshold. Another one is useful only with enough new input.
            let floor = compactions.irreducible_tokens;
            let grown = floor.map(|floor| tokens.saturating_sub(floor));
            if grown.is_some_and(|grown| grown < u64::from(policy.min_input_tokens)) {
                return Err(SkipReason::Irreducible);
            }
            Ok(())
        }
    }
}

/// Returns true if the view has reached the size of an automatic compaction. Conditions that hold a compaction back,
/// such as failed attempts, are ignored.
pub fn is_compaction_due(session: &Session) -> bool {
    let (policy, thresholds) = (&session.policy().autocompact, session.thresholds());
    let from = match (policy.reactive_only, policy.proactive_percent) {
        (false, _) => thresholds.compact,
        (true, Some(percent)) => percent.of(thresholds.window),
        // In this mode, only a prompt that the provider rejects starts a compaction.
        (true, None) => return false,
    };
    policy.enabled && session.tokens().tokens >= from
}

/// Returns true if the policy permits removal without a summary and the view is critical. A veto forbids the removal
/// until the next user input.
pub fn is_truncation_due(session: &Session) -> bool {
    let policy = &session.policy().autocompact;
    let is_vetoed = session.compactions().held_after_veto;
    let is_on = policy.enabled && policy.truncate_when_critical && !is_vetoed;
    is_on && session.budget_state() >= BudgetState::Critical
}

/// Returns the reason if too many consecutive attempts have failed.
fn may_retry(session: &Session) -> Result<(), SkipReason> {
    let policy = &session.policy().autocompact;
    if session.compactions().is_paused(policy) {
        return Err(SkipReason::PausedAfterFailures);
    }
    Ok(())
}

/// Returns true if a summary should be prepared now.
pub fn prepares_ahead(session: &Session, now: Timestamp) -> bool {
    gate_ahead(session, now).is_ok()
}

/// Returns the reason if a summary may not be prepared now.
pub(super) fn gate_ahead(session: &Session, now: Timestamp) -> Result<(), SkipReason> {
    let (policy, compactions) = (&session.policy().autocompact, session.compactions());
    if !(policy.enabled && policy.prepare_ahead) || policy.reactive_only {
        return Err(SkipReason::Disabled);
    }
    // Level 4 frees the same headroom, so no summary is prepared while it is enabled.
    if session.policy().collapse.enabled {
        return Err(SkipReason::CollapseEnabled);
    }
    let running = compactions.running.as_ref();
    if running.is_some_and(|running| !running.is_expired(now)) {
        return Err(SkipReason::AlreadyRunning);
    }
    if compactions.prepared.is_some() || compactions.irreducible_tokens.is_some() {
        return Err(SkipReason::NothingEligible);
    }
    if compactions.held_after_restore {
        return Err(SkipReason::HeldAfterRestore);
    }
    if compactions.held_after_veto {
        return Err(SkipReason::HeldAfterVeto);
    }
    if compactions.prepare_failed {
        return Err(SkipReason::PausedAfterFailures);
    }
    // Preparation runs only between the warning and the compaction threshold.
    let (tokens, thresholds) = (session.tokens().tokens, session.thresholds());
    if tokens < thresholds.warn || tokens >= thresholds.compact {
        return Err(SkipReason::UnderThreshold);
    }
    Ok(())
}

/// Builds the failure of a running preparation that another compaction replaces.
pub(super) fn displaced(session: &Session, now: Timestamp) -> Option<Event> {
    let running = session.compactions().running.as_ref();
    let running = running.filter(|running| running.ahead)?;
    Some(Event::CompactionFailed(CompactionFailed {
        key: running.key,
        trigger: running.trigger,
        strategy: Some(running.strategy),
        started: Some(running.started_at),
        reason: CompactionFailureReason::RangeChanged,
        detail: "another compaction took its place".into(),
        duration_ms: now.millis_since(running.started_at),
        hooks: running.hooks.calls.clone(),
        request: None,
        commit: None,
    }))
}
