//! Helpers of compactions: sizes of messages, remaining messages, and the end of an expired compaction.

use crate::event::{CompactionFailed, CompactionFailureReason, Event};
use crate::ids::{Ordinal, Timestamp};
use crate::session::Session;

/// Returns the estimated tokens of several messages.
pub(super) fn estimated_tokens<'a>(
    session: &Session,
    messages: impl IntoIterator<Item = &'a Ordinal>,
) -> u64 {
    let messages = messages.into_iter();
    messages.map(|at| estimated_tokens_of(session, *at)).sum()
}

/// Builds the failure of a running compaction whose deadline has passed.
pub(in crate::command) fn expiry_event(session: &Session, now: Timestamp) -> Option<Event> {
    let running = session.compactions().running.as_ref();
    let running = running.filter(|running| running.is_expired(now))?;
    Some(Event::CompactionFailed(CompactionFailed {
        key: running.key,
        trigger: running.trigger,
        strategy: Some(running.strategy),
        started: Some(running.started_at),
        reason: CompactionFailureReason::Expired,
        detail: "it did not finish in time".into(),
        duration_ms: now.millis_since(running.started_at),
        hooks: running.hooks.calls.clone(),
        request: None,
        commit: None,
    }))
}

/// Returns the messages of the view in its order, without those that leave. `leaving` must be sorted.
pub(super) fn remaining_messages(session: &Session, leaving: &[Ordinal]) -> Vec<Ordinal> {
    let mut seen = std::collections::BTreeSet::new();
    let pieces = session.sealed().pieces().iter();
    let of_messages = pieces.filter(|piece| piece.form.represents_block());
    of_messages
        .map(|piece| piece.message)
        .filter(|message| leaving.binary_search(message).is_err() && seen.insert(*message))
        .collect()
}

pub(super) fn estimated_tokens_of(session: &Session, message: Ordinal) -> u64 {
    let entry = session.transcript().get(message);
    entry.map_or(0, |entry| entry.size.tokens.into())
}
