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
mod driver;
mod facts;
#[cfg(test)]
mod ledger_tests;
mod measure;
mod prefix_cache;
mod probes;
mod recover;
mod survival;
mod tape;
#[cfg(test)]
mod tests;
mod verify;

pub use compact::Compaction;
pub use measure::{Measured, measure};
pub use prefix_cache::Split;
pub use probes::{Lost, ProbeKind, Retained};
pub use survival::{Share, Survival};
pub use tape::Tape;
pub use verify::{Pace, Report, name, verify};

use palimpsest_core::policy::Policy;

/// A policy that leaves everything as it came: what others are compared with.
pub fn no_levels() -> Policy {
    let mut policy = Policy::default();
    policy.tool_results.enabled = false;
    policy.snip.tag_turns = false;
    policy.microcompact.enabled = false;
    policy.collapse.enabled = false;
    policy.autocompact.enabled = false;
    policy.session_memory.enabled = false;
    policy
}
