//! The settings of a replay.

use std::sync::Arc;

use palimpsest_core::policy::{Policy, WindowHint};
use palimpsest_core::tokens::Calibration;
use palimpsest_core::view::Provider;

/// The points at which the view is prepared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrepareFrequency {
    /// Before every response, as an agent does.
    PerResponse,
    /// After every message. Each fragment is then sealed separately, which is the hardest case.
    PerLine,
}

/// The settings of one replay.
pub(super) struct ReplayOptions {
    pub(super) provider: Provider,
    pub(super) policy: Arc<Policy>,
    /// The sizes of the model, as a caller states them.
    pub(super) window: WindowHint,
    pub(super) frequency: PrepareFrequency,
    /// True if the levels run, as they do when a server prepares a view.
    pub(super) levels: bool,
    /// The correction of token estimates.
    pub(super) calibration: Calibration,
}

/// Returns a policy without any level. It is the baseline for comparisons.
pub fn no_levels() -> Policy {
    let mut policy = Policy::default();
    policy.tool_results.enabled = false;
    policy.snip.tag_turns = false;
    policy.microcompact.enabled = false;
    policy.collapse.enabled = false;
    policy.autocompact.enabled = false;
    policy.session_memory.enabled = false;
    policy
}
