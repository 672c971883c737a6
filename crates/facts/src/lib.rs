//! Notes from structure alone, without a model: what a run of messages did and what came of it.
//!
//! [`Facts`] are taken from messages one after another; from them come the next `summary.md`, the
//! summary of a compaction, and the line that stands for a span of old rounds. The same messages always
//! give the same notes. Words of tools are quoted as such and never stand where the user's words do.
//! Not here: which messages are looked at, limits of the whole (`memory`), and models' summaries
//! (`summary`).

pub mod call;
mod earlier;
#[cfg(test)]
mod earlier_tests;
mod facts;
mod lessons;
mod lines;
pub mod memory;
mod notes;
mod outcome;
mod redact;
mod shell;
mod span;
mod steps;
mod summary;
mod symbols;
#[cfg(test)]
mod tests;
pub(crate) mod text;
mod user_messages;
mod words;


pub use facts::Facts;
pub use redact::{Redact, redacted};
pub use span::{SpanFeatures, features, later_references, span};
pub use summary::{Inputs, summary};
pub use user_messages::user_messages;
pub use shell::{command_kind, told_command};
pub use earlier::earlier;
pub use memory::{before_latest, root_in as told_root};
pub use words::user_words;
