//! The five levels as pure functions on views: the results to replace and their replacements, the content that leaves,
//! and the repairs that keep a view valid. The commands decide when a level runs.

pub mod attachments;
pub mod clearing;
pub mod collapse;
pub mod compaction;
pub mod recovery;
pub mod repair;
pub mod results;
