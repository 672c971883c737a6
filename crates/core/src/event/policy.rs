//! The event of the settings.

use std::sync::Arc;

use crate::policy::Policy;

/// The settings changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyChanged {
    /// All of them.
    pub policy: Arc<Policy>,
}
