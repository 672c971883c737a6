//! The state of session memory (`summary.md`): its facts, its coverage, the growth since the last update, and the last
//! failures. The module `memory` renders the facts. The worker updates them.

use std::collections::VecDeque;

use sha2::{Digest as _, Sha256};

use crate::event::{Author, MemoryUpdateFailed, MemoryUpdated, TextDigest};
use crate::ids::{Ordinal, Revision, Timestamp};
use crate::memory::{MemoryContent, MemoryText};

/// Number of earlier versions whose digests are kept. A file that matches one of them is an outdated copy and not
/// an edit by a person.
const MAX_DIGESTS: usize = 32;

/// A version of session memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryVersion {
    /// The version number, starting at 1.
    pub number: u64,
    /// The facts from which `summary.md` is rendered.
    pub content: MemoryContent,
    /// Digest of the text that was rendered when this version was recorded.
    pub digest: TextDigest,
    /// The author of this version.
    pub author: Author,
    /// Time of the update.
    pub at: Timestamp,
    /// The session's revision that the text was written from.
    pub source: Revision,
    /// The coverage: the last message that the text summarizes. A compaction keeps all later messages.
    pub covered_through: Option<Ordinal>,
    /// The last message that was read for the text. It is later than `covered_through` while calls are open.
    pub read_through: Option<Ordinal>,
    /// Duration of the update, in milliseconds.
    pub duration_ms: u64,
}

/// A failed update of session memory, or a failed write of its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryFailure {
    /// Time of the failure.
    pub failed_at: Timestamp,
    /// The reason. Never contains content of the conversation.
    pub detail: Box<str>,
    /// Number of consecutive failures.
    pub attempts: u32,
    /// The due time of the next attempt.
    pub retry_at: Timestamp,
}

/// Session memory of a session.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionMemory {
    /// The latest version.
    pub version: Option<MemoryVersion>,
    /// Start time of the running update.
    pub running: Option<Timestamp>,
    /// The last failed update. Cleared when an update succeeds.
    pub failure: Option<MemoryFailure>,
    /// The last failed write of the file. Cleared when the file contains the text again.
    pub file_failure: Option<MemoryFailure>,
    /// Estimated tokens that were appended since the last message that an update read.
    pub since_tokens: u64,
    /// Number of calls since then.
    pub since_calls: u32,
    /// Digests of earlier versions, latest last. At most 32.
    pub earlier_digests: VecDeque<TextDigest>,
    /// The last message that was read for the text in the file, if known.
    pub file_read_through: Option<Ordinal>,
    /// True if a model or a person wrote a part of the text.
    pub has_foreign_text: bool,
}

/// The growth that makes the next update due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct MemoryGrowth {
    pub(super) tokens: u64,
    pub(super) calls: u32,
}

/// Returns the digest of a text: the first 16 bytes of its SHA-256.
pub fn text_digest(text: &[u8]) -> TextDigest {
    let whole: [u8; 32] = Sha256::digest(text).into();
    let mut digest = TextDigest::default();
    digest.copy_from_slice(&whole[..16]);
    digest
}

impl MemoryVersion {
    /// Returns the text of `summary.md`.
    pub fn text(&self) -> &MemoryText {
        self.content.text()
    }
}

impl SessionMemory {
    /// Returns the latest version, unless it contains only the template's headings.
    pub fn latest_written(&self) -> Option<&MemoryVersion> {
        let version = self.version.as_ref();
        version.filter(|version| version.author != Author::Template)
    }

    /// Returns true if the text is a version of this session memory. Any other text was written by a person.
    pub fn is_known_text(&self, text: &[u8]) -> bool {
        let latest = self.version.as_ref();
        let digest = text_digest(text);
        latest.is_some_and(|latest| latest.digest == digest)
            || self.earlier_digests.contains(&digest)
    }

    /// Returns true if the update that began at `began` is still running. Always true for `None`.
    pub fn is_running_since(&self, began: Option<Timestamp>) -> bool {
        began.is_none() || began == self.running
    }

    /// Returns the last message that was read for the text that a person edited. This is the latest version, unless
    /// the file is known to be outdated.
    pub fn edit_read_through(&self) -> Option<Ordinal> {
        match (&self.file_failure, &self.version) {
            (None, Some(version)) => version.read_through,
            _ => self.file_read_through,
        }
    }

    /// Returns the latest failure, of an update or of the file.
    pub fn last_failure(&self) -> Option<&MemoryFailure> {
        let both = self.failure.iter().chain(&self.file_failure);
        both.max_by_key(|failure| failure.failed_at)
    }

    pub(super) fn add_growth(&mut self, tokens: u32, calls: u32) {
        self.since_tokens += u64::from(tokens);
        self.since_calls += calls;
    }

    pub(super) fn started(&mut self, at: Timestamp) {
        self.running = Some(at);
    }

    pub(super) fn updated(&mut self, at: Timestamp, event: &MemoryUpdated) {
        let before = self.version.replace(MemoryVersion {
            number: event.version,
            content: event.content.clone(),
            digest: event.digest,
            author: event.author,
            at,
            source: event.source,
            covered_through: event.covered_through,
            read_through: event.read_through,
            duration_ms: event.duration_ms,
        });
        // While the file cannot be written, it still contains the older text, so its coverage is kept.
        if self.file_failure.is_none() {
            self.file_read_through = before.as_ref().and_then(|before| before.read_through);
        }
        // The file that a person edited also counts as known, so that it is not taken for a second edit.
        let before = before.map(|before| before.digest);
        for digest in before.into_iter().chain(event.file) {
            if self.earlier_digests.len() >= MAX_DIGESTS {
                self.earlier_digests.pop_front();
            }
            self.earlier_digests.push_back(digest);
        }
        // Only a finished update clears the running one. The template and a person's edit can arrive during an update.
        match event.author {
            Author::Template => {}
            Author::Person => self.has_foreign_text = true,
            Author::Model | Author::Extractive => {
                self.has_foreign_text |= event.author == Author::Model;
                self.running = None;
                self.failure = None;
            }
        }
    }

    /// Sets the growth since the last message that was read.
    pub(super) fn reset_growth(&mut self, since: MemoryGrowth) {
        self.since_tokens = since.tokens;
        self.since_calls = since.calls;
    }

    pub(super) fn failed(&mut self, failed_at: Timestamp, event: &MemoryUpdateFailed) {
        let failure = Some(MemoryFailure {
            failed_at,
            detail: event.detail.clone(),
            attempts: event.attempts,
            retry_at: event.retry_at,
        });
        // The file is written after its version was recorded, so a failed write ends no update.
        if event.is_file_failure {
            self.file_failure = failure;
        } else {
            self.running = None;
            self.failure = failure;
        }
    }

    pub(super) fn record_file_written(&mut self) {
        self.file_failure = None;
    }
}
