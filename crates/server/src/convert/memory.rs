//! The running summary, in the contract's words.

use palimpsest_core::command::{memory_runs, memory_update_due, wants_memory};
use palimpsest_core::event::{MemoryFailed, MemoryStarted, MemoryUpdated};
use palimpsest_core::ids::{Ordinal, SessionKey, Timestamp};
use palimpsest_core::memory::{Memory, SectionKind};
use palimpsest_core::session::{Author, Behind, Notes, Session};
use palimpsest_core::tokens::estimate_text;
use palimpsest_proto::context::v1;
use palimpsest_store::blobs::summary_path;
use sha2::{Digest as _, Sha256};

use super::scalars::{export_millis, export_timestamp};
use super::tokens32;

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

pub(super) fn updated(event: &MemoryUpdated, session: &Session) -> v1::MemoryUpdated {
    v1::MemoryUpdated {
        version: event.number,
        source: source(event.author).into(),
        changed_sections: event.changed.iter().map(|it| section(*it).into()).collect(),
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

const fn section(kind: SectionKind) -> v1::MemorySectionKind {
    use v1::MemorySectionKind as Kind;
    match kind {
        SectionKind::Title => Kind::SessionTitle,
        SectionKind::State => Kind::CurrentState,
        SectionKind::Task => Kind::TaskSpecification,
        SectionKind::Files => Kind::FilesAndFunctions,
        SectionKind::Workflow => Kind::Workflow,
        SectionKind::Errors => Kind::ErrorsAndCorrections,
        SectionKind::Documentation => Kind::Documentation,
        SectionKind::Learnings => Kind::Learnings,
        SectionKind::Results => Kind::KeyResults,
        SectionKind::Worklog => Kind::Worklog,
    }
}

/// What is to be told of a session's summary, taken while the session stands still.
#[derive(Debug, Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, and any may hold together"
)]
pub struct MemoryView {
    notes: Notes,
    is_wanted: bool,
    is_due: bool,
    is_stale: bool,
    is_running: bool,
    behind: Behind,
    covers: String,
}

impl MemoryView {
    /// Looks at a session.
    pub fn of(session: &Session, now: Timestamp) -> Self {
        let covers = session.notes().version.as_ref().and_then(|it| it.covers);
        let behind = session.memory_behind();
        Self {
            notes: session.notes().clone(),
            is_wanted: wants_memory(session),
            is_due: memory_update_due(session, now).is_some(),
            is_stale: session.memory_is_stale(),
            is_running: memory_runs(session, now),
            behind: Behind {
                tokens: session.ledger().calibration.apply(behind.tokens),
                ..behind
            },
            covers: message_id(session, covers),
        }
    }

    /// The summary, and whether its text was left out because the caller has that version.
    pub fn tell(self, key: &SessionKey, known_version: u64) -> (v1::SessionMemory, bool) {
        let notes = &self.notes;
        let memory = notes.version.as_ref().map(|it| Memory::parse(&it.text));
        let mut told = v1::SessionMemory {
            state: self.state(memory.as_ref()).into(),
            last_summarized_message_id: self.covers.clone(),
            behind_tokens: tokens32(self.behind.tokens),
            behind_messages: self.behind.messages,
            running: self.is_running,
            run_start_time: notes
                .running
                .filter(|_| self.is_running)
                .map(export_timestamp),
            last_failure: notes.last_failure().map(|failure| v1::MemoryFailure {
                time: Some(export_timestamp(failure.at)),
                detail: failure.detail.to_string(),
                attempts: failure.attempts,
                next_attempt_time: Some(export_timestamp(failure.next)),
            }),
            ..v1::SessionMemory::default()
        };
        let (Some(version), Some(memory)) = (&notes.version, memory) else {
            return (told, false);
        };
        told.version = version.number;
        told.tokens = estimate_text(&version.text);
        told.source = source(version.author).into();
        told.update_time = Some(export_timestamp(version.at));
        told.source_revision = version.source.get();
        told.reference = summary_path(key);
        told.sha256 = Sha256::digest(version.text.as_bytes()).to_vec().into();
        told.run_duration = Some(export_millis(version.took_ms));
        let unchanged = version.number == known_version;
        if !unchanged {
            told.text = version.text.to_string();
            told.sections = sections(&memory);
        }
        (told, unchanged)
    }

    fn state(&self, memory: Option<&Memory>) -> v1::MemoryState {
        let is_ready = memory.is_some_and(Memory::is_ready);
        let is_late = self.is_due || self.is_running || self.notes.failure.is_some();
        match memory {
            _ if !self.is_wanted => v1::MemoryState::Disabled,
            Some(_) if is_ready && self.is_stale => v1::MemoryState::Stale,
            Some(_) if !is_ready && self.notes.failure.is_none() => v1::MemoryState::Template,
            _ if is_late => v1::MemoryState::Behind,
            Some(_) => v1::MemoryState::Ready,
            None => v1::MemoryState::NotStarted,
        }
    }
}

/// All ten sections, in order.
fn sections(memory: &Memory) -> Vec<v1::MemorySection> {
    let of = |kind: SectionKind| v1::MemorySection {
        kind: section(kind).into(),
        title: kind.title().to_owned(),
        body: memory.body(kind).to_owned(),
        tokens: memory.section_tokens(kind),
        truncated: memory.was_cut(kind),
    };
    SectionKind::ALL.into_iter().map(of).collect()
}

/// The id of a message; empty for none.
pub(super) fn message_id(session: &Session, message: Option<Ordinal>) -> String {
    let entry = message.and_then(|message| session.transcript().get(message));
    entry.map(|entry| entry.id.to_string()).unwrap_or_default()
}
