//! Replay of imported transcripts through sessions, step by step as their agents did.
//!
//! [`verify`] checks that every view is valid, continues the previous one, and equals the array of a
//! caller that follows `keep_messages`. [`measure`] determines the effect of a policy in tokens,
//! cost, and facts that the model can still see or find. Both use the same driver, so measured views
//! are verified views. Files, threads and output are handled elsewhere.

mod adopt;
mod caller;
mod compact;
mod compaction;
mod driver;
#[cfg(test)]
mod ledger_tests;
mod measure;
mod needles;
mod options;
mod prefix_cache;
mod probe_kind;
mod probes;
mod reachability;
pub mod recall;
mod recorded_session;
mod survival;
#[cfg(test)]
mod tests;
pub mod tune;
mod verify;

pub use compaction::ReplayCompaction;
pub use measure::{ReplayMetrics, measure};
pub use options::{PrepareFrequency, no_levels};
pub use prefix_cache::TokenSplit;
pub use probe_kind::ProbeKind;
pub use probes::{LostProbe, ProbeCounts};
pub use recorded_session::RecordedSession;
pub use survival::{FactRetention, Survival};
pub use verify::{VerifyReport, name, verify};
