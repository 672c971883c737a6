//! Records the array as the caller has it.

use super::decision::Decided;
use crate::array::CallerArray;
use crate::event::Event;
use crate::session::Session;

/// Records the array as the caller has it. Decided after the other steps of its plan, so that appended messages are
/// known. Makes no event if the links of these steps are the caller's array already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyncArray {
    /// The whole array. See [`PlannedChange::apply`](crate::array::PlannedChange::apply).
    pub array: CallerArray,
}

impl SyncArray {
    pub(super) fn decide(self, session: &Session) -> Decided {
        let change = session.array().change_to(self.array);
        Decided::events(change.map(Event::ArraySynced).into_iter().collect())
    }
}
