//! The five levels as pure functions on views. They select the results to replace and the content that leaves, and they
//! repair the rest. The commands decide when a level runs.

pub mod attachments;
pub mod clearing;
pub mod collapse;
pub mod compaction;
pub mod recovery;
pub mod repair;
pub mod results;
