//! Whether a compaction may begin.

use crate::command::decision::Skip;
use crate::event::Asked;
use crate::ids::Timestamp;
use crate::session::Session;

/// Whether one may begin now; if not, why.
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
        Asked::Provider => standing(session),
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
            standing(session)?;
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

/// Whether automatic attempts go on.
fn standing(session: &Session) -> Result<(), Skip> {
    let limit = session.policy().autocompact.max_failures;
    if session.compactions().failures >= limit.max(1) {
        return Err(Skip::Paused);
    }
    Ok(())
}
