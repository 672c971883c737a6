//! Records the array as the caller has it, and confirms responses that the caller has sent back.

use super::decision::Decided;
use super::reject::Rejection;
use crate::array::{CallerArray, KnownContent};
use crate::event::{ArraySynced, Event};
use crate::ids::Ordinal;
use crate::message::Digest;
use crate::session::Session;

/// Records the array as the caller has it. Decided after the other steps of its plan, so that appended messages are
/// known. Makes no event if the links of these steps are the caller's array already, and the tip is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyncArray {
    /// The whole array. See [`PlannedChange::apply`](crate::array::PlannedChange::apply).
    pub array: CallerArray,
    /// The tip of the array. `None` leaves the tips as they are. A session that is found by its name only records no tip.
    pub tip: Option<Digest>,
}

/// Makes a recorded response visible: the one that the caller has sent back, or the newest one before an append without
/// an array. Makes no event if the response is not recorded for the current end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConfirmResponse {
    /// The index in [`CallerArray::responses`]. `None` for the newest response.
    pub response: Option<usize>,
}

impl ConfirmResponse {
    pub(super) fn decide(self, session: &Session) -> Result<Decided, Rejection> {
        let array = session.array();
        let newest = array.responses.len().checked_sub(1);
        // An append without an array continues the newest response.
        let Some(response) = self.response.or(newest) else {
            return Ok(Decided::events(Vec::new()));
        };
        let Some(after) = array.confirmed(response) else {
            return Ok(Decided::events(Vec::new()));
        };
        let items = &array.responses[response];
        let ordinals: Vec<Ordinal> = items.iter().map(|item| item.message).collect();
        // The messages become pending, and the event has no content of its own.
        for ordinal in &ordinals {
            session.message(*ordinal)?;
        }
        let change = array.change_to(after, None).map(|event| ArraySynced {
            confirmed: ordinals,
            ..event
        });
        Ok(Decided::events(
            change.map(Event::ArraySynced).into_iter().collect(),
        ))
    }
}

impl SyncArray {
    pub(super) fn decide(self, session: &Session) -> Decided {
        let tip = self.tip.filter(|tip| session.tips().lacks(*tip));
        let change = session.array().change_to(self.array, tip);
        Decided::events(change.map(Event::ArraySynced).into_iter().collect())
    }
}
