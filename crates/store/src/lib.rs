//! Storage of sessions: the log of events, and the blobs with tool results.
//!
//! The store engines implement [`Store`] and store opaque bytes. A caller takes the role that it needs, such as
//! [`WorkQueue`]. Only `encoding` knows the events.

pub mod archive;
mod array_index;
pub mod blobs;
mod crash;
pub mod encoding;
mod error;
mod file_intents;
mod fs;
#[doc(hidden)]
pub mod head_record;
mod identity;
#[doc(hidden)]
pub mod leader_tasks;
mod log;
pub mod postgres;
pub mod sled;
mod store;
mod subagent_index;
mod tombstones;
mod work_queue;

pub use array_index::{ArrayIndex, MAX_LOOKUP_DIGESTS, MAX_SESSION_TIPS, SessionTips};
pub use crash::crash_point;
pub use error::{StoreError, error_chain};
pub use file_intents::{FileIntent, FileIntents, IntentPage, MAX_FILE_BYTES, MAX_FILES};
pub use identity::{NotAStoreId, StoreId};
pub use log::{
    Batch, Frame, MAX_FRAME_BYTES, MAX_LIST, MAX_LIST_ROW_BYTES, Position, RowPage, SessionHead,
    SessionLog, SnapshotMark, StoredSnapshot, check_complete,
};
pub use store::{Leadership, StorageUsage, Store};
pub use subagent_index::{MAX_LOOKUP_PARENTS, SubagentIndex};
pub use tombstones::{Tombstone, Tombstones};
pub use work_queue::{
    DueChange, DueQuery, DueSession, LONGEST_LEASE_MS, LONGEST_WAIT_MS, Lease, MAX_OWNER_BYTES,
    WorkQueue,
};
