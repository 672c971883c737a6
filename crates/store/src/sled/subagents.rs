//! The index of subagents. Each subagent has a record under its parent, with the incarnation of the subagent.

use std::ops::Bound;

use ::sled::{Batch, Db};
use palimpsest_core::ids::SessionKey;

use super::group::MAX_BATCH;
use super::keys;
use super::read::failed;
use super::shared::Shared;
use crate::encoding::decode_list_row;
use crate::{MAX_LIST, StoreError};

/// Implements [`crate::SubagentIndex::subagents`].
pub(super) fn find(
    shared: &Shared,
    parents: &[SessionKey],
    after: Option<&SessionKey>,
    limit: usize,
) -> Result<Vec<SessionKey>, StoreError> {
    let limit = limit.min(MAX_LIST);
    let mut found = Vec::new();
    for parent in parents {
        // One parent may have all of the first `limit` subagents, so each parent is read up to the limit.
        found.extend(of_parent(shared, parent, after, limit)?);
    }
    found.sort_unstable();
    found.truncate(limit);
    Ok(found)
}

fn of_parent(
    shared: &Shared,
    parent: &SessionKey,
    after: Option<&SessionKey>,
    limit: usize,
) -> Result<Vec<SessionKey>, StoreError> {
    let prefix = keys::subagents(parent);
    let begin = match after {
        Some(after) => Bound::Excluded(keys::subagent(parent, after)),
        None => Bound::Included(prefix.clone()),
    };
    let mut found = Vec::new();
    for pair in shared.db()?.range((begin, Bound::Unbounded)) {
        let (stored, incarnation) = pair.map_err(|e| failed(&e))?;
        if found.len() >= limit || !stored.starts_with(&prefix) {
            break;
        }
        let Some(key) = keys::parse_subagent(&stored, &prefix) else {
            continue;
        };
        match shared.record(&key) {
            // The session has no durable head yet while the group of its creation waits for its sync.
            Ok(Some(record)) if record.incarnation.to_be_bytes() == *incarnation => found.push(key),
            Ok(_) | Err(StoreError::Damaged { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Adds the subagents of a store from an earlier release, which has no index of them.
pub(super) fn index_all(db: &Db) -> ::sled::Result<()> {
    let (mut batch, mut bytes) = (Batch::default(), 0);
    for pair in db.scan_prefix(keys::heads(None)) {
        let (head, value) = pair?;
        // Skip an unreadable head. Reads of that session report it.
        let record = keys::decode_record(&value);
        let Some((key, mut record)) = keys::parse_head(&head).zip(record) else {
            continue;
        };
        let info = decode_list_row(&record.list_row).ok();
        let Some(parent) = info.and_then(|info| info.parent) else {
            continue;
        };
        let entry = keys::subagent(&parent, &key);
        record.parent = Some(parent);
        let value = keys::encode_record(&record);
        bytes += head.len() + value.len() + entry.len();
        batch.insert(head, value);
        batch.insert(entry, &record.incarnation.to_be_bytes());
        // Limit the batch size, because sled blocks readers while it applies a batch.
        if bytes > MAX_BATCH / 2 {
            db.apply_batch(std::mem::take(&mut batch))?;
            bytes = 0;
        }
    }
    db.apply_batch(batch)
}
