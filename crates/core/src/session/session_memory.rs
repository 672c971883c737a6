//! The running summary of a session, `summary.md`, as far as it is state: its text, how far it reaches,
//! what came since, and what became of the last attempts. Not here: what stands in it (`memory`), and
//! who writes it.

use std::collections::VecDeque;

use sha2::{Digest as _, Sha256};

use crate::event::{Author, MemoryUpdateFailed, MemoryUpdated, TextDigest};
use crate::ids::{Ordinal, Revision, Timestamp};
use crate::memory::MemoryText;

/// How many earlier versions are known by their digests: a copy of one of them is not an edit. A copy
/// is that old only if the file could not be written for so many updates.
const MAX_DIGESTS: usize = 32;

/// A version of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryVersion {
    /// Its number, from 1.
    pub number: u64,
    /// The whole file.
    pub text: MemoryText,
    /// Who wrote it.
    pub author: Author,
    /// When.
    pub at: Timestamp,
    /// The session's revision that it was written from.
    pub source: Revision,
    /// The last message that it covers; none covers nothing. A compaction keeps what comes after it.
    pub covers: Option<Ordinal>,
    /// The last message that was read for it. It is after `covers` while calls wait for their results.
    pub read: Option<Ordinal>,
    /// How long that took, in milliseconds.
    pub took_ms: u64,
}

/// An attempt that came to nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryFailure {
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
pub struct SessionMemory {
    /// The latest version.
    pub version: Option<MemoryVersion>,
    /// When the update began that is under way.
    pub running: Option<Timestamp>,
    /// The last failure, until an update succeeds.
    pub failure: Option<MemoryFailure>,
    /// Why the file does not hold the text, until it does.
    pub unfiled: Option<MemoryFailure>,
    /// The estimated tokens that were appended since the last message that an update read.
    pub since_tokens: u64,
    /// The calls that were made since.
    pub since_calls: u32,
    /// The texts of earlier versions, latest last.
    pub earlier: VecDeque<TextDigest>,
    /// The last message that was read for the text that the file held last, as far as that is known.
    pub filed_read: Option<Ordinal>,
    /// Whether anybody but the extractive summariser had a part in the text.
    pub by_others: bool,
}

/// The growth that makes the next update due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Since {
    pub(super) tokens: u64,
    pub(super) calls: u32,
}

/// The digest of a text.
pub fn text_digest(text: &[u8]) -> TextDigest {
    let whole: [u8; 32] = Sha256::digest(text).into();
    let mut digest = TextDigest::default();
    digest.copy_from_slice(&whole[..16]);
    digest
}

impl SessionMemory {
    /// The version that holds more than headings.
    pub fn written(&self) -> Option<&MemoryVersion> {
        let version = self.version.as_ref();
        version.filter(|version| version.author != Author::Template)
    }

    /// Whether a text was ever this session's: what was not was written by a person.
    pub fn knows(&self, text: &[u8]) -> bool {
        let latest = self.version.as_ref();
        latest.is_some_and(|latest| latest.text.as_bytes() == text)
            || self.earlier.contains(&text_digest(text))
    }

    /// Whether it is at the update that began then, if one did.
    pub fn is_at(&self, began: Option<Timestamp>) -> bool {
        began.is_none() || began == self.running
    }

    /// The last message that was read for the text which a person has edited: the latest, unless the file
    /// is known to be behind.
    pub fn read_for_edit(&self) -> Option<Ordinal> {
        match (&self.unfiled, &self.version) {
            (None, Some(version)) => version.read,
            _ => self.filed_read,
        }
    }

    /// The failure that was last, of an update or of the file.
    pub fn last_failure(&self) -> Option<&MemoryFailure> {
        let both = self.failure.iter().chain(&self.unfiled);
        both.max_by_key(|failure| failure.at)
    }

    pub(super) fn grow(&mut self, tokens: u32, calls: u32) {
        self.since_tokens += u64::from(tokens);
        self.since_calls += calls;
    }

    pub(super) fn started(&mut self, at: Timestamp) {
        self.running = Some(at);
    }

    pub(super) fn updated(&mut self, at: Timestamp, event: &MemoryUpdated) {
        let before = self.version.replace(MemoryVersion {
            number: event.number,
            text: event.text.clone().into(),
            author: event.author,
            at,
            source: event.source,
            covers: event.covers,
            read: event.read,
            took_ms: event.took_ms,
        });
        if self.unfiled.is_none() {
            self.filed_read = before.as_ref().and_then(|before| before.read);
        }
        let before = before.map(|before| text_digest(before.text.as_bytes()));
        for digest in before.into_iter().chain(event.file) {
            if self.earlier.len() >= MAX_DIGESTS {
                self.earlier.pop_front();
            }
            self.earlier.push_back(digest);
        }
        match event.author {
            Author::Template => {}
            Author::Person => self.by_others = true,
            Author::Model | Author::Extractive => {
                self.by_others |= event.author == Author::Model;
                self.running = None;
                self.failure = None;
            }
        }
    }

    /// Growth counts from the last message that was read.
    pub(super) fn count_from(&mut self, since: Since) {
        self.since_tokens = since.tokens;
        self.since_calls = since.calls;
    }

    pub(super) fn failed(&mut self, at: Timestamp, event: &MemoryUpdateFailed) {
        let failure = Some(MemoryFailure {
            at,
            detail: event.detail.clone(),
            attempts: event.attempts,
            next: event.next,
        });
        if event.of_file {
            self.unfiled = failure;
        } else {
            self.running = None;
            self.failure = failure;
        }
    }

    pub(super) fn filed(&mut self) {
        self.unfiled = None;
    }
}
