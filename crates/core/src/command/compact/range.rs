//! The messages that a compaction leaves, their size, and the end of one that took too long.

use crate::event::{CompactionFailed, CompactionFailureReason, Event};
use crate::ids::{Ordinal, Timestamp};
use crate::session::Session;

/// The estimated tokens of messages.
pub(super) fn estimated_tokens<'a>(
    session: &Session,
    messages: impl IntoIterator<Item = &'a Ordinal>,
) -> u64 {
    let messages = messages.into_iter();
    messages.map(|at| estimated(session, *at)).sum()
}

/// The end of a compaction whose time is over.
pub(in crate::command) fn expired(session: &Session, now: Timestamp) -> Option<Event> {
    let running = session.compactions().running.as_ref();
    let running = running.filter(|running| running.is_over(now))?;
    Some(Event::CompactionFailed(CompactionFailed {
        key: running.key,
        trigger: running.trigger,
        why: CompactionFailureReason::Expired,
        detail: "it did not finish in time".into(),
        took_ms: now.millis_since(running.at),
        hooks: running.hooks.calls.clone(),
        request: None,
        commit: None,
    }))
}

/// The messages of the view, in its order, without some.
pub(super) fn staying(session: &Session, leaving: &[Ordinal]) -> Vec<Ordinal> {
    let mut seen = std::collections::BTreeSet::new();
    let pieces = session.sealed().pieces().iter();
    let of_messages = pieces.filter(|piece| piece.form.is_of_a_block());
    of_messages
        .map(|piece| piece.message)
        .filter(|message| leaving.binary_search(message).is_err() && seen.insert(*message))
        .collect()
}

pub(super) fn estimated(session: &Session, message: Ordinal) -> u64 {
    let entry = session.transcript().get(message);
    entry.map_or(0, |entry| entry.size.tokens.into())
}
