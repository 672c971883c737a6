//! Events of the session memory.

use super::parts::{Author, TextDigest};
use crate::ids::{Ordinal, Revision, Timestamp};
use crate::memory::SectionKind;

/// An update of the running summary began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryUpdateStarted {
    /// The number of the version that it will make.
    pub number: u64,
}

/// The running summary has a new version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryUpdated {
    /// Its number.
    pub number: u64,
    /// The whole file.
    pub text: Box<str>,
    /// Who wrote it.
    pub author: Author,
    /// The revision that it was written from.
    pub source: Revision,
    /// The last message that it covers.
    pub covers: Option<Ordinal>,
    /// The last message that was read for it.
    pub read: Option<Ordinal>,
    /// The sections that are not as in the version before it.
    pub changed: Vec<SectionKind>,
    /// The file as a person left it, when this is what they wrote.
    pub file: Option<TextDigest>,
    /// How long that took, in milliseconds.
    pub took_ms: u64,
}

/// An update of the running summary came to nothing, or its file could not be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryUpdateFailed {
    /// Whether it is the file that failed: the text is there then, and only its copy is not.
    pub of_file: bool,
    /// Why. Never holds content of the conversation.
    pub detail: Box<str>,
    /// How many attempts in a row.
    pub attempts: u32,
    /// When the next one is due.
    pub next: Timestamp,
}

/// The file of the running summary holds its text again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryFiled {
    /// The number of the version.
    pub number: u64,
}
