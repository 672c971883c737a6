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
mod recover;
mod setup;
mod survival;
mod tape;
#[cfg(test)]
mod tests;
mod verify;

pub use compaction::Compaction;
pub use kinds::ProbeKind;
pub use measure::{Measured, measure};
pub use prefix_cache::Split;
pub use probes::{Lost, Retained};
pub use setup::{Pace, no_levels};
pub use survival::{Share, Survival};
pub use tape::Tape;
pub use verify::{Report, name, verify};
