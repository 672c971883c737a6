//! Level 5: a summary takes the place of messages.
//!
//! Every compaction starts with [`StartCompaction`]. A summary that exists already takes its place at once. Any other
//! summary is written while messages continue to arrive, and [`AdvanceCompaction`] records the steps up to its end.

mod advance;
mod external;
mod gate;
mod made;
mod oldest;
mod ready;
mod start;
mod write;

use crate::event::{CompactionFailed, Event, WhyFailed};
use crate::ids::{Ordinal, Timestamp};
use crate::session::Session;

pub use self::advance::{AdvanceCompaction, CompactionInput, WrittenSummary};
pub use self::external::ExternalSummary;
pub use self::gate::{is_compaction_due, prepares_ahead};
pub use self::made::Made;
pub use self::start::{StartCompaction, SummarySource};
pub use self::write::{Scope, SummarySpec};

/// The end of a compaction whose time is over.
pub(super) fn expired(session: &Session, now: Timestamp) -> Option<Event> {
    let running = session.compactions().running.as_ref();
    let running = running.filter(|running| running.is_over(now))?;
    Some(Event::CompactionFailed(CompactionFailed {
        key: running.key,
        asked: running.asked,
        why: WhyFailed::Expired,
        detail: "it did not finish in time".into(),
        took_ms: now.millis_since(running.at),
        hooks: running.hooks.calls.clone(),
        request: None,
        commit: None,
    }))
}

/// The messages of the view, in its order, without some.
fn staying(session: &Session, leaving: &[Ordinal]) -> Vec<Ordinal> {
    let mut seen = std::collections::BTreeSet::new();
    let pieces = session.sealed().pieces().iter();
    let of_messages = pieces.filter(|piece| piece.form.is_of_a_block());
    of_messages
        .map(|piece| piece.message)
        .filter(|message| leaving.binary_search(message).is_err() && seen.insert(*message))
        .collect()
}

/// The estimated tokens of messages.
fn estimated_tokens<'a>(session: &Session, messages: impl IntoIterator<Item = &'a Ordinal>) -> u64 {
    let messages = messages.into_iter();
    messages.map(|at| estimated(session, *at)).sum()
}

fn estimated(session: &Session, message: Ordinal) -> u64 {
    let entry = session.transcript().get(message);
    entry.map_or(0, |entry| entry.size.tokens.into())
}
