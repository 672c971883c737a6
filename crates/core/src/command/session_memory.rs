//! The running summary is begun, written, or could not be.

use super::decision::{Decision, SkipReason};
use super::reject::Rejection;
use crate::event::{
    Author, Event, MemoryFiled, MemoryUpdateFailed, MemoryUpdateStarted, MemoryUpdated, TextDigest,
    Visibility,
};
use crate::ids::{Ordinal, Revision, Timestamp};
use crate::memory::{Memory, changed_sections};
use crate::message::Role;
use crate::session::{MemoryFailure, Session};

/// A text may be so large, whoever wrote it, for each token that the policy allows.
const MAX_BYTES_PER_TOKEN: usize = 8;
/// Headings and guidance have their place whatever the policy allows.
const MIN_LIMIT_BYTES: usize = 16 * 1024;

/// No text of ours follows another sooner, in milliseconds: what comes in together, as from an import, is
/// noted together.
const PAUSE_MS: u64 = 1_000;

/// Say that an update begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartMemory;

/// Record a version of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpdateMemory {
    /// The whole file.
    pub text: Box<str>,
    /// Who wrote it.
    pub author: Author,
    /// The number of the version that it was built upon, 0 for none. Nothing happens when that is not
    /// the latest any more: somebody else has written meanwhile, and their words must not be lost.
    pub upon: u64,
    /// The revision that it was written from.
    pub source: Revision,
    /// The last message that was read for it, or for what it was built upon; none where nothing was.
    pub read_to: Option<Ordinal>,
    /// The file as a person left it, by which it is known again; none where nobody did.
    pub file: Option<TextDigest>,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
}

/// Record that an update came to nothing, or that the file could not be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailMemory {
    /// Whether it is the file that failed: the text is there.
    pub of_file: bool,
    /// Why. Never holds content of the conversation.
    pub detail: Box<str>,
    /// When the next attempt is due.
    pub next: Timestamp,
}

/// Record that the file holds the text, if it was said not to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileMemory;

impl StartMemory {
    #[expect(clippy::unused_self, reason = "it reads as every other command")]
    pub(super) fn decide(self, session: &Session) -> Decision {
        if !wants_memory(session) {
            return Decision::Skipped(SkipReason::Disabled);
        }
        Decision::Events(vec![Event::MemoryUpdateStarted(MemoryUpdateStarted {
            number: latest_number(session) + 1,
        })])
    }
}

impl UpdateMemory {
    pub(super) fn decide(self, session: &Session) -> Result<Decision, Rejection> {
        let policy = &session.policy().session_memory;
        let limit = (policy.max_tokens as usize).saturating_mul(MAX_BYTES_PER_TOKEN);
        let limit = limit.max(MIN_LIMIT_BYTES);
        if self.text.len() > limit {
            return Err(Rejection::TooLarge {
                field: "summary.md".into(),
                limit,
                actual: self.text.len(),
            });
        }
        let before = session.memory().version.as_ref();
        let is_same = before.is_some_and(|before| *before.text == *self.text);
        let says_the_same = is_same && matches!(self.author, Author::Template | Author::Person);
        if self.upon != latest_number(session) || says_the_same {
            return Ok(Decision::Events(Vec::new()));
        }
        let written = Memory::parse(&self.text);
        if matches!(self.author, Author::Model | Author::Extractive) && !written.is_ready() {
            return Err(Rejection::invalid(
                "summary.md",
                "says nothing yet: neither the task nor the current state is filled in",
            ));
        }
        let covered = before.and_then(|before| before.covers);
        let read = match self.author {
            Author::Template | Author::Person => self.read_to,
            // What it was built upon had been read as well.
            Author::Model | Author::Extractive => {
                self.read_to.max(before.and_then(|before| before.read))
            }
        };
        let covers = match self.author {
            Author::Template => None,
            // Only what it was built upon was read.
            Author::Person => covered.min(self.read_to),
            Author::Model | Author::Extractive => session.memory_mark(read, covered),
        };
        let earlier = before.map_or_else(Memory::template, |before| Memory::parse(&before.text));
        Ok(Decision::Events(vec![Event::MemoryUpdated(
            MemoryUpdated {
                number: self.upon + 1,
                covers,
                read,
                changed: changed_sections(&earlier, &written),
                text: self.text,
                author: self.author,
                source: self.source,
                file: self.file,
                took_ms: self.took_ms,
            },
        )]))
    }
}

impl FailMemory {
    pub(super) fn decide(self, session: &Session) -> Decision {
        let notes = session.memory();
        let failure = if self.of_file {
            &notes.unfiled
        } else {
            &notes.failure
        };
        let attempts = failure.as_ref().map_or(0, |failure| failure.attempts) + 1;
        Decision::Events(vec![Event::MemoryUpdateFailed(MemoryUpdateFailed {
            of_file: self.of_file,
            detail: self.detail,
            attempts,
            next: self.next,
        })])
    }
}

impl FileMemory {
    #[expect(clippy::unused_self, reason = "it reads as every other command")]
    pub(super) fn decide(self, session: &Session) -> Decision {
        let was_missing = session.memory().unfiled.is_some();
        let number = latest_number(session);
        let filed = was_missing.then_some(Event::MemoryFiled(MemoryFiled { number }));
        Decision::Events(filed.into_iter().collect())
    }
}

fn latest_number(session: &Session) -> u64 {
    let version = session.memory().version.as_ref();
    version.map_or(0, |version| version.number)
}

/// Whether the policy keeps a summary of this session.
pub fn wants_memory(session: &Session) -> bool {
    let policy = &session.policy().session_memory;
    policy.enabled && (policy.include_subagents || session.about().parent.is_none())
}

/// When a worker should look at a session's summary: at once, at some time, or not at all. While an
/// update is under way nothing is due: what comes of it says what is next.
///
/// Nothing due does not mean that the queue should forget the session: it may wait there for its file,
/// or for a worker that died. The worker that looks at it and finds nothing to do takes it out.
pub fn memory_due(session: &Session, now: Timestamp) -> Option<Timestamp> {
    if memory_runs(session, now) {
        return None;
    }
    let file = session.memory().unfiled.as_ref();
    let file = file.map(|failure| again(failure, now).max(now));
    memory_update_due(session, now)
        .into_iter()
        .chain(file)
        .min()
}

/// When an update of the text is due, whether or not one is under way.
pub fn memory_update_due(session: &Session, now: Timestamp) -> Option<Timestamp> {
    if !wants_memory(session) || !has_grown(session) {
        return None;
    }
    let read = session.memory().version.as_ref().and_then(|it| it.read);
    if session.memory_reach() <= read {
        return None;
    }
    let failure = session.memory().failure.as_ref();
    let again = failure.map_or(now, |failure| again(failure, now));
    Some(now.max(again).max(rested(session, now)))
}

/// The time of the next attempt after a failure. It is now where the recorded time is further ahead than the wait ever was:
/// the clock that recorded it was ahead.
fn again(failure: &MemoryFailure, now: Timestamp) -> Timestamp {
    let wait = failure.next.millis_since(failure.at);
    not_astray(failure.next, wait, now)
}

/// When the next text may follow the last one; a person's, and the first of all, are followed at once.
fn rested(session: &Session, now: Timestamp) -> Timestamp {
    let version = session.memory().written();
    let ours = version.filter(|version| version.author != Author::Person);
    ours.map_or(now, |version| {
        not_astray(version.at.plus_millis(PAUSE_MS), PAUSE_MS, now)
    })
}

/// Returns the time that something waits for, or now where that time is more than twice the wait ahead. Clocks differ by a
/// little; a clock that was wrong must not be waited for.
fn not_astray(until: Timestamp, wait_ms: u64, now: Timestamp) -> Timestamp {
    if until.millis_since(now) > wait_ms.saturating_mul(2) {
        return now;
    }
    until
}

/// Whether an update is under way, and not so long that it counts as dead.
pub fn memory_runs(session: &Session, now: Timestamp) -> bool {
    let stale_after = session.policy().session_memory.stale_after.get();
    let began = session.memory().running;
    // One that begins later than now was begun by a clock that is ahead, by little or by much.
    let is_near =
        |began: Timestamp| now.millis_since(began).max(began.millis_since(now)) < stale_after;
    began.is_some_and(is_near)
}

fn has_grown(session: &Session) -> bool {
    let (policy, notes) = (&session.policy().session_memory, session.memory());
    if notes.written().is_none() {
        return session.tokens().tokens >= u64::from(policy.start_tokens);
    }
    let grown = session.ledger().calibration.apply(notes.since_tokens);
    grown >= u64::from(policy.update_tokens)
        && (notes.since_calls >= policy.update_tool_calls || last_response_has_no_calls(session))
}

/// Whether the model's last response, all fragments of it, called nothing.
fn last_response_has_no_calls(session: &Session) -> bool {
    let entries = session.transcript().entries().rev();
    let mut visible = entries.filter(|(_, entry)| entry.standing == Visibility::Visible);
    let is_model =
        |(_, entry): &(Ordinal, &crate::session::TranscriptEntry)| entry.role == Role::Assistant;
    let last = visible.find(is_model);
    let fragments = last.into_iter().chain(visible.take_while(is_model));
    fragments
        .into_iter()
        .all(|(at, _)| session.calls().of(at).next().is_none())
}
