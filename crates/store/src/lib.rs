//! Storage of sessions: the log of events, and the blobs with tool results.
//!
//! The store engines implement [`SessionLog`] and store opaque bytes. Only `encoding` knows the events.

pub mod archive;
pub mod blobs;
#[cfg(feature = "conformance")]
pub mod conformance;
mod crash;
pub mod encoding;
mod error;
mod fs;
mod head_record;
mod identity;
mod leader_tasks;
mod log;
pub mod memory;
pub mod postgres;
pub mod sled;

pub use crash::crash_point;
pub use error::{StoreError, error_chain};
pub use identity::{NotAStoreId, StoreId};
pub use log::{
    Batch, DueChange, DueQuery, DueSession, FileIntent, Frame, IntentPage, LONGEST_LEASE_MS,
    LONGEST_WAIT_MS, Lease, MAX_FILE_BYTES, MAX_FILES, MAX_FRAME_BYTES, MAX_LIST, MAX_OWNER_BYTES,
    MAX_SUMMARY_BYTES, Position, RowPage, SessionHead, SessionLog, SnapshotMark, StorageUsage,
    StoredSnapshot, Tombstone,
};
