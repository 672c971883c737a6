//! Removes orphaned blobs: files whose event was never committed, because the process ended or the append was rejected
//! after the file was written.
//!
//! A sweep uses only the intents in the log, so an empty, older or foreign log removes nothing. Each intent that is
//! older than any command can take is handled in this order:
//!
//! 1. The intent is doomed, so that no later append can settle it.
//! 2. The log is read, to verify that no event references the file.
//! 3. The file is removed.
//! 4. The intent is removed.
//!
//! After an interruption, the next pass continues from the intent. File names are never reused, so a late removal
//! cannot hit another file.

use std::time::Duration;

use crate::EngineError;
use crate::sessions::Sessions;
use palimpsest_core::ids::{SessionKey, Timestamp};
use palimpsest_store::blobs::{BlobError, Blobs, RemovalCount};
use palimpsest_store::{FileIntent, IntentPage, MAX_LIST, StoreError, crash_point, error_chain};

use super::duty_cycle::DutyCycle;
use super::referenced_files;

/// The minimum age of a swept intent, in milliseconds: one day, even if the setting is lower.
const MIN_AGE_MILLIS: i64 = 24 * 60 * 60 * 1000;

/// The reason for ending a sweep early.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// The log cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A session cannot be read.
    #[error(transparent)]
    Sessions(#[from] EngineError),
    /// A file cannot be removed.
    #[error(transparent)]
    Blobs(#[from] BlobError),
}

/// Sweeps all intents once. Intents younger than `grace`, and in any case those younger than a day, are kept.
pub async fn sweep(
    sessions: &Sessions,
    blobs: &Blobs,
    grace: Duration,
    pace: &DutyCycle,
) -> Result<RemovalCount, SweepError> {
    // Nothing is doomed if the blobs belong to another store or cannot be reached.
    blobs.verify().await?;
    let grace = i64::try_from(grace.as_millis()).unwrap_or(i64::MAX);
    let age = grace.max(MIN_AGE_MILLIS);
    let before = sessions.clock().now().as_millis().saturating_sub(age);
    let before = Timestamp::from_millis(before);
    let mut all = RemovalCount::default();
    let mut after: Option<(SessionKey, Box<str>)> = None;
    loop {
        let from = after.as_ref().map(|(key, file)| (key, &**file));
        let IntentPage {
            intents,
            unreadable,
        } = sessions.log().list_intents(from, MAX_LIST).await?;
        if unreadable > 0 {
            tracing::warn!(
                unreadable,
                "did not sweep files whose intents cannot be read: run `palimpsest verify-store`"
            );
        }
        let Some(last) = intents.last() else {
            return Ok(all);
        };
        after = Some((last.key.clone(), last.file.clone()));
        // An interrupted sweep leaves doomed intents. They are finished regardless of their age.
        let is_old = |intent: &FileIntent| intent.is_revoked || intent.at < before;
        let old: Vec<_> = intents.into_iter().filter(is_old).collect();
        // The page is ordered by session, so one read of the log serves all intents of a session.
        for of_session in old.chunk_by(|a, b| a.key == b.key) {
            match pace
                .work(session(sessions, blobs, of_session, before))
                .await
            {
                Ok(removed) => all += removed,
                // The references of an unreadable session are unknown, so its files stay.
                Err(SweepError::Sessions(error)) => {
                    let key = &of_session[0].key;
                    tracing::warn!(session = %key, error = %error_chain(&error), "skipped the sweep of an unreadable session");
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
        if log.revoke_intent(&intent.key, &intent.file, before).await? {
            doomed.push(intent);
        }
    }
    let mut removed = RemovalCount::default();
    let Some(first) = doomed.first() else {
        return Ok(removed);
    };
    crash_point("sweep.doomed");
    // No append can reference the doomed files anymore, so the result of this read is final.
    let named = referenced_files::read_referenced_files(sessions, &first.key).await?;
    for FileIntent { key, file, .. } in doomed {
        if named.contains_key(file) {
            tracing::error!(session = %key, %file, "an event references a file that still has an intent; the file is kept");
        } else {
            removed += blobs.remove_result(key, file).await?;
            crash_point("sweep.removed");
        }
        // The intent of a kept file ends as well, because an event names the file. Otherwise every sweep would report
        // it.
        log.complete_intent(key, file).await?;
    }
    Ok(removed)
}
