//! The background worker that keeps every session's `summary.md` up to date.
//!
//! The work queue in the store lists the due sessions. The worker leases one, reads its new messages, commits a new
//! version, and writes the file. Projects take turns. Failures are recorded and retried. If a worker dies, another
//! one takes over when the lease expires. Every step is idempotent.
//!
//! The worker reaches sessions through [`SessionHost`], so that a server's cached sessions are used. The core defines
//! when a session is due and the meaning of a version. Models are called behind [`MemoryWriter`].

mod backoff;
mod by_model;
mod compose;
mod edit;
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

pub use edit::{MemoryEdit, prepare_edit};
pub use host::{HostError, MemoryJob, MessagePage, SessionHost};
pub use options::{WorkerConfig, WorkerOptions};
pub use palimpsest_facts::Redact;
pub use worker::{Worker, WorkerStats};
pub use writer::{MemoryPrompt, MemoryReply, MemoryWriteError, MemoryWriter};
