//! The groups of calls that share budgets fairly.

use std::sync::atomic::AtomicUsize;

/// The calls that share one part of each budget: those of a tenant, or those of a connection without a credential. The
/// indexes of the arrays are defined by the budgets.
#[derive(Debug, Default)]
pub struct ShareGroup {
    /// The amount in use of each budget.
    pub used: [AtomicUsize; 3],
    /// The number of shares in each budget.
    pub shares: [AtomicUsize; 3],
}
