//! The files that the events of a session reference. A sweep must not remove them.

use std::collections::HashMap;

use crate::EngineError;
use crate::sessions::{READ_BYTES, Sessions};
use palimpsest_core::event::Event;
use palimpsest_core::ids::{Revision, SessionKey};

/// Referenced files with the SHA-256 of their contents.
pub type ReferencedFiles = HashMap<Box<str>, [u8; 32]>;

/// Reads the complete log of a session and returns its referenced files.
///
/// Only the names are kept in memory, and the session cache is not affected.
pub async fn read_referenced_files(
    sessions: &Sessions,
    key: &SessionKey,
) -> Result<ReferencedFiles, EngineError> {
    let (mut names, mut after) = (ReferencedFiles::new(), Revision::ZERO);
    loop {
        let events = sessions.events(key, after, READ_BYTES).await?;
        let Some((last, _)) = events.last() else {
            return Ok(names);
        };
        after = *last;
        for (_, recorded) in &events {
            add(&recorded.event, &mut names);
        }
    }
}

/// Adds the files that an event references.
pub fn add(event: &Event, names: &mut ReferencedFiles) {
    names.extend(event.files().map(|(file, sha256)| (file.into(), *sha256)));
}
