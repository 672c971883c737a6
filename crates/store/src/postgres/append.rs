//! Appends of events, and replacement of snapshots.

use bytes::Bytes;
use palimpsest_core::ids::{Revision, SessionKey};
use tokio_postgres::types::ToSql;

use super::names;
use super::pool::Pool;
use super::read::{self, RowState};
use super::retry::{Attempt, RetryBudget, retry};
use super::tips::TipParameters;
use super::{error, intents};
use crate::{Batch, DueChange, Position, StoreError};

/// Returns a random positive number that identifies an append or an incarnation.
pub(super) fn random() -> Result<u64, StoreError> {
    let number = getrandom::u64().map_err(|error| StoreError::Read(error.to_string()))?;
    // PostgreSQL integers are signed, and zero means unknown.
    Ok((number >> 1).max(1))
}

/// Implements [`crate::SessionLog::append`]. The append is retried if its outcome is unknown. If the
/// first attempt succeeded, the retry finds another position, and the frame there has the token of this
/// append.
pub(super) async fn append(
    pool: &Pool,
    budget: RetryBudget,
    key: &SessionKey,
    batch: &Batch,
) -> Result<Position, StoreError> {
    // A new session gets a random incarnation, because no counter is shared between processes.
    let creates = batch.expected == Position::START;
    let stored = names::key(key);
    let incarnation = if creates {
        random()?
    } else {
        batch.expected.incarnation
    };
    // The token is chosen before the first attempt, so that a retry can recognize its own frame.
    let token = random()?;
    let events = u64::from(batch.events.get());
    let stands = Position {
        incarnation,
        revision: batch.expected.revision.plus(events),
        token,
    };
    let (says_due, due) = due(batch.due);
    let (incarnation, token) = (error::number(incarnation)?, error::number(token)?);
    let statements = pool.statements();
    let files: Vec<&str> = batch.completed_intents.iter().map(|file| &**file).collect();
    // Null parameters keep appends without files free of the cost of intents, and those without tips free of the cost of
    // the index.
    let files = (!files.is_empty()).then_some(files);
    let tips = batch.tips.as_ref().map(|tips| TipParameters::of(key, tips));
    let project = tips.as_ref().map(|tips| tips.project);
    let scope = tips.as_ref().map(|tips| tips.scope);
    let digests = tips.as_ref().map(|tips| &tips.digests);
    let parent = batch.parent.as_ref().map(names::key).unwrap_or_default();
    let frame: &[u8] = &batch.frame;
    let list_row: &[u8] = &batch.list_row;
    let events = error::number(events)?;
    let blob_bytes = error::number(batch.blob_bytes)?;
    let expected = error::number(batch.expected.revision.get())?;
    let expected_token = error::number(batch.expected.token)?;
    let found = retry!(budget, tried, {
        let client = pool.durable_client().await?;
        let parameters: [&(dyn ToSql + Sync); 16] = [
            &stored, &incarnation, &expected, &expected_token, &token, &events, &frame,
            &blob_bytes, &list_row, &says_due, &due, &files, &project, &scope, &digests, &parent,
        ];
        if client.call(&statements.append, &parameters).await? {
            return Ok(AppendAttempt::Committed);
        }
        // An earlier attempt may have committed before the connection broke. Its frame has this append's
        // token.
        if tried == Attempt::Before {
            let last = error::number(stands.revision.get())?;
            let ours = client
                .query_opt(
                    &statements.frame_is,
                    &[&stored, &incarnation, &last, &token],
                )
                .await?;
            if ours.is_some() {
                return Ok(AppendAttempt::Committed);
            }
        }
        Ok(AppendAttempt::Rejected(
            read::position(&client, pool, &stored).await?,
        ))
    })?;
    let refused = match found {
        AppendAttempt::Committed => return Ok(stands),
        // An append to a deleted session is a conflict at revision zero, as if the session had never existed.
        AppendAttempt::Rejected(Some(found)) if found.is_deleted && creates => {
            StoreError::Deleting(key.clone())
        }
        AppendAttempt::Rejected(found) => StoreError::Conflict {
            current: found
                .filter(|found| !found.is_deleted)
                .map_or(Revision::ZERO, |found| found.position.revision),
        },
    };
    // The position matches, so the rejection must come from an intent that is revoked or missing.
    let is_where_expected =
        matches!(refused, StoreError::Conflict { current } if current == batch.expected.revision);
    if is_where_expected && !batch.completed_intents.is_empty() {
        let lost =
            intents::first_without_intent(pool, budget, (key, &batch.completed_intents)).await?;
        // If all intents are live, the revision is equal and the token differs: the store lost appends.
        return Err(lost.map_or(refused, StoreError::IntentRevoked));
    }
    Err(refused)
}

/// The outcome of an attempt. `Rejected` contains the current row.
enum AppendAttempt {
    Committed,
    Rejected(Option<RowState>),
}

/// Returns the parameters of a due change: true if it changes the due time, and the new time.
pub(super) fn due(change: DueChange) -> (bool, Option<i64>) {
    match change {
        DueChange::Keep => (false, None),
        DueChange::At(at) => (true, Some(at.as_millis())),
        DueChange::Clear => (true, None),
    }
}

/// Implements [`crate::SessionLog::put_snapshot`]. Idempotent, so it can be retried.
pub(super) async fn put_snapshot(
    pool: &Pool,
    budget: RetryBudget,
    (key, at): (&SessionKey, Position),
    bytes: &Bytes,
) -> Result<(), StoreError> {
    let stored = names::key(key);
    let bytes: &[u8] = bytes;
    let (number, token) = (error::number(at.incarnation)?, error::number(at.token)?);
    let revision = error::number(at.revision.get())?;
    let found = retry!(budget, _, {
        let client = pool.durable_client().await?;
        let statement = &pool.statements().put_snapshot;
        let put = client
            .call(statement, &[&stored, &number, &revision, &token, &bytes])
            .await?;
        if put {
            return Ok(AppendAttempt::Committed);
        }
        Ok(AppendAttempt::Rejected(
            read::position(&client, pool, &stored).await?,
        ))
    })?;
    match found {
        AppendAttempt::Committed => Ok(()),
        AppendAttempt::Rejected(Some(found))
            if !found.is_deleted && found.position.incarnation == at.incarnation =>
        {
            let head = found.position.revision;
            if head < at.revision {
                return Err(StoreError::SnapshotAhead {
                    at: at.revision,
                    head,
                });
            }
            // A newer snapshot exists, or the position belongs to a history that the store has lost.
            Ok(())
        }
        AppendAttempt::Rejected(_) => Err(StoreError::NotFound(key.clone())),
    }
}
