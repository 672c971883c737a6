//! Storage usage per project and in total. Each is one small row, written in the batch of the change
//! that it counts. The rows are therefore consistent with the sessions after a crash.

use std::collections::HashMap;
use std::time::Duration;

use ::sled::{Batch, Db};
use palimpsest_core::ids::{ProjectId, SessionKey};

use super::group::MAX_BATCH;
use super::keys;
use crate::head_record::HeadRecord;
use crate::{StorageUsage, StoreError};

/// The changes of the usage by one batch.
#[derive(Debug, Default)]
pub(super) struct UsageDeltas(HashMap<ProjectId, UsageDelta>);

#[derive(Debug, Default, Clone, Copy)]
struct UsageDelta {
    sessions: i64,
    bytes: i64,
}

impl UsageDeltas {
    /// Adds the difference between a session's old and new record.
    pub(super) fn note(
        &mut self,
        key: &SessionKey,
        old: Option<&HeadRecord>,
        new: Option<&HeadRecord>,
    ) {
        let bytes = |record: Option<&HeadRecord>| {
            let bytes = record.map_or(0, HeadRecord::stored_bytes);
            i64::try_from(bytes).unwrap_or(i64::MAX)
        };
        let sessions = i64::from(new.is_some()) - i64::from(old.is_some());
        let bytes = bytes(new).saturating_sub(bytes(old));
        // Most changes of heads, such as leases, do not affect the usage.
        if sessions == 0 && bytes == 0 {
            return;
        }
        let delta = self.0.entry(key.project.clone()).or_default();
        delta.sessions += sessions;
        delta.bytes = delta.bytes.saturating_add(bytes);
    }

    /// Returns the updated rows and clears the deltas.
    pub(super) fn rows(&mut self, db: &Db) -> ::sled::Result<Vec<(Vec<u8>, [u8; 16])>> {
        let mut all = UsageDelta::default();
        let mut rows = Vec::with_capacity(self.0.len() + 1);
        for (project, delta) in self.0.drain() {
            all.sessions += delta.sessions;
            all.bytes = all.bytes.saturating_add(delta.bytes);
            rows.push((keys::usage(&project), delta));
        }
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        rows.push((keys::USAGE_KEY.to_vec(), all));
        let changed = rows.into_iter().map(|(key, delta)| {
            let before = decode(db.get(&key)?.as_deref());
            // A damaged row counts as zero, so a difference may exceed it.
            let after = StorageUsage {
                sessions: before.sessions.saturating_add_signed(delta.sessions),
                bytes: before.bytes.saturating_add_signed(delta.bytes),
                age: Duration::ZERO,
            };
            Ok((key, encode(after)))
        });
        changed.collect()
    }
}

fn encode(usage: StorageUsage) -> [u8; 16] {
    let mut row = [0; 16];
    row[..8].copy_from_slice(&usage.sessions.to_be_bytes());
    row[8..].copy_from_slice(&usage.bytes.to_be_bytes());
    row
}

/// Decodes a row. A missing or invalid row counts as zero.
fn decode(row: Option<&[u8]>) -> StorageUsage {
    let Some(Ok(row)) = row.map(<[u8; 16]>::try_from) else {
        return StorageUsage::default();
    };
    let mut halves = [[0; 8]; 2];
    halves.as_flattened_mut().copy_from_slice(&row);
    let [sessions, bytes] = halves.map(u64::from_be_bytes);
    StorageUsage {
        sessions,
        bytes,
        // The row is updated together with the sessions, so it is current.
        age: Duration::ZERO,
    }
}

/// Implements [`crate::Store::usage`].
pub(super) fn read(db: &Db, project: Option<&ProjectId>) -> Result<StorageUsage, StoreError> {
    let key = project.map_or_else(|| keys::USAGE_KEY.to_vec(), keys::usage);
    let row = db.get(key).map_err(|e| StoreError::Read(e.to_string()))?;
    Ok(decode(row.as_deref()))
}

/// Counts all sessions of a store from an earlier release, which has no usage rows.
pub(super) fn count_all(db: &Db) -> ::sled::Result<()> {
    // An interrupted count starts again.
    for key in db.scan_prefix(keys::USAGE_PREFIX).keys() {
        db.remove(key?)?;
    }
    db.remove(keys::USAGE_KEY)?;
    let mut deltas = UsageDeltas::default();
    for pair in db.scan_prefix(keys::heads(None)) {
        let (key, value) = pair?;
        // Skip an unreadable head. Reads of that session report it, and it cannot be deleted any more.
        if let (Some(key), Some(record)) = (keys::parse_head(&key), keys::decode_record(&value)) {
            deltas.note(&key, None, Some(&record));
        }
    }
    let (mut batch, mut bytes) = (Batch::default(), 0);
    for (key, row) in deltas.rows(db)? {
        bytes += key.len() + row.len();
        batch.insert(key, &row);
        // Limit the batch size, because sled blocks readers while it applies a batch.
        if bytes > MAX_BATCH / 2 {
            db.apply_batch(std::mem::take(&mut batch))?;
            bytes = 0;
        }
    }
    db.apply_batch(batch)
}
