//! The domain: what a session is, how it changes, and which `messages` array it becomes.
//!
//! Everything here is pure: no I/O, no clock, no randomness, no environment. Time and ids come in
//! as arguments, and a state changes only through [`event::Event`]s:
//!
//! ```text
//! command ──decide(session, command, context)──▶ events
//! log ──fold──▶ Session ──view──▶ wire messages ──codec──▶ a provider's JSON
//! ```
//!
//! Imports `palimpsest-facts` and `palimpsest-types` of this workspace, and re-exports the modules of the latter.
//! Not here: transcripts of other programs (`palimpsest-transcripts`), and storage (`palimpsest-store`).

pub mod codec;
pub mod command;
pub mod event;
#[cfg(feature = "histories")]
#[expect(
    missing_docs,
    clippy::missing_panics_doc,
    clippy::unwrap_used,
    clippy::panic,
    reason = "for tests alone"
)]
pub mod histories;
pub mod levels;
pub mod reading;
pub mod session;
pub mod session_summary;
pub mod validate;
pub mod view;
pub mod working;

pub(crate) use palimpsest_types::quoting;
pub use palimpsest_types::{ids, json, limits, memory, message, policy, summary, tokens};
