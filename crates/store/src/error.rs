//! Errors of the log, divided by the reaction that a caller needs.

use std::io;
use std::path::PathBuf;

use palimpsest_core::ids::{Revision, SessionKey};

/// An error of a log operation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Another append came first, or the name belongs to another session now. Reload the session and decide
    /// again.
    #[error("the session is at revision {current} and not at the expected revision")]
    Conflict {
        /// The current revision. Zero if no session has this name.
        current: Revision,
    },
    /// A sweep revoked the intent of a file before the event that names it. Store the file again under another name.
    #[error(
        "a sweep removed the file {0} before an event named it: store it again under another name"
    )]
    IntentRevoked(Box<str>),
    /// A session of this name was deleted, and its data is still being removed.
    #[error("{0} was deleted a moment ago and is still being removed")]
    Deleting(SessionKey),
    /// The session of a snapshot does not exist.
    #[error("{0} does not exist")]
    NotFound(SessionKey),
    /// A snapshot is at a revision after the head of the log.
    #[error("a snapshot at revision {at} is past the head at {head}")]
    SnapshotAhead {
        /// The revision of the snapshot.
        at: Revision,
        /// The revision of the log.
        head: Revision,
    },
    /// A size limit that bounds every write was exceeded. A retry cannot succeed.
    #[error("{what} has {len} bytes, the maximum is {max}")]
    TooLarge {
        /// The part of the request that is too large.
        what: &'static str,
        /// The size of the part.
        len: usize,
        /// The maximum size.
        max: usize,
    },
    /// The engine is shutting down. Another process may accept the request.
    #[error("the store is closed")]
    Closed,
    /// A write or a sync failed, so that later writes may not be on disk. The engine rejects every call
    /// until the process is restarted. The outcome of this call is unknown.
    #[error("the store failed and must be restarted: {0}")]
    Failed(String),
    /// The disk is full or the file system rejects writes. Reads still work, and writes are accepted again
    /// when room is available. The outcome of a write in flight is unknown.
    #[error("the store accepts no writes: {0}")]
    OutOfSpace(&'static str),
    /// The process or the machine has run out of a resource other than disk space, such as file handles. No
    /// acknowledged write is lost. The outcome of this call is unknown, and the caller may retry soon.
    #[error("the store is short of {0}")]
    OutOfResources(&'static str),
    /// The database of the store is temporarily unavailable. No acknowledged write is lost. The outcome of
    /// this call is unknown, and the caller may retry soon.
    #[error("the database cannot be used now: {0}")]
    Unreachable(String),
    /// The database or its connection settings are not usable. An operator must correct them.
    #[error("the database cannot be used: {0}")]
    Setup(String),
    /// A read failed. No data is known to be lost. The caller may retry.
    #[error("failed to read the store: {0}")]
    Read(String),
    /// The stored data of one session is inconsistent. The session must be restored from a backup.
    #[error("{key} is damaged: {detail}")]
    Damaged {
        /// The session.
        key: SessionKey,
        /// A description without any session content.
        detail: String,
    },
    /// Another process has the store open.
    #[error(
        "{dir} is in use by another process: stop that one first, or let both share a database \
         (store.postgres.url)",
        dir = dir.display()
    )]
    Locked {
        /// The data directory of the store.
        dir: PathBuf,
    },
    /// A newer release wrote the store. Use that release or a newer one.
    #[error("the store has format {found}, this release reads up to {supported}: use a newer one")]
    Newer {
        /// The format version of the store.
        found: u64,
        /// The newest format version that this release supports.
        supported: u64,
    },
    /// The store is corrupt and cannot be opened. Its folder was renamed, so that the next start does not
    /// fail on it again or mistake it for an empty store. Nothing was deleted.
    #[error(
        "{dir} is corrupt ({detail}); it is kept as {kept}: restore a backup to {dir}, or start \
         again there with an empty store",
        dir = dir.display(), kept = kept.display()
    )]
    Corrupt {
        /// The data directory of the store.
        dir: PathBuf,
        /// The current path of the folder. Equal to `dir` if the rename failed.
        kept: PathBuf,
        /// The inconsistency that was found.
        detail: String,
    },
    /// The folder of the log is missing, and a folder beside it may be an earlier state of the store.
    /// Starting with an empty log would look like a loss of all sessions.
    #[error(
        "{dir} does not exist, but {found} does{more}: an empty store is not created beside it. {advice}",
        dir = dir.display(), found = found.display(),
        more = if *others > 0 { format!(" and {others} more") } else { String::new() }
    )]
    Missing {
        /// The data directory of the store.
        dir: PathBuf,
        /// The folder that may be an earlier state.
        found: PathBuf,
        /// The number of further such folders.
        others: usize,
        /// Instructions for the operator.
        advice: String,
    },
    /// The operating system rejected an operation on the store's folder.
    #[error("failed to {doing} {path}", path = path.display())]
    Io {
        /// The operation, as an infinitive.
        doing: &'static str,
        /// The path of the operation.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// The maximum length of an error text, in characters.
const MOST_CHARS: usize = 500;

/// Returns an error's text followed by the texts of its causes, separated by colons. A cause is left
/// out if the text contains it already. The result has at most 500 characters. Many errors describe
/// only the operation in their own text and the reason in the cause.
pub fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    // Causes beyond the limit would be cut off below.
    while let Some(deeper) = cause.filter(|_| text.len() < MOST_CHARS) {
        let more = deeper.to_string();
        // Many libraries repeat the text of the cause in their own.
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = deeper.source();
    }
    text.chars().take(MOST_CHARS).collect()
}
