//! Commands that record the progress of session memory: an update starts, succeeds or fails, or a person edits the text.

use super::decision::{Decided, DecisionContext, SkipReason, answered};
use super::reject::Rejection;
use crate::effect::Effect;
use crate::event::{
    Author, Event, MemoryFileWritten, MemoryUpdateFailed, MemoryUpdateStarted, MemoryUpdated,
    RequestStamp, TextDigest, Visibility,
};
use crate::ids::{Ordinal, Revision, Timestamp};
use crate::memory::MemoryContent;
use crate::message::Role;
use crate::policy::SessionMemoryPolicy;
use crate::session::{MemoryFailure, Session, text_digest};

/// Maximum size of `summary.md` per token that the policy allows, in bytes. Applies to all authors.
const MAX_BYTES_PER_TOKEN: usize = 8;
/// Lower bound of the size limit, in bytes. Headings and guidance must fit regardless of the policy.
const MIN_LIMIT_BYTES: usize = 16 * 1024;

/// Minimum time between two updates by the service, in milliseconds. Messages that arrive together, such as an
/// import, are covered by one update.
const PAUSE_MS: u64 = 1_000;

/// Records the start of an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartMemoryUpdate;

/// Records a new version of session memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordMemoryVersion {
    /// The facts from which `summary.md` is rendered.
    pub content: MemoryContent,
    /// The author of the version.
    pub author: Author,
    /// The number of the version that the facts are based on. 0 if there is none. If a newer version exists, the command
    /// does nothing, so that no fact of another author is lost.
    pub base_version: u64,
    /// The session's revision that the facts were derived from.
    pub source: Revision,
    /// The last message that was read for the facts or for the version it is based on. `None` if no message was read.
    pub read_through: Option<Ordinal>,
    /// The digest of the file as a person left it. `None` for other authors.
    pub edited_file: Option<TextDigest>,
    /// Duration, in milliseconds.
    pub duration_ms: u64,
}

/// Records a text of session memory that a person gave in a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EditSessionMemory {
    /// The facts of the text.
    pub content: MemoryContent,
    /// The number of the version that the person edited. 0 if there is none.
    pub expected_version: u64,
    /// The digest of a file that a person edited to the same text as this version. Its text is then known, so that the
    /// worker does not take it for a later edit. `None` for any other file.
    pub same_file: Option<TextDigest>,
    /// Identifies a repeat.
    pub request: Option<RequestStamp>,
}

/// Records a failed update, or a failed write of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailMemoryUpdate {
    /// True if only the write of the file failed.
    pub is_file_failure: bool,
    /// The reason. Never contains content of the conversation.
    pub detail: Box<str>,
    /// The due time of the next attempt.
    pub retry_at: Timestamp,
}

/// Records that the file contains the latest text, if a failed write was recorded before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfirmMemoryFile;

impl StartMemoryUpdate {
    #[expect(clippy::unused_self, reason = "it reads as every other command")]
    pub(super) fn decide(self, session: &Session) -> Decided {
        if !is_memory_enabled(session) {
            return Decided::Skipped(SkipReason::Disabled);
        }
        Decided::events(vec![Event::MemoryUpdateStarted(MemoryUpdateStarted {
            version: latest_version(session) + 1,
        })])
    }
}

impl EditSessionMemory {
    pub(super) fn decide(
        self,
        session: &Session,
        context: DecisionContext<'_>,
    ) -> Result<Decided, Rejection> {
        // Only an edit of this command has a request, so the rules of a version apply without it.
        if let Some(revision) = answered(session, self.request.as_ref(), context)? {
            return Ok(Decided::Answered(revision));
        }
        check_edit(session, self.expected_version)?;
        let version = session.memory().version.as_ref();
        let record = RecordMemoryVersion {
            content: self.content,
            author: Author::Person,
            base_version: self.expected_version,
            source: session.revision(),
            // The person edited the text of the log, which is never older than this version.
            read_through: version.and_then(|version| version.read_through),
            edited_file: self.same_file,
            duration_ms: 0,
        };
        let mut decided = record.decide(session)?;
        if let Decided::Now(decision) = &mut decided {
            for event in &mut decision.events {
                if let Event::MemoryUpdated(event) = event {
                    event.request.clone_from(&self.request);
                }
            }
            // The text must reach the file, although no update is due.
            if !decision.events.is_empty() {
                let due = [Effect::MemoryDue(context.now), Effect::WakeWorker];
                decision.effects.extend(due);
            }
        }
        Ok(decided)
    }
}

/// Rejects an edit of a version that is not the latest, or while the policy disables session memory.
fn check_edit(session: &Session, expected_version: u64) -> Result<(), Rejection> {
    if !is_memory_enabled(session) {
        let setting = if session.policy().session_memory.enabled {
            "session_memory.include_subagents"
        } else {
            "session_memory.enabled"
        };
        return Err(Rejection::MemoryDisabled { setting });
    }
    let current = latest_version(session);
    if current != expected_version {
        return Err(Rejection::MemoryVersionMismatch {
            expected: expected_version,
            current,
        });
    }
    Ok(())
}

/// Rejects a text that is larger than the policy allows. `field` names the text.
pub fn check_memory_size(
    policy: &SessionMemoryPolicy,
    field: &str,
    text: &str,
) -> Result<(), Rejection> {
    let limit = (policy.max_tokens as usize).saturating_mul(MAX_BYTES_PER_TOKEN);
    let limit = limit.max(MIN_LIMIT_BYTES);
    if text.len() > limit {
        return Err(Rejection::TooLarge {
            field: field.into(),
            limit,
            actual: text.len(),
        });
    }
    Ok(())
}

impl RecordMemoryVersion {
    pub(super) fn decide(self, session: &Session) -> Result<Decided, Rejection> {
        let text = self.content.text();
        check_memory_size(&session.policy().session_memory, "summary.md", text)?;
        let digest = text_digest(text.as_bytes());
        // An unchanged text by a model or the service is recorded all the same, because it ends the running update.
        let before = session.memory().version.as_ref();
        let is_same = before.is_some_and(|before| before.digest == digest);
        let says_the_same = is_same && matches!(self.author, Author::Template | Author::Person);
        // A text that was written from another version would overwrite the content of that version.
        if self.base_version != latest_version(session) || says_the_same {
            return Ok(Decided::events(Vec::new()));
        }
        if matches!(self.author, Author::Model | Author::Extractive) && !text.is_ready() {
            return Err(Rejection::invalid(
                "summary.md",
                "is empty: fill in the task or the current state",
            ));
        }
        let covered = before.and_then(|before| before.covered_through);
        let read_through = match self.author {
            Author::Template | Author::Person => self.read_through,
            // An update continues from the previous version, so that version's messages were read too.
            Author::Model | Author::Extractive => self
                .read_through
                .max(before.and_then(|before| before.read_through)),
        };
        let covered_through = match self.author {
            Author::Template => None,
            // A person edits the file, which may contain an older version with a smaller coverage.
            Author::Person => covered.min(self.read_through),
            Author::Model | Author::Extractive => session.memory_coverage(read_through, covered),
        };
        let template = MemoryContent::default();
        let earlier = before.map_or(&template, |before| &before.content);
        // `base_version` is the latest version here, so the numbers have no gaps.
        let number = self.base_version + 1;
        Ok(Decided::events(vec![Event::MemoryUpdated(MemoryUpdated {
            version: number,
            covered_through,
            read_through,
            changed: self.content.changed_sections(earlier),
            content: self.content.recorded(number, earlier),
            digest,
            author: self.author,
            source: self.source,
            file: self.edited_file,
            request: None,
            duration_ms: self.duration_ms,
        })]))
    }
}

impl FailMemoryUpdate {
    pub(super) fn decide(self, session: &Session) -> Decided {
        let notes = session.memory();
        let failure = if self.is_file_failure {
            &notes.file_failure
        } else {
            &notes.failure
        };
        let attempts = failure.as_ref().map_or(0, |failure| failure.attempts) + 1;
        Decided::events(vec![Event::MemoryUpdateFailed(MemoryUpdateFailed {
            is_file_failure: self.is_file_failure,
            detail: self.detail,
            attempts,
            retry_at: self.retry_at,
        })])
    }
}

impl ConfirmMemoryFile {
    #[expect(clippy::unused_self, reason = "it reads as every other command")]
    pub(super) fn decide(self, session: &Session) -> Decided {
        let was_missing = session.memory().file_failure.is_some();
        let version = latest_version(session);
        let filed = was_missing.then_some(Event::MemoryFileWritten(MemoryFileWritten { version }));
        Decided::events(filed.into_iter().collect())
    }
}

fn latest_version(session: &Session) -> u64 {
    let version = session.memory().version.as_ref();
    version.map_or(0, |version| version.number)
}

/// Returns true if the policy enables session memory for this session.
pub fn is_memory_enabled(session: &Session) -> bool {
    let policy = &session.policy().session_memory;
    policy.enabled && (policy.include_subagents || session.info().parent.is_none())
}

/// Returns the time at which a worker should process the session, or `None`. While an update runs, nothing is due,
/// because its outcome determines the next due time.
///
/// `None` does not mean that the session can leave the work queue: it may wait for its file or for a worker that
/// stopped. The worker that finds no work removes the session from the queue.
pub fn memory_due_at(session: &Session, now: Timestamp) -> Option<Timestamp> {
    if is_memory_update_running(session, now) {
        return None;
    }
    let file = session.memory().file_failure.as_ref();
    let file = file.map(|failure| retry_time(failure, now).max(now));
    memory_update_due_at(session, now)
        .into_iter()
        .chain(file)
        .min()
}

/// Returns the effects of the session's state after a transaction, whichever commands changed it. Most commands can
/// change the due time, so no command derives it.
pub fn effects_of_state(session: &Session, now: Timestamp) -> impl Iterator<Item = Effect> + use<> {
    let due = memory_due_at(session, now);
    let wake = due.filter(|due| *due <= now).map(|_| Effect::WakeWorker);
    due.map(Effect::MemoryDue).into_iter().chain(wake)
}

/// Returns the time at which an update of the text is due, regardless of a running update.
pub fn memory_update_due_at(session: &Session, now: Timestamp) -> Option<Timestamp> {
    if !is_memory_enabled(session) || !has_enough_growth(session) {
        return None;
    }
    let read = session
        .memory()
        .version
        .as_ref()
        .and_then(|it| it.read_through);
    // All new messages can belong to a round with open calls, which an update must not read yet.
    if session.memory_readable_through() <= read {
        return None;
    }
    let failure = session.memory().failure.as_ref();
    let retry = failure.map_or(now, |failure| retry_time(failure, now));
    Some(now.max(retry).max(earliest_next_update(session, now)))
}

/// Returns the time of the next attempt after a failure.
fn retry_time(failure: &MemoryFailure, now: Timestamp) -> Timestamp {
    let wait = failure.retry_at.millis_since(failure.failed_at);
    cap_wait(failure.retry_at, wait, now)
}

/// Returns the earliest time of the next update by the service. The first text and a person's edit can be followed
/// immediately.
fn earliest_next_update(session: &Session, now: Timestamp) -> Timestamp {
    let version = session.memory().latest_written();
    let ours = version.filter(|version| version.author != Author::Person);
    ours.map_or(now, |version| {
        cap_wait(version.at.plus_millis(PAUSE_MS), PAUSE_MS, now)
    })
}

/// Returns `until`, or `now` if `until` is more than twice the wait ahead. Such a time was recorded by a clock that
/// was ahead, and waiting for it could take arbitrarily long.
fn cap_wait(until: Timestamp, wait_ms: u64, now: Timestamp) -> Timestamp {
    if until.millis_since(now) > wait_ms.saturating_mul(2) {
        return now;
    }
    until
}

/// Returns true if an update is running and younger than `session_memory.stale_after`.
pub fn is_memory_update_running(session: &Session, now: Timestamp) -> bool {
    let stale_after = session.policy().session_memory.stale_after.get();
    let began = session.memory().running;
    // A start time in the future was recorded by a clock that was ahead. A small difference is normal.
    let is_near =
        |began: Timestamp| now.millis_since(began).max(began.millis_since(now)) < stale_after;
    began.is_some_and(is_near)
}

fn has_enough_growth(session: &Session) -> bool {
    let (policy, notes) = (&session.policy().session_memory, session.memory());
    if notes.latest_written().is_none() {
        return session.tokens().tokens >= u64::from(policy.start_tokens);
    }
    // After enough growth, an update waits for enough calls or for a response without calls.
    let grown = session.ledger().calibration.apply(notes.since_tokens);
    grown >= u64::from(policy.update_tokens)
        && (notes.since_calls >= policy.update_tool_calls || last_response_has_no_calls(session))
}

/// Returns true if the last response, including all its fragments, contains no calls.
fn last_response_has_no_calls(session: &Session) -> bool {
    let entries = session.transcript().entries().rev();
    let mut visible = entries.filter(|(_, entry)| entry.visibility == Visibility::Visible);
    let is_model =
        |(_, entry): &(Ordinal, &crate::session::TranscriptEntry)| entry.role == Role::Assistant;
    let last = visible.find(is_model);
    let fragments = last.into_iter().chain(visible.take_while(is_model));
    fragments
        .into_iter()
        .all(|(at, _)| session.calls().of(at).next().is_none())
}
