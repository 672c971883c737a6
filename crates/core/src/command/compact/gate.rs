//! The conditions under which a compaction starts.

use crate::command::decision::SkipReason;
use crate::event::{CompactionFailed, CompactionFailureReason, Event, Trigger};
use crate::ids::Timestamp;
use crate::session::Session;

/// Returns the reason if a compaction may not start now.
pub(super) fn gate(session: &Session, asked: Trigger, now: Timestamp) -> Result<(), SkipReason> {
    let policy = &session.policy().autocompact;
    let compactions = session.compactions();
    if compactions
        .running
        .as_ref()
        .is_some_and(|running| !running.is_over(now) && !running.ahead)
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
            let (tokens, thresholds) = (session.tokens().tokens, session.thresholds());
            let collapse = &session.policy().collapse;
            if collapse.enabled && tokens < collapse.compact_at_percent.of(thresholds.effective) {
                return Err(SkipReason::CollapseEnabled);
            }
            if !is_compaction_due(session) {
                return Err(SkipReason::UnderThreshold);
            }
            if compactions.held {
                return Err(SkipReason::HeldAfterRestore);
            }
            if compactions.vetoed {
                return Err(SkipReason::HeldAfterVeto);
            }
            may_retry(session)?;
            let floor = compactions.floor;
            let grown = floor.map(|floor| tokens.saturating_sub(floor));
            if grown.is_some_and(|grown| grown < u64::from(policy.min_input_tokens)) {
                return Err(SkipReason::Irreducible);
            }
            Ok(())
        }
    }
}

/// Returns true if the view is so large that a compaction starts by itself. What holds one back all the
/// same, such as failed attempts, is not looked at.
pub fn is_compaction_due(session: &Session) -> bool {
    let (policy, thresholds) = (&session.policy().autocompact, session.thresholds());
    let from = match (policy.reactive_only, policy.proactive_percent) {
        (false, _) => thresholds.compact,
        (true, Some(percent)) => percent.of(thresholds.window),
        // Only a provider's refusal starts one.
        (true, None) => return false,
    };
    policy.enabled && session.tokens().tokens >= from
}

/// Returns the reason if too many automatic attempts have failed.
fn may_retry(session: &Session) -> Result<(), SkipReason> {
    let limit = session.policy().autocompact.max_failures;
    if session.compactions().failures >= limit.max(1) {
        return Err(SkipReason::PausedAfterFailures);
    }
    Ok(())
}

/// Returns true if a summary is to be prepared ahead now.
pub fn prepares_ahead(session: &Session, now: Timestamp) -> bool {
    gate_ahead(session, now).is_ok()
}

/// Returns the reason if a summary may not be prepared ahead now.
pub(super) fn gate_ahead(session: &Session, now: Timestamp) -> Result<(), SkipReason> {
    let (policy, compactions) = (&session.policy().autocompact, session.compactions());
    if !(policy.enabled && policy.prepare_ahead) || policy.reactive_only {
        return Err(SkipReason::Disabled);
    }
    if session.policy().collapse.enabled {
        return Err(SkipReason::CollapseEnabled);
    }
    let running = compactions.running.as_ref();
    if running.is_some_and(|running| !running.is_over(now)) {
        return Err(SkipReason::AlreadyRunning);
    }
    if compactions.prepared.is_some() || compactions.floor.is_some() {
        return Err(SkipReason::NothingEligible);
    }
    if compactions.held {
        return Err(SkipReason::HeldAfterRestore);
    }
    if compactions.vetoed {
        return Err(SkipReason::HeldAfterVeto);
    }
    if compactions.ahead_failed {
        return Err(SkipReason::PausedAfterFailures);
    }
    let (tokens, thresholds) = (session.tokens().tokens, session.thresholds());
    if tokens < thresholds.warn || tokens >= thresholds.compact {
        return Err(SkipReason::UnderThreshold);
    }
    Ok(())
}

/// The end of a compaction that prepares a summary ahead, because another one takes its place.
pub(super) fn displaced(session: &Session, now: Timestamp) -> Option<Event> {
    let running = session.compactions().running.as_ref();
    let running = running.filter(|running| running.ahead)?;
    Some(Event::CompactionFailed(CompactionFailed {
        key: running.key,
        trigger: running.trigger,
        why: CompactionFailureReason::RangeChanged,
        detail: "another compaction took its place".into(),
        took_ms: now.millis_since(running.at),
        hooks: running.hooks.calls.clone(),
        request: None,
        commit: None,
    }))
}
