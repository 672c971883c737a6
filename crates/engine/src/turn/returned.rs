//! Summaries of the service that a caller gets and sends back.

use std::borrow::Cow;

use palimpsest_core::array::{CallerArray, Element, KnownContent, summary_tip};
use palimpsest_core::command::{Command, Rejection, SyncArray};
use palimpsest_core::message::Digest;
use palimpsest_core::session::{ContentNotLoaded, Session};

use super::SyncInput;
use crate::sessions::Transaction;

impl SyncInput {
    /// Returns the array with all elements that a summary of the service replaces, and the tip of an array that was
    /// completed.
    pub(super) fn completed(
        &self,
        session: &Session,
        array: &CallerArray,
        known: &dyn KnownContent,
    ) -> Result<(Cow<'_, [Element]>, Option<Digest>), ContentNotLoaded> {
        let given = &*self.elements;
        let Some(returned) = &self.returned else {
            return Ok((given.into(), None));
        };
        let written_at = returned.written_at(session, known)?;
        let elements = returned.complete(given, array, written_at);
        let is_completed = matches!(elements, Cow::Owned(_));
        let tip = is_completed.then(|| returned.tip(given));
        Ok((elements, tip))
    }
}

/// Adds the tip by which a session without a name is found, when the caller sends a summary in place of the messages
/// before it.
pub(super) fn add_tip(transaction: &mut Transaction<'_>, summary: &str) -> Result<(), Rejection> {
    let Some(session) = transaction.session() else {
        return Ok(());
    };
    let array = session.array().clone();
    let tip = Some(summary_tip(&array.lead, summary));
    transaction.run(Command::SyncArray(SyncArray { array, tip }))?;
    Ok(())
}
