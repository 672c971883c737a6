//! The settings of a replay.

use std::sync::Arc;

use palimpsest_core::policy::Policy;
use palimpsest_core::tokens::Calibration;
use palimpsest_core::view::Provider;

/// How often the view is prepared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrepareFrequency {
    /// Before every response, as an agent does.
    PerResponse,
    /// After every message, which seals each fragment by itself: the hardest case.
    PerLine,
}

/// How a session is driven.
pub(super) struct Setup {
    pub(super) provider: Provider,
    pub(super) policy: Arc<Policy>,
    pub(super) pace: PrepareFrequency,
    /// Whether the levels run, as they do when a server prepares a view.
    pub(super) levels: bool,
    /// How far off estimates are.
    pub(super) calibration: Calibration,
}

/// A policy that leaves everything as it came: what others are compared with.
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
