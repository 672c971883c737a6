//! How many tokens a session's view has.
//!
//! What a provider reported is exact and is the anchor; what came after it is estimated. Not here:
//! what the numbers lead to (`policy`).

mod estimate;
mod ledger;

pub(crate) use estimate::MESSAGE_TOKENS;
pub use estimate::{
    Breakdown, Size, estimate_block, estimate_message, estimate_result, estimate_text,
    estimate_wire,
};
pub(crate) use ledger::is_credible;
pub use ledger::{Anchor, Calibration, Count, CountMethod, Ledger};
