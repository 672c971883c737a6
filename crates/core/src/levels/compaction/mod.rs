//! Level 5: selects the messages that a compaction keeps, and renders the others as input for a summarizer.

mod keep;
mod oldest;
mod summary_input;

pub use keep::{KeepRule, MessagePartition, keep, oldest_within, replace, spared};
pub use oldest::oldest;
pub use summary_input::{SummaryInputMessage, summary_input};
