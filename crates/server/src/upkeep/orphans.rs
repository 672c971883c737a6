//! Files that no event came to name: a process ended between the file and its event, or an event was refused after its
//! file was written.
//!
//! A sweep goes by the log's own intents and looks at nothing else, so that an empty, older or foreign log removes nothing.
//! An intent that is older than a command can take is doomed first: no append can settle it from then on. Then the log is
//! read to see that it does not name the file, the file goes, and the intent last. Whatever interrupts that, the next pass
//! goes on with the intent. A name is never used twice, so that a removal that is late removes nothing else.

use std::time::Duration;

use palimpsest_core::ids::{SessionKey, Timestamp};
use palimpsest_engine::sessions::{Sessions, SessionsError};
use palimpsest_store::blobs::{BlobError, Blobs, RemovalCount};
use palimpsest_store::{FileIntent, MAX_LIST, StoreError, crash_point, error_chain};

use super::{DutyCycle, names};

/// The least age of an intent that is swept, in milliseconds: a day, whatever is configured.
const MIN_AGE_MILLIS: i64 = 24 * 60 * 60 * 1000;

/// Why a pass ended.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// The log cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A session cannot be read.
    #[error(transparent)]
    Sessions(#[from] SessionsError),
    /// The files cannot be removed.
    #[error(transparent)]
    Blobs(#[from] BlobError),
}

/// Goes through all intents once. Those that are younger than `grace` stay, and those younger than a day in any case.
pub async fn sweep(
    sessions: &Sessions,
    blobs: &Blobs,
    grace: Duration,
    pace: &DutyCycle,
) -> Result<RemovalCount, SweepError> {
    // Nothing is doomed for files that are another store's, or that cannot be reached.
    blobs.verify().await?;
    let grace = i64::try_from(grace.as_millis()).unwrap_or(i64::MAX);
    let age = grace.max(MIN_AGE_MILLIS);
    let before = sessions.clock().now().as_millis().saturating_sub(age);
    let before = Timestamp::from_millis(before);
    let mut all = RemovalCount::default();
    let mut after: Option<(SessionKey, Box<str>)> = None;
    loop {
        let from = after.as_ref().map(|(key, file)| (key, &**file));
        let intents = sessions.log().intents(from, MAX_LIST).await?;
        let Some(last) = intents.last() else {
            return Ok(all);
        };
        after = Some((last.key.clone(), last.file.clone()));
        let is_old = |intent: &FileIntent| intent.is_doomed || intent.at < before;
        let old: Vec<_> = intents.into_iter().filter(is_old).collect();
        for of_session in old.chunk_by(|a, b| a.key == b.key) {
            match pace
                .work(session(sessions, blobs, of_session, before))
                .await
            {
                Ok(removed) => all += removed,
                // What cannot be read names nobody knows what: its files stay.
                Err(SweepError::Sessions(error)) => {
                    let key = &of_session[0].key;
                    tracing::warn!(session = %key, error = %error_chain(&error), "did not sweep the files of a session that cannot be read");
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Sweeps the expired intents of one session.
async fn session(
    sessions: &Sessions,
    blobs: &Blobs,
    intents: &[FileIntent],
    before: Timestamp,
) -> Result<RemovalCount, SweepError> {
    let (log, mut doomed) = (sessions.log(), Vec::new());
    for intent in intents {
        if log.doom_intent(&intent.key, &intent.file, before).await? {
            doomed.push(intent);
        }
    }
    let mut removed = RemovalCount::default();
    let Some(first) = doomed.first() else {
        return Ok(removed);
    };
    crash_point("sweep.doomed");
    // No append can name one of them any more, so what is read now holds for good.
    let named = names::of(sessions, &first.key).await?;
    for FileIntent { key, file, .. } in doomed {
        if named.contains_key(file) {
            tracing::error!(session = %key, %file, "an event names a file whose intent was still there; the file stays");
        } else {
            removed += blobs.remove_result(key, file).await?;
            crash_point("sweep.removed");
        }
        log.end_intent(key, file).await?;
    }
    Ok(removed)
}
