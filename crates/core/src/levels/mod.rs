//! What each level does to a view, as pure functions: which results are replaced and by what, what
//! leaves with what, and how a list of pieces stays valid for a provider. The commands decide when.

pub mod attachments;
pub mod clearing;
pub mod collapse;
pub mod compaction;
pub mod recovery;
pub mod repair;
pub mod results;
