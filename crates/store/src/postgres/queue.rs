//! The work queue, which is stored in the session rows. It is read without locks and claimed by
//! updating one row.

use std::collections::HashMap;
use std::sync::Arc;

use palimpsest_core::ids::{ProjectId, Revision, SessionKey, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::append;
use super::names;
use super::nodes::{Nodes, Part, Question};
use super::pool::Pool;
use super::read::{clamp_limit, stored_key};
use super::retry::{RetryBudget, retry};
use super::row::{get, unsigned};
use crate::{
    DueChange, DueQuery, DueSession, LONGEST_LEASE_MS, LONGEST_WAIT_MS, Lease, MAX_LIST, StoreError,
};

fn due_of(row: &Row) -> Result<DueSession, StoreError> {
    Ok(DueSession {
        key: names::parse(get(row, "key")?)?,
        at: Timestamp::from_millis(get(row, "due")?),
        revision: Revision::new(unsigned(row, "revision")?),
    })
}

/// Returns due sessions in the order of an index, with or without a limit per project on each node.
async fn in_order(
    nodes: &Nodes,
    budget: RetryBudget,
    worker: DueQuery<'_>,
    (now, limit): (Timestamp, usize),
    max_per_project: Option<usize>,
) -> Result<Vec<DueSession>, StoreError> {
    let now = nodes.entry().simulated_time(now);
    let (owner, most) = (worker.owner, clamp_limit(limit));
    let others_before = worker.others_ready_before.as_millis();
    let each = max_per_project.map(|each| i64::try_from(each).unwrap_or(i64::MAX));
    let asked = nodes.ask(budget, Question::SHORT, move |part: Arc<Part>| async move {
        let client = part.lists.client().await?;
        let statements = &part.statements;
        let mut parameters: Vec<&(dyn ToSql + Sync)> = vec![&now, &most, &owner, &others_before];
        let statement = match &each {
            Some(each) => {
                parameters.push(each);
                &statements.due_of_each
            }
            None => &statements.due,
        };
        client.query(statement, &parameters).await
    });
    let mut rows: Vec<Row> = asked.await?.answers.into_iter().flatten().collect();
    rows.sort_by_cached_key(|row| (get::<i64>(row, "ready").ok(), stored_key(row)));
    rows.truncate(limit.min(MAX_LIST));
    // Skip unreadable rows. Lists and `verify-store` report them.
    Ok(rows.iter().filter_map(|row| due_of(row).ok()).collect())
}

/// Keeps the first sessions of each project.
fn limit_projects(due: &mut Vec<DueSession>, max_per_project: usize) {
    let mut of_project: HashMap<ProjectId, usize> = HashMap::new();
    due.retain(|due| {
        let seen = of_project.entry(due.key.project.clone()).or_default();
        *seen += 1;
        *seen <= max_per_project
    });
}

/// Implements [`crate::WorkQueue::due`]. A short queue is read in the order of an index, and the
/// limit per project is applied here. The more expensive query per project is used only if the queue
/// exceeds one list. Sessions of a node that is away are left out.
pub(super) async fn due(
    nodes: &Nodes,
    budget: RetryBudget,
    worker: DueQuery<'_>,
    now: Timestamp,
    limit: usize,
) -> Result<Vec<DueSession>, StoreError> {
    let each = worker.max_per_project;
    if each >= limit {
        // No project can exceed its limit.
        return in_order(nodes, budget, worker, (now, limit), None).await;
    }
    let mut due = in_order(nodes, budget, worker, (now, MAX_LIST), None).await?;
    // Otherwise the list is complete, or no project can exceed its limit.
    if due.len() == MAX_LIST && each < MAX_LIST {
        due = in_order(nodes, budget, worker, (now, limit), Some(each)).await?;
    }
    limit_projects(&mut due, each);
    due.truncate(limit);
    Ok(due)
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
    retry!(budget, _, {
        let client = pool.durable_client().await?;
        let statement = &pool.statements().claim;
        let parameters: [&(dyn ToSql + Sync); 6] = [
            &stored, &lease.owner, &now, &length, &LONGEST_LEASE_MS, &LONGEST_WAIT_MS,
        ];
        client.call(statement, &parameters).await
    })
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
    retry!(budget, _, {
        let client = pool.durable_client().await?;
        let statement = &pool.statements().claim_duty;
        client
            .call(statement, &[&duty, &lease.owner, &now, &length])
            .await
    })
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
    retry!(budget, _, {
        let client = pool.durable_client().await?;
        let statement = &pool.statements().release;
        client
            .call(statement, &[&stored, &owner, &says_due, &due])
            .await
    })
}
