//! The domain: the state of a session, the commands that change it, and the `messages` array that results from it.
//!
//! All code is pure: no I/O, clock, randomness or environment. Time and ids are arguments. The state changes only
//! through [`event::Event`]s:
//!
//! ```text
//! command ──decide(session, command, context)──▶ events, effects
//! log ──fold──▶ Session ──view──▶ wire messages ──codec──▶ a provider's JSON
//! ```
//!
//! This crate uses `palimpsest-facts` and `palimpsest-types`, and re-exports the modules of the latter. Transcripts of
//! other programs are in `palimpsest-transcripts`, and storage is in `palimpsest-store`.

pub mod array;
pub mod codec;
pub mod command;
pub mod compaction;
pub mod effect;
pub mod event;
pub mod levels;
pub mod memory;
pub mod session;
pub mod session_summary;
pub mod transcript_reader;
pub mod validate;
pub mod view;
pub mod working;

pub(crate) use palimpsest_types::quoting;
pub use palimpsest_types::{hex, ids, json, limits, message, models, policy, summary, tokens};
