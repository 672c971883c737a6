//! The summary of a compaction: its sections, what a model is asked, whether its answer is taken, and how
//! the next reader is told what it is.
//!
//! Not here: who asks the model, and what is summarised.

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
