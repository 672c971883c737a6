//! The running summary, in the contract's words.

use palimpsest_core::event::{MemoryFailed, MemoryStarted, MemoryUpdated};
use palimpsest_core::ids::{Ordinal, Timestamp};
use palimpsest_core::session::{Author, Session};
use palimpsest_core::tokens::estimate_text;
use palimpsest_proto::context::v1;

use super::scalars::export_timestamp;

/// Who wrote a version.
pub(super) const fn source(author: Author) -> v1::MemorySource {
    match author {
        Author::Template => v1::MemorySource::Template,
        Author::Model => v1::MemorySource::Model,
        Author::Extractive => v1::MemorySource::Extractive,
        Author::Person => v1::MemorySource::Edited,
    }
}

pub(super) const fn started(event: MemoryStarted) -> v1::MemoryUpdateStarted {
    v1::MemoryUpdateStarted {
        version: event.number,
    }
}

/// The sections that a version changed are not told here: the one before it is not at hand.
pub(super) fn updated(event: &MemoryUpdated, session: &Session) -> v1::MemoryUpdated {
    v1::MemoryUpdated {
        version: event.number,
        source: source(event.author).into(),
        changed_sections: Vec::new(),
        last_summarized_message_id: message_id(session, event.covers),
        tokens: estimate_text(&event.text),
    }
}

pub(super) fn failed(event: &MemoryFailed, at: Timestamp) -> v1::MemoryUpdateFailed {
    v1::MemoryUpdateFailed {
        failure: Some(v1::MemoryFailure {
            time: Some(export_timestamp(at)),
            detail: event.detail.to_string(),
            attempts: event.attempts,
            next_attempt_time: Some(export_timestamp(event.next)),
        }),
    }
}

/// The id of a message; empty for none.
pub(super) fn message_id(session: &Session, message: Option<Ordinal>) -> String {
    let entry = message.and_then(|message| session.transcript().get(message));
    entry.map(|entry| entry.id.to_string()).unwrap_or_default()
}
