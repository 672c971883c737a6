//! Encoding of events, snapshots and list rows.
//!
//! Records are messages of the storage proto in an `envelope`. All earlier versions must remain
//! readable. Tests decode golden bytes of every version.

#[macro_use]
mod stored_as;

mod appended;
mod array;
mod compaction;
mod envelope;
mod error;
mod event;
mod hooks;
mod levels;
mod memory_facts;
#[cfg(test)]
mod memory_facts_tests;
mod message;
mod persist_decisions;
mod prompt_cache;
mod session_memory;
mod snapshot;
mod spans;
mod stamp;
mod state;
mod view;
mod working_state;

use bytes::Bytes;
use palimpsest_core::event::RecordedEvent;
use palimpsest_core::ids::SessionKey;
use palimpsest_core::session::{SessionInfo, Snapshot};
use prost::Message as _;

use self::envelope::{open, seal};
pub use self::error::{DecodeError, VERSION};
use self::stored_as::StoredAs;

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
        events: events.iter().map(RecordedEvent::to_proto).collect(),
    };
    seal(&frame.encode_to_vec())
}

/// Decodes the events of one append.
pub fn decode_frame(bytes: &[u8]) -> Result<Vec<RecordedEvent>, DecodeError> {
    let frame = v1::Frame::decode(open(bytes)?).map_err(|_| DecodeError::Damaged("not a frame"))?;
    StoredAs::from_proto(frame.events)
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

/// Encodes the list row of a session.
pub fn encode_list_row(about: &SessionInfo) -> Bytes {
    let stored: v1::About = about.to_proto();
    seal(&stored.encode_to_vec())
}

/// Decodes the list row of a session.
pub fn decode_list_row(bytes: &[u8]) -> Result<SessionInfo, DecodeError> {
    let stored =
        v1::About::decode(open(bytes)?).map_err(|_| DecodeError::Damaged("not a list row"))?;
    SessionInfo::from_proto(stored)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::mem::discriminant;

    use super::*;

    /// Decodes golden records of all kinds of events and encodes them again. The proto must be identical, so that a
    /// change of the encoder cannot change the format unnoticed. Policies are left out, because new fields of the
    /// policy are added to their JSON.
    #[test]
    fn golden_events_are_reencoded_identically() {
        let bytes = include_bytes!("../../tests/golden/events-frame-v1.bin");
        let stored = v1::Frame::decode(open(bytes).unwrap()).unwrap();
        let mut kinds = HashSet::new();
        for mut stored in stored.events {
            kinds.insert(discriminant(stored.event.as_ref().unwrap()));
            let mut written = RecordedEvent::from_proto(stored.clone())
                .unwrap()
                .to_proto();
            for recorded in [&mut stored, &mut written] {
                match recorded.event.as_mut().unwrap() {
                    v1::recorded::Event::SessionCreated(event) => event.policy = None,
                    v1::recorded::Event::PolicyChanged(event) => event.policy = None,
                    _ => {}
                }
            }
            assert_eq!(written, stored);
        }
        // All kinds of the release that wrote the records, except the four of session memory.
        assert_eq!(kinds.len(), 22);
    }

    #[test]
    fn a_golden_snapshot_is_reencoded_identically() {
        let bytes = include_bytes!("../../tests/golden/events-snapshot-v1.bin");
        let mut stored = v1::Snapshot::decode(open(bytes).unwrap()).unwrap();
        let key = SessionKey::parse("projects/p/sessions/s").unwrap();
        let mut written = snapshot::write(&decode_snapshot(key, bytes).unwrap());
        (stored.policy, written.policy) = (None, None);
        assert_eq!(written, stored);
    }
}
