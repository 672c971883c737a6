//! The background worker that keeps every session's `summary.md` up to date.
//!
//! The store's queue says which sessions are due. The worker claims one under a lease, takes notes of
//! what is new, has the version committed, and writes the file. Projects take turns. Whatever fails is
//! told and tried again later; whatever dies is taken over when its lease lapses, and every step can be
//! repeated.
//!
//! Sessions belong to whoever runs the worker: it reaches them through [`Host`], so that a server's own
//! sessions stay as they are in memory. Deliberately not here: when a session is due and what a version
//! means (the core), and how a model is asked (behind [`MemoryWriter`]).

mod backoff;
mod by_model;
mod compose;
mod file;
mod host;
mod lease;
mod options;
mod pass;
mod queue;
pub mod sessions;
mod transcript;
mod version_mark;
mod worker;
mod writer;

pub use host::{Host, HostError, MemoryJob, MessagePage};
pub use options::{Options, WorkerConfig};
pub use palimpsest_facts::Redact;
pub use worker::{Worker, WorkerStats};
pub use writer::{MemoryPrompt, MemoryReply, MemoryWriter, WriteError};
