//! Reads of sessions: heads, frames, snapshots and lists.

use std::sync::Arc;

use bytes::Bytes;
use palimpsest_core::ids::{ProjectId, Revision, SessionKey, Timestamp};
use tokio_postgres::Row;

use super::error::PgError;
use super::nodes::{Nodes, Part, Question};
use super::pool::{Client, Pool};
use super::retry::{RetryBudget, retry};
use super::row::{get, unsigned};
use super::{error, names};
use crate::{
    Frame, Lease, MAX_LIST, Position, RowPage, SessionHead, SnapshotMark, StoreError,
    StoredSnapshot,
};

fn head_of(row: &Row) -> Result<SessionHead, StoreError> {
    let at: Option<i64> = get(row, "snapshot_at")?;
    let snapshot = match at {
        Some(_) => Some(SnapshotMark {
            at: Revision::new(unsigned(row, "snapshot_at")?),
            bytes: unsigned(row, "snapshot_bytes")?,
        }),
        None => None,
    };
    let log_bytes = unsigned(row, "log_bytes")?;
    let due: Option<i64> = get(row, "due")?;
    Ok(SessionHead {
        revision: Revision::new(unsigned(row, "revision")?),
        incarnation: unsigned(row, "incarnation")?,
        token: unsigned(row, "token")?,
        list_row: Bytes::copy_from_slice(get(row, "summary")?),
        snapshot,
        log_bytes,
        blob_bytes: unsigned(row, "blob_bytes")?,
        tail_bytes: log_bytes.saturating_sub(unsigned(row, "snapshot_log_bytes")?),
        due: due.map(Timestamp::from_millis),
        lease: lease_of(row)?,
    })
}

pub(super) fn lease_of(row: &Row) -> Result<Option<Lease>, StoreError> {
    let owner: Option<String> = get(row, "lease_owner")?;
    let until: Option<i64> = get(row, "lease_until")?;
    Ok(owner.zip(until).map(|(owner, until)| Lease {
        owner,
        until: Timestamp::from_millis(until),
    }))
}

/// Implements [`crate::SessionLog::head`].
pub(super) async fn head(
    pool: &Pool,
    budget: RetryBudget,
    key: &SessionKey,
) -> Result<Option<SessionHead>, StoreError> {
    let stored = names::key(key);
    let row = retry!(budget, _, {
        let client = pool.client().await?;
        client.query_opt(&pool.statements().head, &[&stored]).await
    })?;
    row.as_ref().map(head_of).transpose()
}

#[derive(Debug, Clone, Copy)]
pub(super) struct RowState {
    pub(super) position: Position,
    pub(super) is_deleted: bool,
}

/// Reads a session's row, deleted or not. It uses the caller's connection, so that a rejected caller
/// learns the reason without waiting for another one.
pub(super) async fn position(
    client: &Client,
    pool: &Pool,
    stored: &str,
) -> Result<Option<RowState>, PgError> {
    let row = client
        .query_opt(&pool.statements().stands, &[&stored])
        .await?;
    let Some(row) = row else {
        return Ok(None);
    };
    let deleted_at: Option<i64> = get(&row, "deleted_at")?;
    Ok(Some(RowState {
        position: Position {
            incarnation: unsigned(&row, "incarnation")?,
            revision: Revision::new(unsigned(&row, "revision")?),
            // Callers report the revision only, so the statement does not read the token.
            token: 0,
        },
        is_deleted: deleted_at.is_some(),
    }))
}

/// Implements [`crate::SessionLog::read`].
pub(super) async fn frames(
    pool: &Pool,
    budget: RetryBudget,
    (key, after): (&SessionKey, Position),
    max_bytes: usize,
) -> Result<Vec<Frame>, StoreError> {
    let Ok(from) = error::number(after.revision.get()) else {
        // No session has this many events.
        return Ok(Vec::new());
    };
    let stored = names::key(key);
    let (number, token) = (
        error::number(after.incarnation)?,
        error::number(after.token)?,
    );
    let most = i64::try_from(max_bytes).unwrap_or(i64::MAX);
    let rows = retry!(budget, _, {
        let client = pool.client().await?;
        let statement = &pool.statements().frames;
        client
            .query(statement, &[&stored, &number, &from, &most, &token])
            .await
    })?;
    // Every frame must continue the one before it. Otherwise a row is missing and the session is damaged.
    let mut next = None;
    rows.iter()
        .map(|row| {
            let (last, events) = (unsigned(row, "last")?, unsigned(row, "events")?);
            let first = (last + 1).saturating_sub(events);
            let is_whole = events > 0 && next.is_none_or(|next| next == first);
            // The first frame may begin before the position, but it must contain the next revision.
            let joins = next.is_some() || first <= after.revision.get() + 1;
            let events = u32::try_from(events).ok().filter(|_| is_whole && joins);
            let events = events.ok_or_else(|| StoreError::Damaged {
                key: key.clone(),
                detail: format!("the frame that ends at {last} does not follow the one before it"),
            })?;
            next = Some(last + 1);
            Ok(Frame {
                first: Revision::new(first),
                events,
                bytes: Bytes::copy_from_slice(get(row, "bytes")?),
            })
        })
        .collect()
}

/// Implements [`crate::SessionLog::snapshot`].
pub(super) async fn snapshot(
    pool: &Pool,
    budget: RetryBudget,
    key: &SessionKey,
    incarnation: u64,
) -> Result<Option<StoredSnapshot>, StoreError> {
    let stored = names::key(key);
    let number = error::number(incarnation)?;
    let row = retry!(budget, _, {
        let client = pool.client().await?;
        let statement = &pool.statements().snapshot;
        client.query_opt(statement, &[&stored, &number]).await
    })?;
    row.map(|row| {
        Ok(StoredSnapshot {
            at: Revision::new(unsigned(&row, "at")?),
            bytes: Bytes::copy_from_slice(get(&row, "bytes")?),
        })
    })
    .transpose()
}

/// Limits a page to the maximum size of a list.
pub(super) fn clamp_limit(limit: usize) -> i64 {
    i64::try_from(limit.min(MAX_LIST)).unwrap_or(i64::MAX)
}

/// Returns the stored key of a row, to sort rows of several nodes. An unreadable key comes first.
pub(super) fn stored_key(row: &Row) -> String {
    get(row, "key").unwrap_or_default()
}

/// Implements [`crate::SessionLog::list_rows`].
pub(super) async fn rows(
    nodes: &Nodes,
    budget: RetryBudget,
    project: Option<&ProjectId>,
    after: Option<&SessionKey>,
    limit: usize,
) -> Result<RowPage, StoreError> {
    let (from, to) = names::range(project);
    let mut from = after
        .map(names::key)
        // A start before the range belongs to another project and is ignored.
        .map_or(from.clone(), |it| it.max(from));
    let limit = limit.min(MAX_LIST);
    let mut listing = RowPage::default();
    loop {
        let wanted = limit - listing.rows.len();
        let (start, end, most) = (&from, &to, clamp_limit(wanted));
        let asked = nodes.ask(budget, Question::EXACT, move |part: Arc<Part>| async move {
            let client = part.lists.client().await?;
            let statement = &part.statements.list;
            client.query(statement, &[start, end, &most]).await
        });
        let asked = asked.await?;
        for node in asked.left_out {
            if !listing.left_out.contains(&node) {
                listing.left_out.push(node);
            }
        }
        let mut rows: Vec<Row> = asked.answers.into_iter().flatten().collect();
        rows.sort_by_cached_key(stored_key);
        rows.truncate(wanted);
        for row in &rows {
            let Ok(key) = names::parse(get(row, "key")?) else {
                listing.nameless += 1;
                continue;
            };
            let head = head_of(row).map_err(|error| StoreError::Damaged {
                key: key.clone(),
                detail: error.to_string(),
            });
            listing.rows.push((key, head));
        }
        // Unreadable names do not count towards the limit, so another page may be needed.
        match rows.last() {
            Some(last) if rows.len() == wanted && listing.rows.len() < limit => {
                from = get(last, "key")?;
            }
            _ => return Ok(listing),
        }
    }
}
