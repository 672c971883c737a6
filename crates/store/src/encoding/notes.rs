//! The running summary.

use palimpsest_core::event::{MemoryFailed, MemoryStarted, MemoryUpdated};
use palimpsest_core::ids::{Ordinal, Revision, Timestamp};
use palimpsest_core::session::{Author, Failure, Notes, Version};

use super::{DecodeError, v1};

const fn write_author(author: Author) -> v1::Author {
    match author {
        Author::Template => v1::Author::Template,
        Author::Model => v1::Author::Model,
        Author::Extractive => v1::Author::Extractive,
        Author::Person => v1::Author::Person,
    }
}

const fn read_author(stored: v1::Author) -> Result<Author, DecodeError> {
    Ok(match stored {
        v1::Author::Template => Author::Template,
        v1::Author::Model => Author::Model,
        v1::Author::Extractive => Author::Extractive,
        v1::Author::Person => Author::Person,
        v1::Author::Unspecified => return Err(DecodeError::Damaged("a text by nobody")),
    })
}

pub(super) fn write_started(event: MemoryStarted) -> v1::MemoryStarted {
    v1::MemoryStarted {
        number: event.number,
    }
}

pub(super) fn read_started(stored: v1::MemoryStarted) -> MemoryStarted {
    MemoryStarted {
        number: stored.number,
    }
}

pub(super) fn write_updated(event: &MemoryUpdated) -> v1::MemoryUpdated {
    v1::MemoryUpdated {
        number: event.number,
        text: event.text.to_string(),
        author: write_author(event.author).into(),
        source: event.source.get(),
        covers: event.covers.map(Ordinal::get),
        took_ms: event.took_ms,
    }
}

pub(super) fn read_updated(stored: v1::MemoryUpdated) -> Result<MemoryUpdated, DecodeError> {
    Ok(MemoryUpdated {
        number: stored.number,
        author: read_author(stored.author())?,
        text: stored.text.into(),
        source: Revision::new(stored.source),
        covers: stored.covers.map(Ordinal::new),
        took_ms: stored.took_ms,
    })
}

pub(super) fn write_failed(event: &MemoryFailed) -> v1::MemoryFailed {
    v1::MemoryFailed {
        detail: event.detail.to_string(),
        attempts: event.attempts,
        next_ms: event.next.as_millis(),
    }
}

pub(super) fn read_failed(stored: v1::MemoryFailed) -> MemoryFailed {
    MemoryFailed {
        detail: stored.detail.into(),
        attempts: stored.attempts,
        next: Timestamp::from_millis(stored.next_ms),
    }
}

pub(super) fn write(notes: &Notes) -> v1::Notes {
    let version = notes.version.as_ref();
    let failure = notes.failure.as_ref();
    v1::Notes {
        version: version.map(|version| v1::MemoryUpdated {
            number: version.number,
            text: version.text.to_string(),
            author: write_author(version.author).into(),
            source: version.source.get(),
            covers: version.covers.map(Ordinal::get),
            took_ms: version.took_ms,
        }),
        written_ms: version.map_or(0, |version| version.at.as_millis()),
        running_ms: notes.running.map(Timestamp::as_millis),
        failure: failure.map(|failure| v1::MemoryFailed {
            detail: failure.detail.to_string(),
            attempts: failure.attempts,
            next_ms: failure.next.as_millis(),
        }),
        failed_ms: failure.map_or(0, |failure| failure.at.as_millis()),
        since_tokens: notes.since_tokens,
        since_calls: notes.since_calls,
        running_tokens: notes.running_tokens,
        running_calls: notes.running_calls,
    }
}

pub(super) fn read(stored: Option<v1::Notes>) -> Result<Notes, DecodeError> {
    let stored = stored.unwrap_or_default();
    let (written, failed) = (stored.written_ms, stored.failed_ms);
    let version = stored.version.map(read_updated).transpose()?;
    Ok(Notes {
        version: version.map(|event| Version {
            number: event.number,
            text: event.text,
            author: event.author,
            at: Timestamp::from_millis(written),
            source: event.source,
            covers: event.covers,
            took_ms: event.took_ms,
        }),
        running: stored.running_ms.map(Timestamp::from_millis),
        failure: stored.failure.map(read_failed).map(|event| Failure {
            at: Timestamp::from_millis(failed),
            detail: event.detail,
            attempts: event.attempts,
            next: event.next,
        }),
        since_tokens: stored.since_tokens,
        since_calls: stored.since_calls,
        running_tokens: stored.running_tokens,
        running_calls: stored.running_calls,
    })
}
