//! What can go wrong in the log, as far as a caller acts differently on it.

use std::io;
use std::path::PathBuf;

use palimpsest_core::ids::{Revision, SessionKey};

/// Why a call of the log failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Somebody else appended first, or it is another session of that name: reload and decide again.
    #[error("the session stands at revision {current}, not where the change was decided")]
    Conflict {
        /// Where it stands; zero when there is no session of that name.
        current: Revision,
    },
    /// A sweep has taken a file up before the event that names it: store it again under another name.
    #[error(
        "a sweep removed the file {0} before an event named it: store it again under another name"
    )]
    IntentRevoked(Box<str>),
    /// A session of that name was deleted, and what belonged to it is still being removed.
    #[error("{0} was deleted a moment ago and is still being removed")]
    Deleting(SessionKey),
    /// There is no such session to put a snapshot to.
    #[error("{0} does not exist")]
    NotFound(SessionKey),
    /// A snapshot claims to hold events that the log does not have.
    #[error("a snapshot at revision {at} is past the head at {head}")]
    SnapshotAhead {
        /// What the snapshot claims.
        at: Revision,
        /// What the log holds.
        head: Revision,
    },
    /// A limit that keeps every write bounded was passed: the request can never succeed.
    #[error("{what} has {len} bytes, the most is {max}")]
    TooLarge {
        /// Which part.
        what: &'static str,
        /// Its size.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// The engine is shutting down: another one may take the request.
    #[error("the store is closed")]
    Closed,
    /// A write or a sync failed, so that nothing written since can be trusted to be on disk. The
    /// engine refuses everything until the process is restarted; the outcome of the call is unknown.
    #[error("the store failed and must be restarted: {0}")]
    Failed(String),
    /// There is no room to write, or the file system takes no writes. What is there can be read, and
    /// writes are taken again when there is room. A write that was under way when the room ran out may
    /// have happened or not.
    #[error("the store takes no writes: {0}")]
    Full(&'static str),
    /// The process or the machine is short of a resource other than room, such as file handles. Nothing that was
    /// acknowledged is lost; what of the call has happened is unknown, and it may be tried again in a moment.
    #[error("the store is short of {0}")]
    Short(&'static str),
    /// The database that holds the store cannot be used now. Nothing that was acknowledged is lost; what of the call
    /// has happened is unknown, and it may be tried again in a moment.
    #[error("the database cannot be used now: {0}")]
    Unreachable(String),
    /// The database is not as the store needs it, or how to reach it was said wrongly: somebody has to see to it.
    #[error("the database cannot be used: {0}")]
    Setup(String),
    /// A read failed. Nothing is known to be lost; the call may be tried again.
    #[error("failed to read the store: {0}")]
    Read(String),
    /// What is stored of one session contradicts itself: that session must be restored.
    #[error("{key} is damaged: {detail}")]
    Damaged {
        /// Which.
        key: SessionKey,
        /// How, without any content.
        detail: String,
    },
    /// Another process has the store open.
    #[error(
        "{dir} is in use by another process: stop that one first, or let both share a database \
         (store.postgres.url)",
        dir = dir.display()
    )]
    Locked {
        /// The store's folder.
        dir: PathBuf,
    },
    /// The store was written by a newer release: use that one or newer.
    #[error("the store has format {found}, this release reads up to {supported}: use a newer one")]
    Newer {
        /// The format found.
        found: u64,
        /// The newest that this release knows.
        supported: u64,
    },
    /// The store cannot be opened. Its folder was moved aside so that the next start neither trips
    /// over it nor mistakes it for an empty one; nothing in it was deleted.
    #[error(
        "{dir} is corrupt ({detail}); it is kept as {kept}: restore a backup to {dir}, or start \
         again there with an empty store",
        dir = dir.display(), kept = kept.display()
    )]
    Corrupt {
        /// The store's folder.
        dir: PathBuf,
        /// Where it is now; the same when it could not be moved.
        kept: PathBuf,
        /// What was found.
        detail: String,
    },
    /// The folder of the log is missing and what looks like an earlier state of it lies beside it: a log that begins
    /// empty would look like a loss of all sessions.
    #[error(
        "{dir} does not exist, but {found} does{more}: no empty store is begun beside it. {advice}",
        dir = dir.display(), found = found.display(),
        more = if *others > 0 { format!(" and {others} more") } else { String::new() }
    )]
    Missing {
        /// The store's folder.
        dir: PathBuf,
        /// The folder beside it.
        found: PathBuf,
        /// The number of further such folders.
        others: usize,
        /// What to do.
        advice: String,
    },
    /// The store's folder cannot be used at all, for a reason that the system gives.
    #[error("failed to {doing} {path}", path = path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On which path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// How much is told of an error.
const MOST_CHARS: usize = 500;

/// An error with what is behind it, as far as that is not said already, and not too long: many an error's own text
/// says only what was tried.
pub fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(deeper) = cause.filter(|_| text.len() < MOST_CHARS) {
        let more = deeper.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = deeper.source();
    }
    text.chars().take(MOST_CHARS).collect()
}
