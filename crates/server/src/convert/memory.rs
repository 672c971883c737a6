//! Session memory in the form of the API.

use palimpsest_core::command::{is_memory_enabled, is_memory_update_running, memory_update_due_at};
use palimpsest_core::event::{MemoryUpdateFailed, MemoryUpdateStarted, MemoryUpdated};
use palimpsest_core::ids::{SessionKey, Timestamp};
use palimpsest_core::memory::{MemoryText, SectionKind};
use palimpsest_core::session::{Author, MemoryFailure, MemoryLag, MemoryVersion, Session};
use palimpsest_core::tokens::estimate_text;
use palimpsest_proto::context::v1;
use palimpsest_store::blobs::summary_path;

use super::saturate_tokens;
use super::scalars::{export_message_id, export_millis, export_timestamp};

convert_enum! {
    /// Converts the author of a version.
    pub(super) fn source(Author) -> v1::MemorySource {
        Template, Model, Extractive, Person = Edited,
    }
}

pub(super) const fn started(event: MemoryUpdateStarted) -> v1::MemoryUpdateStarted {
    v1::MemoryUpdateStarted {
        version: event.version,
    }
}

pub(super) fn updated(event: &MemoryUpdated, session: &Session) -> v1::MemoryUpdated {
    v1::MemoryUpdated {
        version: event.version,
        source: source(event.author).into(),
        changed_sections: event.changed.iter().map(|it| section(*it).into()).collect(),
        last_summarized_message_id: export_message_id(session, event.covered_through),
        tokens: estimate_text(event.content.text()),
    }
}

pub(super) fn failed(event: &MemoryUpdateFailed, at: Timestamp) -> v1::MemoryUpdateFailed {
    v1::MemoryUpdateFailed {
        failure: Some(v1::MemoryFailure {
            time: Some(export_timestamp(at)),
            detail: event.detail.to_string(),
            attempts: event.attempts,
            next_attempt_time: Some(export_timestamp(event.retry_at)),
        }),
    }
}

convert_enum! {
    fn section(SectionKind) -> v1::MemorySectionKind {
        Title = SessionTitle, State = CurrentState, Task = TaskSpecification, Files = FilesAndFunctions, Workflow,
        Errors = ErrorsAndCorrections, Documentation, Learnings, Results = KeyResults, Worklog,
    }
}

/// A snapshot of a session's memory, taken in one read.
#[derive(Debug, Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, and any may hold together"
)]
pub struct MemoryView {
    version: Option<MemoryVersion>,
    run_start: Option<Timestamp>,
    last_failure: Option<MemoryFailure>,
    has_failed: bool,
    is_wanted: bool,
    is_due: bool,
    is_stale: bool,
    behind: MemoryLag,
    covers: String,
}

impl MemoryView {
    /// Reads the memory of a session.
    pub fn of(session: &Session, now: Timestamp) -> Self {
        let notes = session.memory();
        let covers = notes.version.as_ref().and_then(|it| it.covered_through);
        let behind = session.memory_lag();
        Self {
            version: notes.version.clone(),
            run_start: notes
                .running
                // An update older than `session_memory.stale_after` is orphaned, so it counts as ended.
                .filter(|_| is_memory_update_running(session, now)),
            last_failure: notes.last_failure().cloned(),
            has_failed: notes.failure.is_some(),
            is_wanted: is_memory_enabled(session),
            is_due: memory_update_due_at(session, now).is_some(),
            is_stale: session.is_memory_stale(),
            behind: MemoryLag {
                // The lag of the domain is an estimate before calibration.
                tokens: session.ledger().calibration.apply(behind.tokens),
                ..behind
            },
            covers: export_message_id(session, covers),
        }
    }

    /// Returns the memory. The flag is true if the text is omitted because the caller has this version.
    pub fn into_proto(self, key: &SessionKey, known_version: u64) -> (v1::SessionMemory, bool) {
        let mut told = v1::SessionMemory {
            state: self.state().into(),
            last_summarized_message_id: self.covers,
            behind_tokens: saturate_tokens(self.behind.tokens),
            behind_messages: self.behind.messages,
            running: self.run_start.is_some(),
            run_start_time: self.run_start.map(export_timestamp),
            last_failure: self.last_failure.map(|failure| v1::MemoryFailure {
                time: Some(export_timestamp(failure.failed_at)),
                detail: failure.detail.into(),
                attempts: failure.attempts,
                next_attempt_time: Some(export_timestamp(failure.retry_at)),
            }),
            ..v1::SessionMemory::default()
        };
        let Some(version) = &self.version else {
            return (told, false);
        };
        told.version = version.number;
        let text = version.text();
        told.tokens = text.tokens();
        told.source = source(version.author).into();
        told.update_time = Some(export_timestamp(version.at));
        told.source_revision = version.source.get();
        told.reference = summary_path(key);
        told.sha256 = text.sha256().to_vec().into();
        told.run_duration = Some(export_millis(version.duration_ms));
        // A caller that has this version keeps its text, which can be large.
        let unchanged = version.number == known_version;
        if !unchanged {
            told.text = text.to_string();
            told.sections = sections(text);
        }
        (told, unchanged)
    }

    fn state(&self) -> v1::MemoryState {
        let text = self.version.as_ref().map(MemoryVersion::text);
        let is_ready = text.is_some_and(MemoryText::is_ready);
        let is_late = self.is_due || self.run_start.is_some() || self.has_failed;
        // The order of the arms is the precedence of the states.
        match text {
            _ if !self.is_wanted => v1::MemoryState::Disabled,
            Some(_) if is_ready && self.is_stale => v1::MemoryState::Stale,
            Some(_) if !is_ready && !self.has_failed => v1::MemoryState::Template,
            _ if is_late => v1::MemoryState::Behind,
            Some(_) => v1::MemoryState::Ready,
            None => v1::MemoryState::NotStarted,
        }
    }
}

/// Returns all ten sections in order.
fn sections(text: &MemoryText) -> Vec<v1::MemorySection> {
    let of = |kind: SectionKind| {
        let found = text.section(kind);
        v1::MemorySection {
            kind: section(kind).into(),
            title: kind.title().to_owned(),
            body: found.body.to_owned(),
            tokens: found.tokens,
            truncated: found.was_cut,
        }
    };
    SectionKind::ALL.into_iter().map(of).collect()
}
