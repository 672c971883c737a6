//! Deletion of sessions. The row is marked as deleted and serves as the tombstone. The data is removed
//! in parts, and the row last.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use palimpsest_core::ids::{Revision, SessionKey, Timestamp};
use tokio::time::timeout;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::error::PgError;
use super::nodes::{Nodes, Part, Question};
use super::pool::Pool;
use super::read::{clamp_limit, lease_of};
use super::retry::{Attempt, RetryBudget, retry};
use super::row::{get, unsigned};
use super::{error, names, read};
use crate::{LONGEST_LEASE_MS, Lease, MAX_LIST, Position, StoreError, Tombstone};

/// The maximum number of frames that one statement deletes. The limit keeps each statement short.
const FRAMES: i64 = 512;
/// The maximum time that a canary waits for a pooled connection.
const FREE_SOON: Duration = Duration::from_millis(100);
/// The time limit of the canary of one node. It is shorter than the default interval of canaries.
const NODE_CANARY: Duration = Duration::from_secs(3);

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
        let mut is_done = client
            .call(
                &statements.delete,
                &[&stored, &incarnation, &revision, &token, &deleted_at],
            )
            .await?;
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
    nodes: &Nodes,
    budget: RetryBudget,
    after: Option<&SessionKey>,
    limit: usize,
) -> Result<Vec<Tombstone>, StoreError> {
    let (from, most) = (
        &after.map(names::key).unwrap_or_default(),
        clamp_limit(limit),
    );
    let asked = nodes.ask(budget, Question::SHORT, move |part: Arc<Part>| async move {
        let client = part.lists.client().await?;
        let statement = &part.statements.tombstones;
        client.query(statement, &[from, &most]).await
    });
    let mut rows: Vec<Row> = asked.await?.answers.into_iter().flatten().collect();
    rows.sort_by_cached_key(read::stored_key);
    rows.truncate(limit.min(MAX_LIST));
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
    retry!(budget, _, {
        let client = pool.durable_client().await?;
        let statement = &pool.statements().claim_removal;
        let parameters: [&(dyn ToSql + Sync); 6] = [
            &stored, &number, &lease.owner, &now, &length, &LONGEST_LEASE_MS,
        ];
        client.call(statement, &parameters).await
    })
}

/// Implements [`crate::Tombstones::forget`]. It changes only deleted data, which is never restored, so it can be retried.
pub(super) async fn forget(
    pool: &Pool,
    budget: RetryBudget,
    (key, incarnation): (&SessionKey, u64),
    owner: &str,
) -> Result<bool, StoreError> {
    let stored = names::key(key);
    let number = error::number(incarnation)?;
    retry!(budget, _, {
        let client = pool.durable_client().await?;
        let statement = &pool.statements().forget;
        client
            .call(statement, &[&stored, &number, &owner, &FRAMES])
            .await
    })
}

/// Implements [`crate::Store::check`]. The row that it writes also registers this process. A distributed database writes no
/// row, because its node could be away.
///
/// The canary is not retried, because it runs regularly and decides the readiness of the process. If
/// the pool is exhausted, the canary opens its own connection. Otherwise an overloaded server would
/// become unready and move its load to the next one.
pub(super) async fn canary(nodes: &Nodes, name: &str) -> Result<(), StoreError> {
    if !nodes.is_distributed() {
        let pool = nodes.entry();
        return canary_of(pool, &pool.statements().canary, name).await;
    }
    // Each node answers for itself, and a process that reaches one of them can serve its sessions.
    let parts = nodes.parts();
    let canaries = parts.iter().map(|part| {
        let pool = &part.pool;
        let canary = canary_of(pool, &pool.statements().node_canary, name);
        timeout(NODE_CANARY, canary)
    });
    let mut outcomes = join_all(canaries).await.into_iter();
    let first = outcomes.next();
    let outcome = |done: Result<_, _>| done.unwrap_or_else(|_| Err(PgError::timeout().into()));
    let first = first.map_or(Ok(()), outcome);
    if first.is_err() && outcomes.any(|done| matches!(done, Ok(Ok(())))) {
        return Ok(());
    }
    first
}

async fn canary_of(pool: &Pool, statement: &str, name: &str) -> Result<(), StoreError> {
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
