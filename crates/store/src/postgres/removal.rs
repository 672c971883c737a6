//! Deletion of sessions. The row is marked as deleted and serves as the tombstone. The data is removed
//! in parts, and the row last.

use std::time::Duration;

use palimpsest_core::ids::{Revision, SessionKey, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::error::PgError;
use super::pool::Pool;
use super::read::{clamp_limit, get, lease_of, unsigned};
use super::retry::{Attempt, RetryBudget, retry};
use super::{error, names, read};
use crate::{Lease, Position, StoreError, Tombstone};

/// The maximum number of frames that one statement deletes. The limit keeps each statement short.
const FRAMES: i64 = 512;
/// The maximum time that a canary waits for a pooled connection.
const FREE_SOON: Duration = Duration::from_millis(100);

fn tombstone_of(row: &Row) -> Result<Tombstone, StoreError> {
    Ok(Tombstone {
        key: names::parse(get(row, "key")?)?,
        incarnation: unsigned(row, "incarnation")?,
        at: Timestamp::from_millis(get(row, "deleted_at")?),
        lease: lease_of(row)?,
    })
}

/// Implements [`crate::SessionLog::delete`]. A retry recognizes the tombstone of the first attempt.
pub(super) async fn delete(
    pool: &Pool,
    budget: RetryBudget,
    (key, expected): (&SessionKey, Position),
    at: Timestamp,
) -> Result<(), StoreError> {
    let stored = names::key(key);
    let deleted_at = at.as_millis();
    let incarnation = error::number(expected.incarnation)?;
    let revision = error::number(expected.revision.get())?;
    let token = error::number(expected.token)?;
    let found = retry!(budget, tried, {
        let client = pool.durable_client().await?;
        let statements = pool.statements();
        let deleted = client
            .execute(
                &statements.delete,
                &[&stored, &deleted_at, &incarnation, &revision, &token],
            )
            .await?;
        let mut is_done = deleted == 1;
        // An earlier attempt may have committed before the connection broke. Its tombstone has the same time.
        if !is_done && tried == Attempt::Before {
            let ours = client
                .query_opt(
                    &statements.was_deleted,
                    &[&stored, &deleted_at, &incarnation],
                )
                .await?;
            is_done = ours.is_some();
        }
        if is_done {
            return Ok(Ok(()));
        }
        Ok(Err(read::position(&client, pool, &stored).await?))
    })?;
    found.map_err(|found| StoreError::Conflict {
        current: found
            .filter(|found| !found.is_deleted)
            .map_or(Revision::ZERO, |found| found.position.revision),
    })
}

/// Implements [`crate::Tombstones::tombstone`].
pub(super) async fn tombstone(
    pool: &Pool,
    budget: RetryBudget,
    key: &SessionKey,
) -> Result<Option<Tombstone>, StoreError> {
    let stored = names::key(key);
    let row = retry!(budget, _, {
        let client = pool.client().await?;
        let statement = &pool.statements().tombstone;
        client.query_opt(statement, &[&stored]).await
    })?;
    row.as_ref().map(tombstone_of).transpose()
}

/// Implements [`crate::Tombstones::tombstones`].
pub(super) async fn tombstones(
    pool: &Pool,
    budget: RetryBudget,
    after: Option<&SessionKey>,
    limit: usize,
) -> Result<Vec<Tombstone>, StoreError> {
    let (after, limit) = (
        after.map(names::key).unwrap_or_default(),
        clamp_limit(limit),
    );
    let rows = retry!(budget, _, {
        let client = pool.client().await?;
        let statement = &pool.statements().tombstones;
        client.query(statement, &[&after, &limit]).await
    })?;
    rows.iter().map(tombstone_of).collect()
}

/// Implements [`crate::Tombstones::claim_removal`]. Idempotent, so it can be retried.
pub(super) async fn claim(
    pool: &Pool,
    budget: RetryBudget,
    (key, incarnation): (&SessionKey, u64),
    lease: &Lease,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let stored = names::key(key);
    let number = error::number(incarnation)?;
    let (length, now) = (lease.length_ms(now), pool.simulated_time(now));
    let claimed = retry!(budget, _, {
        let client = pool.durable_client().await?;
        let statement = &pool.statements().claim_removal;
        client
            .execute(statement, &[&now, &stored, &number, &lease.owner, &length])
            .await
    })?;
    Ok(claimed == 1)
}

/// Implements [`crate::Tombstones::forget`]. It changes only deleted data, which is never restored, so
/// every step can be retried.
pub(super) async fn forget(
    pool: &Pool,
    budget: RetryBudget,
    (key, incarnation): (&SessionKey, u64),
    owner: &str,
) -> Result<bool, StoreError> {
    let stored = names::key(key);
    let found = retry!(budget, _, {
        let client = pool.client().await?;
        read::position(&client, pool, &stored).await
    })?;
    // A missing row or another incarnation means that the tombstone is already gone.
    let found = found.filter(|it| it.is_deleted && it.position.incarnation == incarnation);
    if found.is_none() {
        return Ok(true);
    }
    let number = error::number(incarnation)?;
    let removed = retry!(budget, _, {
        let client = pool.durable_client().await?;
        let statement = &pool.statements().forget_frames;
        client
            .execute(statement, &[&stored, &number, &FRAMES])
            .await
    })?;
    // More frames may remain. The caller continues with the next call.
    if error::number(removed)? >= FRAMES {
        return Ok(false);
    }
    let forgotten = retry!(budget, tried, {
        let client = pool.durable_client().await?;
        let statements = pool.statements();
        client
            .execute(&statements.forget_snapshot, &[&stored, &number])
            .await?;
        client
            .execute(&statements.forget_tips, &[&stored, &number])
            .await?;
        // The row is the tombstone. It goes last, so that a crash before leaves the name blocked.
        let forgotten = client
            .execute(&statements.forget, &[&stored, &number, &owner])
            .await?;
        // An earlier attempt may have removed the row.
        Ok(forgotten == 1 || tried == Attempt::Before)
    })?;
    Ok(forgotten)
}

/// Implements [`crate::Store::check`]. The row that it writes also registers this process.
///
/// The canary is not retried, because it runs regularly and decides the readiness of the process. If
/// the pool is exhausted, the canary opens its own connection. Otherwise an overloaded server would
/// become unready and move its load to the next one.
pub(super) async fn canary(pool: &Pool, name: &str) -> Result<(), StoreError> {
    let statement = &pool.statements().canary;
    let client = match pool.client_within(FREE_SOON).await {
        Ok(client) => client,
        Err(PgError::Full(_)) => {
            let (client, connection) = pool.connect().await?;
            let parameters: [&(dyn ToSql + Sync); 1] = [&name];
            let row = tokio::select! {
                asked = client.query_opt(statement, &parameters) => asked.map_err(PgError::from)?,
                // The connection must be polled, or the query would never progress.
                ended = connection => {
                    ended.map_err(PgError::from)?;
                    return Err(PgError::Lost("the connection was closed".into()).into());
                }
            };
            return check_durability(pool, row.as_ref());
        }
        Err(trouble) => return Err(trouble.into()),
    };
    let row = client.query_opt(statement, &[&name]).await?;
    check_durability(pool, row.as_ref())
}

/// Records the settings on which durability depends, and fails if one is off.
fn check_durability(pool: &Pool, row: Option<&Row>) -> Result<(), StoreError> {
    if let Some(row) = row {
        pool.durability().note(get(row, "unsafe")?);
    }
    pool.durability().check()
}
