//! Facts of a run of messages, derived from their structure without a model.
//!
//! [`Facts`] are collected from messages in order. They are the source of three texts: the next
//! `summary.md`, the summary of a compaction without a model, and the placeholder of a collapsed
//! span. The same messages always yield the same text. Tool output is quoted as such and never
//! placed among the user's words.
//!
//! The crate is pure: no I/O, clock, randomness or environment. It imports only `palimpsest-types`
//! of this workspace. The selection of messages is in `palimpsest-core`. Document limits are in
//! `palimpsest_types::memory`, and summaries by models in `palimpsest_types::summary`.

mod action_outcome;
mod earlier_summary;
#[cfg(test)]
mod earlier_tests;
mod facts;
pub mod memory;
pub mod names;
mod paths;
mod phrases;
mod redact;
mod shell;
mod span;
mod summary;
mod symbols;
#[cfg(test)]
mod tests;
pub(crate) mod text;
mod timeline;
pub mod tool_action;
mod user_guidance;
mod user_messages;
mod user_text;

pub use earlier_summary::{SummaryWriter, parse_earlier_summary};
pub use facts::Facts;
pub use redact::{Redact, redact_message};
pub use shell::{command_family, display_command};
pub use span::{SpanFeatures, describe_span, fit_span_summary, span_features};
pub use summary::{UserInputs, build_summary};
pub use user_messages::user_messages;
pub use user_text::user_text;
