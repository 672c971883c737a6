//! What each level does to a view, as pure functions: which results are replaced and by what, what
//! leaves with what, and how a list of pieces stays valid for a provider. The commands decide when.

pub mod attachments;
pub mod clear;
pub mod collapse;
pub mod compaction;
pub mod mend;
pub mod recovery;
pub mod results;
