//! The running summary of a session, `summary.md`, as far as it is state: its text, how far it reaches,
//! what came since, and what became of the last attempts. Not here: what stands in it (`memory`), and
//! who writes it.

use crate::event::{MemoryFailed, MemoryStarted, MemoryUpdated};
use crate::ids::{Ordinal, Revision, Timestamp};

/// Who wrote a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Author {
    /// The service: the headings, and nothing under them.
    Template,
    /// A model.
    Model,
    /// The service, from the structure of the messages.
    Extractive,
    /// A person, in the file.
    Person,
}

/// A version of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// Its number, from 1.
    pub number: u64,
    /// The whole file.
    pub text: Box<str>,
    /// Who wrote it.
    pub author: Author,
    /// When.
    pub at: Timestamp,
    /// The session's revision that it was written from.
    pub source: Revision,
    /// The last message that it covers; none covers nothing.
    pub covers: Option<Ordinal>,
    /// How long that took, in milliseconds.
    pub took_ms: u64,
}

/// An attempt that came to nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// When.
    pub at: Timestamp,
    /// Why. Never holds content of the conversation.
    pub detail: Box<str>,
    /// How many in a row.
    pub attempts: u32,
    /// When the next one is due.
    pub next: Timestamp,
}

/// The running summary of a session.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Notes {
    /// The latest version.
    pub version: Option<Version>,
    /// When the update began that is under way.
    pub running: Option<Timestamp>,
    /// The last failure, until an update succeeds.
    pub failure: Option<Failure>,
    /// The estimated tokens that were appended since the last update read the session.
    pub since_tokens: u64,
    /// The calls that were made since.
    pub since_calls: u32,
    /// The same since the update that is under way read it; they count from its end on.
    pub running_tokens: u64,
    /// Those calls.
    pub running_calls: u32,
}

impl Notes {
    /// The version that holds more than headings.
    pub fn written(&self) -> Option<&Version> {
        let version = self.version.as_ref();
        version.filter(|version| version.author != Author::Template)
    }

    pub(super) fn grow(&mut self, tokens: u32, calls: u32) {
        self.since_tokens += u64::from(tokens);
        self.since_calls += calls;
        if self.running.is_some() {
            self.running_tokens += u64::from(tokens);
            self.running_calls += calls;
        }
    }

    pub(super) fn started(&mut self, at: Timestamp, _event: &MemoryStarted) {
        self.running = Some(at);
        (self.running_tokens, self.running_calls) = (0, 0);
    }

    pub(super) fn updated(&mut self, at: Timestamp, event: &MemoryUpdated) {
        self.version = Some(Version {
            number: event.number,
            text: event.text.clone(),
            author: event.author,
            at,
            source: event.source,
            covers: event.covers,
            took_ms: event.took_ms,
        });
        // Headings and a person's edits read nothing of the session.
        if matches!(event.author, Author::Model | Author::Extractive) {
            (self.since_tokens, self.since_calls) = (self.running_tokens, self.running_calls);
            self.running = None;
            self.failure = None;
        }
    }

    pub(super) fn failed(&mut self, at: Timestamp, event: &MemoryFailed) {
        self.running = None;
        self.failure = Some(Failure {
            at,
            detail: event.detail.clone(),
            attempts: event.attempts,
            next: event.next,
        });
    }
}
