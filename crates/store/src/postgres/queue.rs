//! The work queue, which is stored in the session rows. It is read without locks and claimed by
//! updating one row.

use std::collections::HashMap;

use palimpsest_core::ids::{ProjectId, Revision, SessionKey, Timestamp};
use tokio_postgres::Row;

use super::append;
use super::names;
use super::pool::Pool;
use super::read::{clamp_limit, get, unsigned};
use super::retry::{RetryBudget, retry};
use crate::{DueChange, DueQuery, DueSession, Lease, MAX_LIST, StoreError};

fn due_of(row: &Row) -> Result<DueSession, StoreError> {
    Ok(DueSession {
        key: names::parse(get(row, "key")?)?,
        at: Timestamp::from_millis(get(row, "due")?),
        revision: Revision::new(unsigned(row, "revision")?),
    })
}

/// Returns due sessions in the order of an index, without the limit per project.
async fn in_order(
    pool: &Pool,
    budget: RetryBudget,
    worker: DueQuery<'_>,
    now: Timestamp,
    limit: usize,
) -> Result<Vec<DueSession>, StoreError> {
    let (now, limit) = (pool.simulated_time(now), clamp_limit(limit));
    let others_before = worker.others_ready_before.as_millis();
    let rows = retry!(budget, _, {
        let client = pool.client().await?;
        let statement = &pool.statements().due;
        client
            .query(statement, &[&now, &limit, &worker.owner, &others_before])
            .await
    })?;
    // Skip unreadable rows. Lists and `verify-store` report them.
    Ok(rows.iter().filter_map(|row| due_of(row).ok()).collect())
}

/// Implements [`crate::WorkQueue::due`]. A short queue is read in the order of an index, and the
/// limit per project is applied here. The more expensive query per project is used only if the queue
/// exceeds one list.
pub(super) async fn due(
    pool: &Pool,
    budget: RetryBudget,
    worker: DueQuery<'_>,
    now: Timestamp,
    limit: usize,
) -> Result<Vec<DueSession>, StoreError> {
    if worker.max_per_project >= limit {
        // No project can exceed its limit.
        return in_order(pool, budget, worker, now, limit).await;
    }
    let mut first = in_order(pool, budget, worker, now, MAX_LIST).await?;
    // The list is complete, or no project can exceed its limit.
    if first.len() < MAX_LIST || worker.max_per_project >= MAX_LIST {
        let mut of_project: HashMap<ProjectId, usize> = HashMap::new();
        first.retain(|due| {
            let seen = of_project.entry(due.key.project.clone()).or_default();
            *seen += 1;
            *seen <= worker.max_per_project
        });
        first.truncate(limit);
        return Ok(first);
    }
    let (now, limit) = (pool.simulated_time(now), clamp_limit(limit));
    let each = i64::try_from(worker.max_per_project).unwrap_or(i64::MAX);
    let others_before = worker.others_ready_before.as_millis();
    let rows = retry!(budget, _, {
        let client = pool.client().await?;
        let statement = &pool.statements().due_of_each;
        client
            .query(
                statement,
                &[&now, &limit, &worker.owner, &others_before, &each],
            )
            .await
    })?;
    // Skip unreadable rows. Lists and `verify-store` report them.
    Ok(rows.iter().filter_map(|row| due_of(row).ok()).collect())
}

/// Implements [`crate::WorkQueue::claim`]. A retry renews the lease.
pub(super) async fn claim(
    pool: &Pool,
    budget: RetryBudget,
    key: &SessionKey,
    lease: &Lease,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let stored = names::key(key);
    let (length, now) = (lease.length_ms(now), pool.simulated_time(now));
    let claimed = retry!(budget, _, {
        let client = pool.durable_client().await?;
        let statement = &pool.statements().claim;
        client
            .execute(statement, &[&now, &stored, &lease.owner, &length])
            .await
    })?;
    Ok(claimed == 1)
}

/// Implements [`crate::Leadership::claim_leader_task`]. A retry renews the lease.
pub(super) async fn claim_duty(
    pool: &Pool,
    budget: RetryBudget,
    duty: &str,
    lease: &Lease,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let (length, now) = (lease.length_ms(now), pool.simulated_time(now));
    let claimed = retry!(budget, _, {
        let client = pool.durable_client().await?;
        let statement = &pool.statements().claim_duty;
        client
            .execute(statement, &[&now, &duty, &lease.owner, &length])
            .await
    })?;
    Ok(claimed == 1)
}

/// Implements [`crate::WorkQueue::release`]. A retry may return false although the first attempt
/// succeeded. Callers take no action in that case.
pub(super) async fn release(
    pool: &Pool,
    budget: RetryBudget,
    key: &SessionKey,
    owner: &str,
    next: DueChange,
) -> Result<bool, StoreError> {
    let stored = names::key(key);
    let (says_due, due) = append::due(next);
    let released = retry!(budget, _, {
        let client = pool.durable_client().await?;
        let statement = &pool.statements().release;
        client
            .execute(statement, &[&stored, &owner, &says_due, &due])
            .await
    })?;
    Ok(released == 1)
}
