//! The running summary is begun, written, or could not be.

use super::{Decision, Rejection, Skip};
use crate::event::{Event, MemoryFailed, MemoryStarted, MemoryUpdated};
use crate::ids::{Ordinal, Revision, Timestamp};
use crate::memory::Memory;
use crate::message::Role;
use crate::session::{Author, CallState, Session, Standing};

/// A text may be so large, whoever wrote it: four bytes for each token that the policy allows.
const MAX_BYTES_PER_TOKEN: usize = 8;

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
    /// The revision that it was written from.
    pub source: Revision,
    /// The last message that was read for it; none where nothing was.
    pub read_to: Option<Ordinal>,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
}

/// Record that an update came to nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailMemory {
    /// Why. Never holds content of the conversation.
    pub detail: Box<str>,
    /// When the next attempt is due.
    pub next: Timestamp,
}

impl StartMemory {
    pub(super) fn decide(self, session: &Session) -> Decision {
        if !wants_memory(session) {
            return Decision::Skipped(Skip::Disabled);
        }
        Decision::Events(vec![Event::MemoryStarted(MemoryStarted {
            number: next_number(session),
        })])
    }
}

impl UpdateMemory {
    pub(super) fn decide(self, session: &Session) -> Result<Decision, Rejection> {
        let policy = &session.policy().session_memory;
        let limit = (policy.max_tokens as usize).saturating_mul(MAX_BYTES_PER_TOKEN);
        if self.text.len() > limit {
            return Err(Rejection::TooLarge {
                field: "summary.md".into(),
                limit,
                actual: self.text.len(),
            });
        }
        let notes = session.notes();
        let before = notes.version.as_ref();
        let is_same = before.is_some_and(|before| before.text == self.text);
        if is_same && matches!(self.author, Author::Template | Author::Person) {
            return Ok(Decision::Events(Vec::new()));
        }
        let written = Memory::parse(&self.text);
        if self.author != Author::Template && !written.is_ready() {
            return Err(Rejection::invalid(
                "summary.md",
                "says nothing yet: neither the task nor the current state is filled in",
            ));
        }
        let covered = before.and_then(|before| before.covers);
        Ok(Decision::Events(vec![Event::MemoryUpdated(
            MemoryUpdated {
                number: next_number(session),
                covers: self
                    .read_to
                    .map_or(covered, |to| mark(session, to, covered)),
                text: self.text,
                author: self.author,
                source: self.source,
                took_ms: self.took_ms,
            },
        )]))
    }
}

impl FailMemory {
    pub(super) fn decide(self, session: &Session) -> Decision {
        let failure = session.notes().failure.as_ref();
        Decision::Events(vec![Event::MemoryFailed(MemoryFailed {
            detail: self.detail,
            attempts: failure.map_or(0, |failure| failure.attempts) + 1,
            next: self.next,
        })])
    }
}

fn next_number(session: &Session) -> u64 {
    let version = session.notes().version.as_ref();
    version.map_or(0, |version| version.number) + 1
}

/// Whether the policy keeps a summary of this session.
pub fn wants_memory(session: &Session) -> bool {
    let policy = &session.policy().session_memory;
    policy.enabled && (policy.include_subagents || session.about().parent.is_none())
}

/// The last message that a text covers which was written from all up to `read_to`: the mark moves only
/// to where no call of the last response waits for its result.
fn mark(session: &Session, read_to: Ordinal, before: Option<Ordinal>) -> Option<Ordinal> {
    let entries = session.transcript().entries();
    let read = entries.take(read_to.index() + 1);
    let mut visible = read.filter(|(_, entry)| entry.standing == Standing::Visible);
    let calls = session.calls();
    let waits = |message: Ordinal| {
        let mut of_message = calls.of(message);
        of_message.any(|(_, call)| match call.state {
            CallState::Open => true,
            // It was answered later than what was read.
            _ => call.original.is_some_and(|(result, _)| result > read_to),
        })
    };
    let mut last = None;
    let mut response = None;
    for (ordinal, entry) in visible.by_ref() {
        if entry.role == Role::Assistant {
            response = Some(ordinal);
        }
        last = Some(ordinal);
    }
    // A response has several fragments; the calls of any of them may wait.
    let open = response.is_some_and(|response| {
        let fragments = (0..=response.get()).rev().map(Ordinal::new);
        let of_model = |at: &Ordinal| {
            let entry = session.transcript().get(*at);
            entry.is_some_and(|entry| entry.role != Role::User || entry.size.result_tokens > 0)
        };
        fragments.take_while(of_model).take(64).any(waits)
    });
    if open { before } else { last.max(before) }
}

/// When a worker should look at a session's summary: at once, at some time, or not at all.
pub fn memory_due(session: &Session, now: Timestamp) -> Option<Timestamp> {
    if !wants_memory(session) {
        return None;
    }
    let (policy, notes) = (&session.policy().session_memory, session.notes());
    let calibrated = session.ledger().calibration.apply(notes.since_tokens);
    let first = notes.written().is_none();
    let has_grown = if first {
        session.tokens().tokens >= u64::from(policy.start_tokens)
    } else {
        calibrated >= u64::from(policy.update_tokens)
            && (notes.since_calls >= policy.update_tool_calls
                || last_response_has_no_calls(session))
    };
    if !has_grown {
        return None;
    }
    let retry = notes.failure.as_ref().map(|failure| failure.next);
    Some(retry.map_or(now, |next| next.max(now)))
}

fn last_response_has_no_calls(session: &Session) -> bool {
    let mut entries = session.transcript().entries().rev();
    let last = entries
        .find(|(_, entry)| entry.role == Role::Assistant && entry.standing == Standing::Visible);
    last.is_none_or(|(ordinal, _)| session.calls().of(ordinal).next().is_none())
}
