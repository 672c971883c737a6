//! Level 5: replaces messages by a summary.
//!
//! Every compaction starts with [`StartCompaction`]. An existing summary takes effect immediately. Any other summary is
//! written while messages continue to arrive, and [`AdvanceCompaction`] records the steps up to its end.

mod advance;
mod drop_oldest;
mod existing_summary;
mod external;
mod finished_event;
mod preconditions;
mod range;
mod start;
mod write;

pub use self::advance::{AdvanceCompaction, CompactionInput, WrittenSummary};
pub use self::drop_oldest::DropRule;
pub(crate) use self::existing_summary::render_session_memory;
pub use self::external::ExternalSummary;
pub use self::finished_event::CompactionMessages;
pub use self::preconditions::{is_compaction_due, is_truncation_due, prepares_ahead};
pub(super) use self::range::expiry_event;
pub use self::start::{StartCompaction, SummarySource};
pub use self::write::{CompactionScope, SummarySpec};
