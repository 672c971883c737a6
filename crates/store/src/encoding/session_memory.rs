//! Encoding of session memory.

use palimpsest_core::event::{MemoryFiled, MemoryUpdateFailed, MemoryUpdateStarted, MemoryUpdated};
use palimpsest_core::ids::{Ordinal, Revision, Timestamp};
use palimpsest_core::memory::{Memory, MemoryContent, SectionKind};
use palimpsest_core::session::{Author, MemoryFailure, MemoryVersion, SessionMemory, text_digest};

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
        text: String::new(),
        author: event.author.to_proto(),
        source: event.source.get(),
        covers: event.covers.map(Ordinal::get),
        took_ms: event.took_ms,
        read: event.read.map(Ordinal::get),
        changed: event.changed.iter().copied().map(write_section).collect(),
        file: event.file.iter().flatten().copied().collect(),
        sections: event.content.to_proto(),
        digest: event.digest.to_proto(),
    }
}

fn read_updated(stored: v1::MemoryUpdated) -> Result<MemoryUpdated, DecodeError> {
    let author = Author::from_proto(stored.author)?;
    // A version without sections was written before facts were stored. Its text has no known fact.
    let (content, digest) = if stored.sections.is_empty() {
        let content = MemoryContent::verbatim(&Memory::parse(&stored.text));
        (content, text_digest(stored.text.as_bytes()))
    } else {
        let content = MemoryContent::from_proto(stored.sections)?;
        (content, StoredAs::from_proto(stored.digest)?)
    };
    Ok(MemoryUpdated {
        number: stored.number,
        author,
        content,
        digest,
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
    section.ok_or(DecodeError::Damaged("an unknown section"))
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
            text: String::new(),
            author: version.author.to_proto(),
            source: version.source.get(),
            covers: version.covers.map(Ordinal::get),
            took_ms: version.took_ms,
            read: version.read.map(Ordinal::get),
            changed: Vec::new(),
            file: Vec::new().into(),
            sections: version.content.to_proto(),
            digest: version.digest.to_proto(),
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
            content: event.content,
            digest: event.digest,
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Versions before 0.1.0 stored the text.
    #[test]
    fn a_former_version_is_read_as_verbatim_lines() {
        let mut document = Memory::template();
        document.set(SectionKind::Task, "The user asked:\n> Mend it.");
        let text = document.render();
        let stored = v1::MemoryUpdated {
            number: 2,
            text: text.clone(),
            author: v1::Author::Extractive.into(),
            ..v1::MemoryUpdated::default()
        };
        let event = read_updated(stored).unwrap();
        assert_eq!(&**event.content.text(), text);
        assert_eq!(event.digest, text_digest(text.as_bytes()));
        // The new form of the same version is equal.
        assert_eq!(read_updated(write_updated(&event)), Ok(event));
    }

    #[test]
    fn a_version_without_a_digest_is_damaged() {
        let stored = v1::MemoryUpdated {
            author: v1::Author::Template.into(),
            sections: MemoryContent::default().to_proto(),
            ..v1::MemoryUpdated::default()
        };
        let read = read_updated(stored);
        assert!(matches!(read, Err(DecodeError::Damaged(_))), "{read:?}");
    }
}
