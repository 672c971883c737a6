//! Facts of a run of messages, found by its structure and without a model.
//!
//! [`Facts`] are read from messages in their order. The next `summary.md`, the summary of a compaction, and the line in
//! place of a span of old rounds are written from them. The same messages always give the same notes. Words of tools
//! are quoted as such, and never placed where the user's words are.
//!
//! Pure, as the core is: no I/O, clock, randomness or environment. Imports `palimpsest-types` alone of this workspace.
//! Not here: the choice of messages (`palimpsest-core`), limits of the whole document (`palimpsest_types::memory`), and
//! summaries by models (`palimpsest_types::summary`).

mod action_outcome;
mod earlier;
#[cfg(test)]
mod earlier_tests;
mod facts;
mod lessons;
mod lines;
pub mod memory;
mod notes;
mod redact;
mod shell;
mod span;
mod steps;
mod summary;
mod symbols;
#[cfg(test)]
mod tests;
pub(crate) mod text;
pub mod tool_action;
mod user_messages;
mod words;

pub use earlier::earlier;
pub use facts::Facts;
pub use memory::{before_latest, root_in as told_root};
pub use redact::{Redact, redacted};
pub use shell::{command_kind, told_command};
pub use span::{SpanFeatures, features, later_references, span};
pub use summary::{Inputs, summary};
pub use user_messages::user_messages;
pub use words::user_words;
