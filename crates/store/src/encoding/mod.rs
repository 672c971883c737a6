//! Encoding of events, snapshots and list rows.
//!
//! Records are messages of the storage proto in an `envelope`. All earlier versions must remain
//! readable. Tests decode golden bytes of every version.

mod appended;
mod compaction;
mod envelope;
mod error;
mod event;
mod hooks;
mod levels;
mod message;
mod persist_decisions;
mod prompt_cache;
mod session_memory;
mod snapshot;
mod spans;
mod stamp;
mod state;
mod view;
mod working;

use bytes::Bytes;
use palimpsest_core::event::RecordedEvent;
use palimpsest_core::ids::SessionKey;
use palimpsest_core::session::{About, Snapshot};
use prost::Message as _;

use self::envelope::{open, seal};
pub use self::error::{DecodeError, VERSION};

/// The generated types of the storage proto.
#[expect(
    unreachable_pub,
    clippy::pedantic,
    reason = "the code is generated; its style is prost's"
)]
mod v1 {
    include!(concat!(env!("OUT_DIR"), "/palimpsest.storage.v1.rs"));
}

/// Encodes the events of one append.
pub fn encode_frame(events: &[RecordedEvent]) -> Bytes {
    let frame = v1::Frame {
        events: events.iter().map(event::write).collect(),
    };
    seal(&frame.encode_to_vec())
}

/// Decodes the events of one append.
pub fn decode_frame(bytes: &[u8]) -> Result<Vec<RecordedEvent>, DecodeError> {
    let frame = v1::Frame::decode(open(bytes)?).map_err(|_| DecodeError::Damaged("not a frame"))?;
    frame.events.into_iter().map(event::read).collect()
}

/// Encodes a snapshot. Snapshots contain no message contents.
pub fn encode_snapshot(snapshot: &Snapshot) -> Bytes {
    seal(&snapshot::write(snapshot).encode_to_vec())
}

/// Decodes a snapshot of the session `key`.
pub fn decode_snapshot(key: SessionKey, bytes: &[u8]) -> Result<Snapshot, DecodeError> {
    let stored =
        v1::Snapshot::decode(open(bytes)?).map_err(|_| DecodeError::Damaged("not a snapshot"))?;
    snapshot::read(key, stored)
}

/// Encodes the summary of a session for lists.
pub fn encode_about(about: &About) -> Bytes {
    seal(&snapshot::write_about(about).encode_to_vec())
}

/// Decodes the summary of a session for lists.
pub fn decode_about(bytes: &[u8]) -> Result<About, DecodeError> {
    let stored =
        v1::About::decode(open(bytes)?).map_err(|_| DecodeError::Damaged("not a list row"))?;
    snapshot::read_about(stored)
}
