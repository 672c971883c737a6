//! How a session ends: its row says that it is deleted and stays as its tombstone, what belongs to it goes in
//! parts, and the row last.

use std::time::Duration;

use palimpsest_core::ids::{Revision, SessionKey, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::error::PgError;
use super::pool::Pool;
use super::read::{get, lease_of, limited, unsigned};
use super::retry::{Attempt, RetryBudget, retry};
use super::{error, names, read};
use crate::{Lease, Position, StoreError, Tombstone};

/// How many frames go in one statement, so that none holds the database up for long.
const FRAMES: i64 = 512;
/// How long a canary waits for a connection of the pool.
const FREE_SOON: Duration = Duration::from_millis(100);

fn tombstone_of(row: &Row) -> Result<Tombstone, StoreError> {
    Ok(Tombstone {
        key: names::parse(get(row, "key")?)?,
        incarnation: unsigned(row, "incarnation")?,
        at: Timestamp::from_millis(get(row, "deleted_at")?),
        lease: lease_of(row)?,
    })
}

/// See [`crate::SessionLog::delete`]. Sent again it finds the tombstone that it left.
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
        let client = pool.writer().await?;
        let statements = pool.statements();
        let deleted = client
            .execute(
                &statements.delete,
                &[&stored, &deleted_at, &incarnation, &revision, &token],
            )
            .await?;
        let mut is_done = deleted == 1;
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

/// See [`crate::SessionLog::tombstone`].
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

/// See [`crate::SessionLog::tombstones`].
pub(super) async fn tombstones(
    pool: &Pool,
    budget: RetryBudget,
    after: Option<&SessionKey>,
    limit: usize,
) -> Result<Vec<Tombstone>, StoreError> {
    let (after, limit) = (after.map(names::key).unwrap_or_default(), limited(limit));
    let rows = retry!(budget, _, {
        let client = pool.client().await?;
        let statement = &pool.statements().tombstones;
        client.query(statement, &[&after, &limit]).await
    })?;
    rows.iter().map(tombstone_of).collect()
}

/// See [`crate::SessionLog::claim_removal`]. Twice is once.
pub(super) async fn claim(
    pool: &Pool,
    budget: RetryBudget,
    (key, incarnation): (&SessionKey, u64),
    lease: &Lease,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let stored = names::key(key);
    let number = error::number(incarnation)?;
    let (length, now) = (lease.length_ms(now), now.as_millis());
    let claimed = retry!(budget, _, {
        let client = pool.writer().await?;
        let statement = &pool.statements().claim_removal;
        client
            .execute(statement, &[&now, &stored, &number, &lease.owner, &length])
            .await
    })?;
    Ok(claimed == 1)
}

/// See [`crate::SessionLog::forget`]. Only what is deleted is touched, and that never comes back; so every part of
/// it may be repeated.
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
    let found = found.filter(|it| it.is_deleted && it.position.incarnation == incarnation);
    if found.is_none() {
        return Ok(true);
    }
    let number = error::number(incarnation)?;
    let removed = retry!(budget, _, {
        let client = pool.writer().await?;
        let statement = &pool.statements().forget_frames;
        client
            .execute(statement, &[&stored, &number, &FRAMES])
            .await
    })?;
    if error::number(removed)? >= FRAMES {
        return Ok(false);
    }
    let forgotten = retry!(budget, tried, {
        let client = pool.writer().await?;
        let statements = pool.statements();
        client
            .execute(&statements.forget_snapshot, &[&stored, &number])
            .await?;
        let forgotten = client
            .execute(&statements.forget, &[&stored, &number, &owner])
            .await?;
        // It may have been done the time before.
        Ok(forgotten == 1 || tried == Attempt::Before)
    })?;
    Ok(forgotten)
}

/// See [`crate::SessionLog::check`]. What is written says which processes there are, too.
///
/// It is not tried again: it comes again soon, and says whether this process is ready. Where all connections are in
/// use, the database may be well all the same: it is asked over one of its own, or each server would send its
/// callers to the next.
pub(super) async fn canary(pool: &Pool, name: &str) -> Result<(), StoreError> {
    let statement = &pool.statements().canary;
    let client = match pool.client_within(FREE_SOON).await {
        Ok(client) => client,
        Err(PgError::Full(_)) => {
            let (client, connection) = pool.connect().await?;
            let parameters: [&(dyn ToSql + Sync); 1] = [&name];
            let row = tokio::select! {
                asked = client.query_opt(statement, &parameters) => asked.map_err(PgError::from)?,
                ended = connection => {
                    ended.map_err(PgError::from)?;
                    return Err(PgError::Lost("the connection was closed".into()).into());
                }
            };
            return durable(pool, row.as_ref());
        }
        Err(trouble) => return Err(trouble.into()),
    };
    let row = client.query_opt(statement, &[&name]).await?;
    durable(pool, row.as_ref())
}

/// Takes note of whether what the database acknowledges is durable now.
fn durable(pool: &Pool, row: Option<&Row>) -> Result<(), StoreError> {
    if let Some(row) = row {
        pool.durability().note(get(row, "unsafe")?);
    }
    pool.durability().check()
}
