//! The event of a change to the working state.

use super::parts::RequestStamp;
use crate::working::WorkingStateChange;

/// The working state changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WorkingStateUpdated {
    /// The entries that were set and removed.
    pub change: WorkingStateChange,
    /// The stamp of the request.
    pub request: Option<RequestStamp>,
}
