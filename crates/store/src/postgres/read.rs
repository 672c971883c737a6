//! What is read of sessions.

use bytes::Bytes;
use palimpsest_core::ids::{ProjectId, Revision, SessionKey, Timestamp};
use tokio_postgres::Row;

use super::pool::Pool;
use super::retry::{Budget, retry};
use super::{error, names};
use crate::{Frame, Head, Lease, MAX_LIST, Position, Snapshot, SnapshotMark, StoreError};

/// A number that the database keeps and that is never below zero.
pub(super) fn unsigned(row: &Row, column: &str) -> Result<u64, StoreError> {
    let number: i64 = get(row, column)?;
    u64::try_from(number).map_err(|_| StoreError::Read(format!("{column} is below zero")))
}

pub(super) fn get<'a, T: tokio_postgres::types::FromSql<'a>>(
    row: &'a Row,
    column: &str,
) -> Result<T, StoreError> {
    row.try_get(column)
        .map_err(|error| StoreError::Read(error.to_string()))
}

fn head_of(row: &Row) -> Result<(SessionKey, Head), StoreError> {
    let key = names::parse(get(row, "key")?)?;
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
    let head = Head {
        revision: Revision::new(unsigned(row, "revision")?),
        incarnation: unsigned(row, "incarnation")?,
        token: unsigned(row, "token")?,
        summary: Bytes::copy_from_slice(get(row, "summary")?),
        snapshot,
        log_bytes,
        blob_bytes: unsigned(row, "blob_bytes")?,
        tail_bytes: log_bytes.saturating_sub(unsigned(row, "snapshot_log_bytes")?),
        due: due.map(Timestamp::from_millis),
        lease: lease_of(row)?,
    };
    Ok((key, head))
}

pub(super) fn lease_of(row: &Row) -> Result<Option<Lease>, StoreError> {
    let owner: Option<String> = get(row, "lease_owner")?;
    let until: Option<i64> = get(row, "lease_until")?;
    Ok(owner.zip(until).map(|(owner, until)| Lease {
        owner,
        until: Timestamp::from_millis(until),
    }))
}

/// See [`crate::SessionLog::head`].
pub(super) async fn head(
    pool: &Pool,
    budget: Budget,
    key: &SessionKey,
) -> Result<Option<Head>, StoreError> {
    let stored = names::key(key);
    let row = retry!(budget, _, {
        let client = pool.client().await?;
        client.query_opt(&pool.statements().head, &[&stored]).await
    })?;
    row.map(|row| Ok(head_of(&row)?.1)).transpose()
}

/// What is under a name.
pub(super) struct Stands {
    pub(super) position: Position,
    pub(super) is_deleted: bool,
}

/// What is under a name, deleted or not.
pub(super) async fn stands(
    pool: &Pool,
    budget: Budget,
    key: &SessionKey,
) -> Result<Option<Stands>, StoreError> {
    let stored = names::key(key);
    let row = retry!(budget, _, {
        let client = pool.client().await?;
        client
            .query_opt(&pool.statements().stands, &[&stored])
            .await
    })?;
    row.map(|row| {
        let deleted_at: Option<i64> = get(&row, "deleted_at")?;
        Ok(Stands {
            position: Position {
                incarnation: unsigned(&row, "incarnation")?,
                revision: Revision::new(unsigned(&row, "revision")?),
                token: 0,
            },
            is_deleted: deleted_at.is_some(),
        })
    })
    .transpose()
}

/// See [`crate::SessionLog::read`].
pub(super) async fn frames(
    pool: &Pool,
    budget: Budget,
    (key, after): (&SessionKey, Position),
    max_bytes: usize,
) -> Result<Vec<Frame>, StoreError> {
    let Ok(from) = error::number(after.revision.get()) else {
        // Nothing has so many events.
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
    let mut next = None;
    rows.iter()
        .map(|row| {
            let (last, events) = (unsigned(row, "last")?, unsigned(row, "events")?);
            let first = (last + 1).saturating_sub(events);
            let is_whole = events > 0 && next.is_none_or(|next| next == first);
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

/// See [`crate::SessionLog::snapshot`].
pub(super) async fn snapshot(
    pool: &Pool,
    budget: Budget,
    key: &SessionKey,
    incarnation: u64,
) -> Result<Option<Snapshot>, StoreError> {
    let stored = names::key(key);
    let number = error::number(incarnation)?;
    let row = retry!(budget, _, {
        let client = pool.client().await?;
        let statement = &pool.statements().snapshot;
        client.query_opt(statement, &[&stored, &number]).await
    })?;
    row.map(|row| {
        Ok(Snapshot {
            at: Revision::new(unsigned(&row, "at")?),
            bytes: Bytes::copy_from_slice(get(&row, "bytes")?),
        })
    })
    .transpose()
}

/// As many as one list has at most.
pub(super) fn limited(limit: usize) -> i64 {
    i64::try_from(limit.min(MAX_LIST)).unwrap_or(i64::MAX)
}

/// See [`crate::SessionLog::list`].
pub(super) async fn list(
    pool: &Pool,
    budget: Budget,
    project: Option<&ProjectId>,
    after: Option<&SessionKey>,
    limit: usize,
) -> Result<Vec<(SessionKey, Head)>, StoreError> {
    let (from, to) = names::range(project);
    let from = after
        .map(names::key)
        .map_or(from.clone(), |it| it.max(from));
    let limit = limited(limit);
    let rows = retry!(budget, _, {
        let client = pool.client().await?;
        let statement = &pool.statements().list;
        client.query(statement, &[&from, &to, &limit]).await
    })?;
    rows.iter().map(head_of).collect()
}
