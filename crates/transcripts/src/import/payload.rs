//! Messages that an importer writes itself, because the program stores them in a form of its own.

use std::borrow::Cow;

use palimpsest_core::ids::{Attributes, MessageId, Timestamp};
use palimpsest_core::view::Provider;
use serde::Serialize;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::imported::ImportedMessage;
use crate::utc;

/// The parts of a message that are the same in all formats with one entry per line.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry<'e> {
    /// The line, counted from 1.
    pub(super) line: usize,
    /// The id.
    pub(super) id: Option<MessageId>,
    /// The time as in the file.
    pub(super) time: Option<&'e str>,
    /// The working directory.
    pub(super) cwd: Option<&'e str>,
}

impl Entry<'_> {
    /// Returns the message with a payload of the file or of the importer.
    pub(super) fn message(
        self,
        provider: Provider,
        payload: Cow<'_, RawValue>,
    ) -> ImportedMessage<'_> {
        ImportedMessage {
            line: self.line,
            id: self.id,
            provider,
            payload,
            parent: None,
            at: self.at(),
            machine_generated: false,
            transcript_only: false,
            attributes: self.attributes(),
            model: None,
            usage: None,
            decoded: None,
        }
    }

    fn at(self) -> Option<Timestamp> {
        self.time.and_then(utc::parse)
    }

    fn attributes(self) -> Attributes {
        let cwd = self.cwd.map(|cwd| ("cwd".into(), cwd.into()));
        cwd.into_iter().collect()
    }
}

/// Returns the id of a message in a file whose messages have no ids. A line keeps its number when the file grows, so a
/// later import yields the same ids.
pub(super) fn id_of_line(session: Option<Uuid>, line: usize) -> Option<MessageId> {
    // The lowest bits of a session's id are random, so the number may change them.
    let id = session?.as_u128() ^ line as u128;
    Some(MessageId::new(Uuid::from_u128(id)))
}

/// Returns a value as JSON. `None` only if a map has keys that are no strings.
pub(super) fn to_payload<'a>(value: &impl Serialize) -> Option<Cow<'a, RawValue>> {
    serde_json::value::to_raw_value(value).ok().map(Cow::Owned)
}
