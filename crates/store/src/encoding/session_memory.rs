//! Encoding of session memory.

use palimpsest_core::event::{MemoryFiled, MemoryUpdateFailed, MemoryUpdateStarted, MemoryUpdated};
use palimpsest_core::ids::{Ordinal, Revision, Timestamp};
use palimpsest_core::session::{Author, MemoryFailure, MemoryVersion, SessionMemory};

use palimpsest_core::memory::SectionKind;

use super::error::{DecodeError, sixteens};
use super::stored_as::StoredAs;
use super::v1;

stored_enum! {
    Author = Author { Template, Model, Extractive, Person }
    or "a text without an author"
}

stored_struct! { MemoryUpdateStarted = MemoryStarted { number } }

stored_struct! { MemoryFiled = MemoryFiled { number } }

stored_struct! {
    MemoryUpdateFailed = MemoryFailed { detail, attempts, of_file }
    renamed { next = next_ms }
}

impl StoredAs<v1::MemoryUpdated> for MemoryUpdated {
    fn to_proto(&self) -> v1::MemoryUpdated {
        write_updated(self)
    }

    fn from_proto(stored: v1::MemoryUpdated) -> Result<Self, DecodeError> {
        read_updated(stored)
    }
}

fn write_updated(event: &MemoryUpdated) -> v1::MemoryUpdated {
    v1::MemoryUpdated {
        number: event.number,
        text: event.text.to_string(),
        author: event.author.to_proto(),
        source: event.source.get(),
        covers: event.covers.map(Ordinal::get),
        took_ms: event.took_ms,
        read: event.read.map(Ordinal::get),
        changed: event.changed.iter().copied().map(write_section).collect(),
        file: event.file.iter().flatten().copied().collect(),
    }
}

fn read_updated(stored: v1::MemoryUpdated) -> Result<MemoryUpdated, DecodeError> {
    Ok(MemoryUpdated {
        number: stored.number,
        author: Author::from_proto(stored.author)?,
        text: stored.text.into(),
        source: Revision::new(stored.source),
        covers: stored.covers.map(Ordinal::new),
        read: stored.read.map(Ordinal::new),
        changed: stored
            .changed
            .into_iter()
            .map(read_section)
            .collect::<Result<_, _>>()?,
        file: sixteens(&stored.file)?.first().copied(),
        took_ms: stored.took_ms,
    })
}

fn write_section(section: SectionKind) -> u32 {
    // The index is less than ten, so the conversion cannot fail.
    u32::try_from(section.index()).unwrap_or(0)
}

fn read_section(stored: u32) -> Result<SectionKind, DecodeError> {
    let index = usize::try_from(stored).unwrap_or(usize::MAX);
    let section = SectionKind::ALL.get(index).copied();
    section.ok_or(DecodeError::Damaged("a section that there is not"))
}

fn write_failure(failure: &MemoryFailure, of_file: bool) -> v1::MemoryFailed {
    v1::MemoryFailed {
        detail: failure.detail.to_string(),
        attempts: failure.attempts,
        next_ms: failure.next.as_millis(),
        of_file,
    }
}

fn read_failure(stored: v1::MemoryFailed, at_ms: i64) -> MemoryFailure {
    MemoryFailure {
        at: Timestamp::from_millis(at_ms),
        detail: stored.detail.into(),
        attempts: stored.attempts,
        next: Timestamp::from_millis(stored.next_ms),
    }
}

pub(super) fn write(notes: &SessionMemory) -> v1::Notes {
    let version = notes.version.as_ref();
    let (failure, unfiled) = (notes.failure.as_ref(), notes.unfiled.as_ref());
    v1::Notes {
        version: version.map(|version| v1::MemoryUpdated {
            number: version.number,
            text: version.text.to_string(),
            author: version.author.to_proto(),
            source: version.source.get(),
            covers: version.covers.map(Ordinal::get),
            took_ms: version.took_ms,
            read: version.read.map(Ordinal::get),
            changed: Vec::new(),
            file: Vec::new().into(),
        }),
        written_ms: version.map_or(0, |version| version.at.as_millis()),
        running_ms: notes.running.map(Timestamp::as_millis),
        failure: failure.map(|failure| write_failure(failure, false)),
        failed_ms: failure.map_or(0, |failure| failure.at.as_millis()),
        since_tokens: notes.since_tokens,
        since_calls: notes.since_calls,
        unfiled: unfiled.map(|failure| write_failure(failure, true)),
        unfiled_ms: unfiled.map_or(0, |failure| failure.at.as_millis()),
        earlier: notes.earlier.iter().flatten().copied().collect(),
        by_others: notes.by_others,
        filed_read: notes.filed_read.map(Ordinal::get),
    }
}

pub(super) fn read(stored: Option<v1::Notes>) -> Result<SessionMemory, DecodeError> {
    let stored = stored.unwrap_or_default();
    let (written, failed, unfiled) = (stored.written_ms, stored.failed_ms, stored.unfiled_ms);
    let version = stored.version.map(read_updated).transpose()?;
    Ok(SessionMemory {
        version: version.map(|event| MemoryVersion {
            number: event.number,
            text: event.text.into(),
            author: event.author,
            at: Timestamp::from_millis(written),
            source: event.source,
            covers: event.covers,
            read: event.read,
            took_ms: event.took_ms,
        }),
        running: stored.running_ms.map(Timestamp::from_millis),
        failure: stored.failure.map(|it| read_failure(it, failed)),
        unfiled: stored.unfiled.map(|it| read_failure(it, unfiled)),
        since_tokens: stored.since_tokens,
        since_calls: stored.since_calls,
        earlier: sixteens(&stored.earlier)?.into(),
        by_others: stored.by_others,
        filed_read: stored.filed_read.map(Ordinal::new),
    })
}
