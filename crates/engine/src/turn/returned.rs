//! Summaries of the service that a caller gets and sends back.

use std::borrow::Cow;

use palimpsest_core::array::{CallerArray, Element, KnownContent, in_known_order};
use palimpsest_core::command::{Command, Rejection, SyncArray};
use palimpsest_core::message::Digest;
use palimpsest_core::session::{ContentNotLoaded, Session};

use super::SyncInput;
use crate::sessions::Transaction;

impl SyncInput {
    /// Returns the array with all elements that a summary of the service replaces, and with results in the order of the
    /// session. Also returns the tip of an array that was completed.
    pub(super) fn completed(
        &self,
        session: &Session,
        array: &CallerArray,
        known: &dyn KnownContent,
    ) -> Result<(Cow<'_, [Element]>, Option<Digest>), ContentNotLoaded> {
        let given = &*self.elements;
        let mut elements = Cow::Borrowed(given);
        let mut tip = None;
        if let Some(returned) = &self.returned {
            let written_at = returned.written_at(session, known)?;
            elements = returned.complete(given, array, written_at);
            let is_completed = matches!(elements, Cow::Owned(_));
            tip = is_completed.then(|| returned.tip(given));
        }
        Ok((in_known_order(elements, array, known)?, tip))
    }
}

/// Adds a tip to a session that is found by content. Its caller sends a summary in place of messages, so no earlier array is
/// a beginning of its next one. `tip` returns `None` for a session without a summary.
pub fn add_tip(
    transaction: &mut Transaction<'_>,
    tip: impl FnOnce(&Session) -> Result<Option<Digest>, ContentNotLoaded>,
) -> Result<(), Rejection> {
    let session = transaction.session();
    let Some(session) = session.filter(|session| session.tips().scope.is_some()) else {
        return Ok(());
    };
    if let Some(tip) = tip(session)? {
        let (array, tip) = (session.array().clone(), Some(tip));
        transaction.run(Command::SyncArray(SyncArray { array, tip }))?;
    }
    Ok(())
}
