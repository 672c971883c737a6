//! The event of a change to the policy.

use std::sync::Arc;

use crate::policy::Policy;

/// The policy of the session changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyChanged {
    /// The complete new policy.
    pub policy: Arc<Policy>,
}
