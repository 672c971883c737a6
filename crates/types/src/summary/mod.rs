//! The summary of a compaction: sections, prompts, validation of the model's answer, and the framing
//! message.
//!
//! The call of the model and the selection of messages are defined elsewhere.

mod document;
mod frame;
mod instructions;
mod parse;
mod part;
mod prompt;
pub(crate) mod refusal;
#[cfg(test)]
mod tests;

pub use document::{SummaryDocument, SummarySection};
pub use frame::{SummaryFrame, dropped_notice, frame, is_framed, summary_in};
pub use instructions::standing_instructions;
pub use parse::{AcceptedSummary, SummaryRejection, parse_span_summary, parse_summary};
pub use part::SummaryPart;
pub use prompt::{ExtraInstructions, SYSTEM, memory_request, span_request, summary_request};
