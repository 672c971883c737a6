//! Level 5: selects the messages that a compaction keeps, and renders the others as input for a summarizer.

mod oldest;
mod partition;
mod summary_input;

pub use oldest::oldest_rounds;
pub use partition::{
    KeepRule, MessagePartition, count_unanswered, limit_leaving_tokens, partition, partition_where,
    without_pinned,
};
pub use summary_input::{SummaryInputMessage, summary_input};
