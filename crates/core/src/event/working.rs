//! The event of the working state.

use super::parts::RequestStamp;
use crate::working::StateChange;

/// The working state changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WorkingStateUpdated {
    /// What is not as it was.
    pub change: StateChange,
    /// The request that asked for it.
    pub request: Option<RequestStamp>,
}
