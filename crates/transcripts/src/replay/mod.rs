//! Drives imported transcripts through sessions, step by step as their agents would have.
//!
//! Two things are asked of a transcript. [`verify`]: is every view valid, does it continue the one
//! before, and has a caller that follows `keep_messages` exactly the whole of it? [`measure`]: what
//! does a policy make of it, in tokens, in cost, and in what the model can still see or find again?
//! Both go through one driver, so that what is measured is what is verified. Not here:
//! files, threads, and how outcomes are shown.

mod adopt;
mod caller;
mod compact;
mod compaction;
mod driver;
mod facts;
mod kinds;
#[cfg(test)]
mod ledger_tests;
mod measure;
mod prefix_cache;
mod probes;
mod recorded_session;
mod recover;
mod setup;
mod survival;
#[cfg(test)]
mod tests;
mod verify;

pub use compaction::Compaction;
pub use kinds::ProbeKind;
pub use measure::{ReplayMetrics, measure};
pub use prefix_cache::Split;
pub use probes::{LostProbe, ProbeCounts};
pub use recorded_session::RecordedSession;
pub use setup::{PrepareFrequency, no_levels};
pub use survival::{FactRetention, Survival};
pub use verify::{VerifyReport, name, verify};
