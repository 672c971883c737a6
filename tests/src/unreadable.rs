//! Sessions that cannot be decoded.

use std::num::NonZeroU32;
use std::path::Path;

use bytes::Bytes;
use palimpsest_core::ids::SessionKey;
use palimpsest_store::sled::{SledLog, SledOptions};
use palimpsest_store::{Batch, DueChange, Position, SessionLog as _, Store as _};

/// Adds a session whose row and log cannot be decoded to the store of a stopped server. `session` is its resource name.
pub async fn add_unreadable_session(data: &Path, session: &str) {
    let log = SledLog::open(&SledOptions::new(data.join("log"))).unwrap();
    let batch = Batch {
        expected: Position::START,
        events: NonZeroU32::MIN,
        frame: Bytes::from_static(b"junk"),
        list_row: Bytes::from_static(b"junk"),
        parent: None,
        due: DueChange::Keep,
        blob_bytes: 0,
        completed_intents: Vec::new(),
        tips: None,
    };
    let key = SessionKey::parse(session).unwrap();
    log.append(&key, batch).await.unwrap();
    log.close().await.unwrap();
}
