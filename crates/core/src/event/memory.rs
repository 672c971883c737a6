//! Events of session memory.

use super::parts::{Author, RequestStamp, TextDigest};
use crate::ids::{Ordinal, Revision, Timestamp};
use crate::memory::{MemoryContent, SectionKind};

/// An update of session memory started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryUpdateStarted {
    /// The number of the version that the update will produce.
    pub version: u64,
}

/// Session memory has a new version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryUpdated {
    /// The version number, starting at 1.
    pub version: u64,
    /// The facts from which `summary.md` is rendered.
    pub content: MemoryContent,
    /// Digest of the text that was rendered. A later wording renders another text.
    pub digest: TextDigest,
    /// The author of the version.
    pub author: Author,
    /// The session's revision that the facts were derived from.
    pub source: Revision,
    /// The coverage: the last message that the facts summarize.
    pub covered_through: Option<Ordinal>,
    /// The last message that was read for the facts.
    pub read_through: Option<Ordinal>,
    /// The sections that differ from the previous version.
    pub changed: Vec<SectionKind>,
    /// Digest of the file as a person left it. `None` for other authors.
    pub file: Option<TextDigest>,
    /// The request with the text. `None` if no call gave the text.
    pub request: Option<RequestStamp>,
    /// Duration, in milliseconds.
    pub duration_ms: u64,
}

/// An update of session memory failed, or its file could not be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryUpdateFailed {
    /// True if only the write of the file failed. The text itself is recorded in the log.
    pub is_file_failure: bool,
    /// The reason. Never contains content of the conversation.
    pub detail: Box<str>,
    /// Number of consecutive failures.
    pub attempts: u32,
    /// The due time of the next attempt.
    pub retry_at: Timestamp,
}

/// The file of session memory contains the latest text again, after a failed write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryFileWritten {
    /// The number of the version in the file.
    pub version: u64,
}
