//! The summary of a compaction: sections, prompts, validation of the model's answer, and the framing
//! message.
//!
//! The call of the model and the selection of messages are defined elsewhere.

mod accept;
mod document;
mod frame;
mod instructions;
mod prompt;
pub(crate) mod refusal;
#[cfg(test)]
mod tests;

pub use accept::{AcceptedSummary, SummaryRejection, accept};
pub use document::{SummaryDocument, SummarySection};
pub use frame::{Framing, frame, left_out};
pub use instructions::standing_instructions;
pub use prompt::{ExtraInstructions, SYSTEM, memory_request, summary_request};
