//! Level 5: replaces messages by a summary.
//!
//! Every compaction starts with [`StartCompaction`]. An existing summary takes effect immediately. Any other summary is
//! written while messages continue to arrive, and [`AdvanceCompaction`] records the steps up to its end.

mod advance;
mod external;
mod gate;
mod made;
mod oldest;
mod range;
mod ready;
mod start;
mod write;

pub use self::advance::{AdvanceCompaction, CompactionInput, WrittenSummary};
pub use self::external::ExternalSummary;
pub use self::gate::{is_compaction_due, is_truncation_due, prepares_ahead};
pub use self::made::CompactionMessages;
pub(super) use self::range::expired;
pub use self::start::{StartCompaction, SummarySource};
pub use self::write::{CompactionScope, SummarySpec};
