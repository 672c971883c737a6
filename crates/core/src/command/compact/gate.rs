//! The conditions under which a compaction starts.

use crate::command::decision::Skip;
use crate::event::{Asked, CompactionFailed, Event, WhyFailed};
use crate::ids::Timestamp;
use crate::session::Session;

/// Returns the reason if a compaction may not start now.
pub(super) fn gate(session: &Session, asked: Asked, now: Timestamp) -> Result<(), Skip> {
    let policy = &session.policy().autocompact;
    let compactions = session.compactions();
    if compactions
        .running
        .as_ref()
        .is_some_and(|running| !running.is_over(now) && !running.ahead)
    {
        return Err(Skip::AlreadyRunning);
    }
    match asked {
        Asked::Manual | Asked::Model if policy.manual_enabled => Ok(()),
        Asked::Manual | Asked::Model => Err(Skip::Disabled),
        Asked::Provider if !policy.enabled => Err(Skip::Disabled),
        Asked::Provider => may_retry(session),
        Asked::Auto => {
            if !policy.enabled {
                return Err(Skip::Disabled);
            }
            let (tokens, thresholds) = (session.tokens().tokens, session.thresholds());
            let collapse = &session.policy().collapse;
            if collapse.enabled && tokens < collapse.compact_at_percent.of(thresholds.effective) {
                return Err(Skip::CollapseEnabled);
            }
            if !is_compaction_due(session) {
                return Err(Skip::UnderThreshold);
            }
            if compactions.held {
                return Err(Skip::Held);
            }
            if compactions.vetoed {
                return Err(Skip::Vetoed);
            }
            may_retry(session)?;
            let floor = compactions.floor;
            let grown = floor.map(|floor| tokens.saturating_sub(floor));
            if grown.is_some_and(|grown| grown < u64::from(policy.min_input_tokens)) {
                return Err(Skip::Irreducible);
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
fn may_retry(session: &Session) -> Result<(), Skip> {
    let limit = session.policy().autocompact.max_failures;
    if session.compactions().failures >= limit.max(1) {
        return Err(Skip::Paused);
    }
    Ok(())
}

/// Returns true if a summary is to be prepared ahead now.
pub fn prepares_ahead(session: &Session, now: Timestamp) -> bool {
    gate_ahead(session, now).is_ok()
}

/// Returns the reason if a summary may not be prepared ahead now.
pub(super) fn gate_ahead(session: &Session, now: Timestamp) -> Result<(), Skip> {
    let (policy, compactions) = (&session.policy().autocompact, session.compactions());
    if !(policy.enabled && policy.prepare_ahead) || policy.reactive_only {
        return Err(Skip::Disabled);
    }
    if session.policy().collapse.enabled {
        return Err(Skip::CollapseEnabled);
    }
    let running = compactions.running.as_ref();
    if running.is_some_and(|running| !running.is_over(now)) {
        return Err(Skip::AlreadyRunning);
    }
    if compactions.prepared.is_some() || compactions.floor.is_some() {
        return Err(Skip::NothingEligible);
    }
    if compactions.held {
        return Err(Skip::Held);
    }
    if compactions.vetoed {
        return Err(Skip::Vetoed);
    }
    if compactions.ahead_failed {
        return Err(Skip::Paused);
    }
    let (tokens, thresholds) = (session.tokens().tokens, session.thresholds());
    if tokens < thresholds.warn || tokens >= thresholds.compact {
        return Err(Skip::UnderThreshold);
    }
    Ok(())
}

/// The end of a compaction that prepares a summary ahead, because another one takes its place.
pub(super) fn displaced(session: &Session, now: Timestamp) -> Option<Event> {
    let running = session.compactions().running.as_ref();
    let running = running.filter(|running| running.ahead)?;
    Some(Event::CompactionFailed(CompactionFailed {
        key: running.key,
        asked: running.asked,
        why: WhyFailed::RangeChanged,
        detail: "another compaction took its place".into(),
        took_ms: now.millis_since(running.at),
        hooks: running.hooks.calls.clone(),
        request: None,
        commit: None,
    }))
}
