//! Encoding of session memory.

use palimpsest_core::event::{
    MemoryFileWritten, MemoryUpdateFailed, MemoryUpdateStarted, MemoryUpdated,
};
use palimpsest_core::ids::{Ordinal, Revision, Timestamp};
use palimpsest_core::memory::{MemoryContent, MemoryDocument, SectionKind};
use palimpsest_core::session::{Author, MemoryFailure, MemoryVersion, SessionMemory, text_digest};

use super::error::{DecodeError, split_ids};
use super::stored_as::StoredAs;
use super::v1;

stored_enum! {
    Author = Author { Template, Model, Extractive, Person }
    or "a text without an author"
}

stored_struct! {
    MemoryUpdateStarted = MemoryStarted {}
    renamed { version = number }
}

stored_struct! {
    MemoryFileWritten = MemoryFiled {}
    renamed { version = number }
}

stored_struct! {
    MemoryUpdateFailed = MemoryFailed { detail, attempts }
    renamed { retry_at = next_ms, is_file_failure = of_file }
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
        number: event.version,
        // Only records from before facts were stored have a text. `read_updated` still reads it.
        text: String::new(),
        author: event.author.to_proto(),
        source: event.source.get(),
        covers: event.covered_through.map(Ordinal::get),
        took_ms: event.duration_ms,
        read: event.read_through.map(Ordinal::get),
        changed: event.changed.iter().copied().map(write_section).collect(),
        file: event.file.iter().flatten().copied().collect(),
        sections: event.content.to_proto(),
        digest: event.digest.to_proto(),
        request: event.request.to_proto(),
    }
}

fn read_updated(stored: v1::MemoryUpdated) -> Result<MemoryUpdated, DecodeError> {
    let author = Author::from_proto(stored.author)?;
    // A version without sections was written before facts were stored. Its text has no known fact.
    let (content, digest) = if stored.sections.is_empty() {
        let content = MemoryContent::verbatim(&MemoryDocument::parse(&stored.text));
        (content, text_digest(stored.text.as_bytes()))
    } else {
        let content = MemoryContent::from_proto(stored.sections)?;
        (content, StoredAs::from_proto(stored.digest)?)
    };
    Ok(MemoryUpdated {
        version: stored.number,
        author,
        content,
        digest,
        source: Revision::new(stored.source),
        covered_through: stored.covers.map(Ordinal::new),
        read_through: stored.read.map(Ordinal::new),
        changed: stored
            .changed
            .into_iter()
            .map(read_section)
            .collect::<Result<_, _>>()?,
        // The optional digest is stored as a list with at most one id.
        file: split_ids(&stored.file)?.first().copied(),
        duration_ms: stored.took_ms,
        request: StoredAs::from_proto(stored.request)?,
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
        next_ms: failure.retry_at.as_millis(),
        of_file,
    }
}

fn read_failure(stored: v1::MemoryFailed, at_ms: i64) -> MemoryFailure {
    MemoryFailure {
        failed_at: Timestamp::from_millis(at_ms),
        detail: stored.detail.into(),
        attempts: stored.attempts,
        retry_at: Timestamp::from_millis(stored.next_ms),
    }
}

pub(super) fn write(notes: &SessionMemory) -> v1::Notes {
    let version = notes.version.as_ref();
    let (failure, unfiled) = (notes.failure.as_ref(), notes.file_failure.as_ref());
    v1::Notes {
        version: version.map(|version| v1::MemoryUpdated {
            number: version.number,
            text: String::new(),
            author: version.author.to_proto(),
            source: version.source.get(),
            covers: version.covered_through.map(Ordinal::get),
            took_ms: version.duration_ms,
            read: version.read_through.map(Ordinal::get),
            // The state keeps neither the changed sections nor the digest of a person's file nor the request: only
            // events have them.
            changed: Vec::new(),
            file: Vec::new().into(),
            request: None,
            sections: version.content.to_proto(),
            digest: version.digest.to_proto(),
        }),
        written_ms: version.map_or(0, |version| version.at.as_millis()),
        running_ms: notes.running.map(Timestamp::as_millis),
        failure: failure.map(|failure| write_failure(failure, false)),
        failed_ms: failure.map_or(0, |failure| failure.failed_at.as_millis()),
        since_tokens: notes.since_tokens,
        since_calls: notes.since_calls,
        unfiled: unfiled.map(|failure| write_failure(failure, true)),
        unfiled_ms: unfiled.map_or(0, |failure| failure.failed_at.as_millis()),
        earlier: notes.earlier_digests.iter().flatten().copied().collect(),
        by_others: notes.has_foreign_text,
        filed_read: notes.file_read_through.map(Ordinal::get),
    }
}

pub(super) fn read(stored: Option<v1::Notes>) -> Result<SessionMemory, DecodeError> {
    let stored = stored.unwrap_or_default();
    // A version and a failure have the stored form of their events, which lacks the time of the event. Other fields
    // contain these times.
    let (written, failed, unfiled) = (stored.written_ms, stored.failed_ms, stored.unfiled_ms);
    let version = stored.version.map(read_updated).transpose()?;
    Ok(SessionMemory {
        version: version.map(|event| MemoryVersion {
            number: event.version,
            content: event.content,
            digest: event.digest,
            author: event.author,
            at: Timestamp::from_millis(written),
            source: event.source,
            covered_through: event.covered_through,
            read_through: event.read_through,
            duration_ms: event.duration_ms,
        }),
        running: stored.running_ms.map(Timestamp::from_millis),
        failure: stored.failure.map(|it| read_failure(it, failed)),
        file_failure: stored.unfiled.map(|it| read_failure(it, unfiled)),
        since_tokens: stored.since_tokens,
        since_calls: stored.since_calls,
        earlier_digests: split_ids(&stored.earlier)?.into(),
        has_foreign_text: stored.by_others,
        file_read_through: stored.filed_read.map(Ordinal::new),
    })
}

#[cfg(test)]
mod tests {
    use palimpsest_core::message::Digest;
    use palimpsest_core::session::{RequestMethod, RequestStamp};
    use prost::Message as _;

    use super::*;

    /// Versions before 0.1.0 stored the text.
    #[test]
    fn a_former_version_is_read_as_verbatim_lines() {
        let mut document = MemoryDocument::template();
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
    fn a_text_of_a_call_keeps_its_request() {
        let event = MemoryUpdated {
            version: 1,
            digest: text_digest(b"x"),
            author: Author::Person,
            source: Revision::new(7),
            content: MemoryContent::default(),
            covered_through: None,
            read_through: None,
            changed: Vec::new(),
            file: None,
            request: Some(RequestStamp {
                id: "r".into(),
                method: RequestMethod::Memory,
                digest: Digest::of_bytes(b"body"),
            }),
            duration_ms: 0,
        };
        let stored = write_updated(&event);
        let bytes = stored.encode_to_vec();
        // The field has number 12: its key is 12 * 8 + 2. The method has number 36.
        let request = stored.request.as_ref().unwrap().encode_to_vec();
        let length = u8::try_from(request.len()).unwrap();
        assert!(bytes.ends_with(&[&[98, length][..], &request].concat()));
        assert!(
            request.windows(2).any(|pair| pair == [16, 36]),
            "{request:?}"
        );
        assert_eq!(read_updated(stored), Ok(event));
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
