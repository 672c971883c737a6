//! Files that no event names: a process ended between the file and its event, an event was refused
//! after its file was written, or a session is gone.
//!
//! What an event names is never removed. A file is stored before its event, so one that is named
//! nowhere may be named in a moment: only those go that were written longer ago than a command can
//! take. A command that wants such a file again writes it again, which makes it young, and the age is
//! looked at once more when nobody can do that at the same time (see `Blobs::sweep`). So the order is:
//! list the files, read all of the log, then remove.

use std::collections::HashSet;
use std::time::Duration;

use palimpsest_core::ids::{SessionKey, Timestamp};
use palimpsest_store::blobs::{BlobError, Blobs, Removed, result_path};

use super::{Pace, names};
use crate::sessions::{Sessions, SessionsError};

/// Why a pass ended.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// The log cannot be read.
    #[error(transparent)]
    Sessions(#[from] SessionsError),
    /// The files cannot be listed or removed.
    #[error(transparent)]
    Blobs(#[from] BlobError),
}

/// Goes through all files once. Those that are younger than `grace` stay, and those younger than a day
/// in any case.
pub async fn sweep(
    sessions: &Sessions,
    blobs: &Blobs,
    grace: Duration,
    pace: &Pace,
) -> Result<Removed, SweepError> {
    let mut all = Removed::default();
    for project in blobs.projects().await? {
        for key in blobs.sessions(&project).await? {
            match pace.work(session(sessions, blobs, &key, grace)).await {
                Ok(removed) => all += removed,
                // What cannot be read names nobody knows what: its files stay.
                Err(SweepError::Sessions(error)) => {
                    tracing::warn!(session = %key, %error, "did not sweep the files of a session that cannot be read");
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(all)
}

async fn session(
    sessions: &Sessions,
    blobs: &Blobs,
    key: &SessionKey,
    grace: Duration,
) -> Result<Removed, SweepError> {
    let now = sessions.clock().now();
    let grace = i64::try_from(grace.as_millis()).unwrap_or(i64::MAX);
    let older_than = Timestamp::from_millis(now.as_millis().saturating_sub(grace));
    let mut removed = blobs.sweep_leftovers(key, older_than, now).await?;
    let is_old = |written: Timestamp| written < older_than;
    if !blobs
        .list(key)
        .await?
        .iter()
        .any(|entry| is_old(entry.written))
    {
        return Ok(removed);
    }
    let log = sessions.log();
    let head = log.head(key).await.map_err(SessionsError::from)?;
    if head.is_some() {
        let named = names::of(sessions, key).await?;
        let paths = named.keys().map(|file| result_path(key, file));
        let paths = paths.collect::<Result<HashSet<_>, _>>()?;
        removed += blobs.sweep(key, &paths, older_than, now).await?;
    } else if log
        .tombstone(key)
        .await
        .map_err(SessionsError::from)?
        .is_none()
    {
        removed += blobs.sweep_session(key, older_than, now).await?;
    }
    Ok(removed)
}
