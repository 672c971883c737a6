//! The parties among whom the edge divides calls and memory.

use std::sync::atomic::AtomicUsize;

/// The calls that share one part of each budget: those of one tenant, or of one connection without a credential. What
/// the numbers count is up to the budgets.
#[derive(Debug, Default)]
pub(crate) struct ShareGroup {
    /// The amount in use of each budget.
    pub(crate) used: [AtomicUsize; 3],
    /// The number of shares in each budget.
    pub(crate) shares: [AtomicUsize; 3],
}
