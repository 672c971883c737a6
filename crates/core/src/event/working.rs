//! The event of a change to the working state.

use super::parts::RequestStamp;
use crate::working::StateChange;

/// The working state changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WorkingStateUpdated {
    /// The entries that were set and removed.
    pub change: StateChange,
    /// The stamp of the request.
    pub request: Option<RequestStamp>,
}
