//! Level 5: which messages stay word for word, and what a summariser is told of the others.

mod keep;
mod oldest;
mod summary_input;

pub use keep::{KeepRule, MessagePartition, keep, oldest_within, replace, spared};
pub use oldest::oldest;
pub use summary_input::{SummaryInputMessage, summary_input};
