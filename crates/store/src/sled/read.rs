//! Reads of stored records, with checks of their consistency.

use std::collections::HashMap;
use std::ops::Bound;

use ::sled::{Db, IVec};
use bytes::{Bytes, BytesMut};
use palimpsest_core::ids::{ProjectId, Revision, SessionKey, Timestamp};

use super::keys::{self, OBJECT_HEADER, ObjectHeader};
use super::shared::Shared;
use super::space::full_disk_reason;
use crate::file_intents::IntentCollector;
use crate::head_record::HeadRecord;
use crate::{
    DueSession, FileIntent, Frame, IntentPage, MAX_FRAME_BYTES, MAX_LIST, Position, RowPage,
    SessionHead, StoreError, StoredSnapshot, Tombstone,
};

pub(super) fn failed(error: &::sled::Error) -> StoreError {
    match full_disk_reason(error) {
        Some(why) => StoreError::OutOfSpace(why),
        None => StoreError::Read(error.to_string()),
    }
}

fn damaged(key: &SessionKey, detail: impl Into<String>) -> StoreError {
    StoreError::Damaged {
        key: key.clone(),
        detail: detail.into(),
    }
}

/// Returns a head from the tree, durable or not.
pub(super) fn record(db: &Db, key: &SessionKey) -> Result<Option<HeadRecord>, StoreError> {
    let Some(value) = db.get(keys::head(key)).map_err(|e| failed(&e))? else {
        return Ok(None);
    };
    match keys::decode_record(&value) {
        Some(record) => Ok(Some(record)),
        None => Err(damaged(key, "its head cannot be read")),
    }
}

/// Returns the header of the first frame that contains a revision after `after`. The caller ensures
/// that such a frame exists.
pub(super) fn first_frame_after(
    db: &Db,
    key: &SessionKey,
    incarnation: u64,
    after: u64,
) -> Result<ObjectHeader, StoreError> {
    let first = frame_of(db, key, incarnation, after + 1)?;
    let chunk = keys::chunk(&keys::frame(incarnation, first), 0);
    let value = db.get(chunk).map_err(|e| failed(&e))?;
    value
        .and_then(|value| ObjectHeader::decode(&value))
        .ok_or_else(|| damaged(key, format!("the frame at {first} has no beginning")))
}

/// Returns the first revision of the frame that contains `revision`.
fn frame_of(db: &Db, key: &SessionKey, incarnation: u64, revision: u64) -> Result<u64, StoreError> {
    // Frames have no gaps, so the last key up to this revision belongs to the frame that contains it.
    let from = keys::frame(incarnation, 0);
    let until = keys::chunk(&keys::frame(incarnation, revision), u32::MAX);
    let found = db.range(from..=until).keys().next_back();
    let found = found.transpose().map_err(|e| failed(&e))?;
    found
        .and_then(|key| keys::parse_frame(&key))
        .ok_or_else(|| damaged(key, format!("no frame contains revision {revision}")))
}

type Pairs<'a> = &'a mut dyn Iterator<Item = ::sled::Result<(IVec, IVec)>>;

/// Reads the chunks of one object and advances the iterator past them. The header determines the number
/// of chunks, so that no other record is taken for a part of the object.
fn object(key: &SessionKey, prefix: &[u8], pairs: Pairs) -> Result<(u32, Bytes), StoreError> {
    let missing = || damaged(key, "a part of it is missing");
    let mut next = |index: u32| {
        let (found, value) = pairs.next().ok_or_else(missing)?.map_err(|e| failed(&e))?;
        if found != keys::chunk(prefix, index) {
            return Err(missing());
        }
        Ok(value)
    };
    let value = next(0)?;
    let header = ObjectHeader::decode(&value).ok_or_else(missing)?;
    let len = header.len as usize;
    // Check the size before the allocation, because a damaged header may contain any number.
    if len > MAX_FRAME_BYTES {
        return Err(damaged(key, "a part of it is too large to be true"));
    }
    let mut bytes = BytesMut::with_capacity(len);
    // The header was decoded from this chunk, so the chunk is at least as long.
    bytes.extend_from_slice(&value[OBJECT_HEADER..]);
    let mut index = 0;
    while bytes.len() < len {
        index += 1;
        bytes.extend_from_slice(&next(index)?);
    }
    if bytes.len() != len {
        return Err(damaged(key, "a part of it has the wrong size"));
    }
    Ok((header.events, bytes.freeze()))
}

/// Reads data that belongs to a session's head. Missing data means that the session was deleted or its
/// snapshot replaced during the read, and the read is retried. If the head is unchanged, the session is
/// damaged.
fn consistent<T>(
    shared: &Shared,
    key: &SessionKey,
    incarnation: u64,
    read: impl Fn(&HeadRecord) -> Result<T, StoreError>,
) -> Result<Option<T>, StoreError> {
    let mut head = shared.record(key)?;
    loop {
        let Some(record) = head.filter(|record| record.incarnation == incarnation) else {
            return Ok(None);
        };
        let result = read(&record);
        if !matches!(result, Err(StoreError::Damaged { .. })) {
            return result.map(Some);
        }
        // A concurrent deletion or a new snapshot changes the head. Only an unchanged head proves damage.
        let now = shared.record(key)?;
        if now.as_ref() == Some(&record) {
            return result.map(Some);
        }
        head = now;
    }
}

/// Implements [`crate::SessionLog::head`].
pub(super) fn head(shared: &Shared, key: &SessionKey) -> Result<Option<SessionHead>, StoreError> {
    Ok(shared.record(key)?.map(|record| record.head()))
}

/// Implements [`crate::SessionLog::read`].
pub(super) fn frames(
    shared: &Shared,
    key: &SessionKey,
    after: Position,
    max_bytes: usize,
) -> Result<Vec<Frame>, StoreError> {
    let frames = consistent(shared, key, after.incarnation, |record| {
        frames_of(&shared.db()?, key, record, after.revision.get(), max_bytes)
    })?;
    Ok(frames.unwrap_or_default())
}

fn frames_of(
    db: &Db,
    key: &SessionKey,
    record: &HeadRecord,
    after: u64,
    max_bytes: usize,
) -> Result<Vec<Frame>, StoreError> {
    let mut frames: Vec<Frame> = Vec::new();
    if after >= record.revision {
        return Ok(frames);
    }
    // The range ends at the durable head, so frames that are applied but not durable are not returned.
    let mut first = frame_of(db, key, record.incarnation, after + 1)?;
    let from = keys::frame(record.incarnation, first);
    let until = keys::frame(record.incarnation, record.revision + 1);
    let mut pairs = db.range(from..until);
    let mut bytes = 0;
    while first <= record.revision {
        let prefix = keys::frame(record.incarnation, first);
        let (events, frame) = object(key, &prefix, &mut pairs)?;
        // A frame without events would loop for ever, and the first frame must contain the next revision.
        if events == 0 || (frames.is_empty() && first + u64::from(events) <= after + 1) {
            return Err(damaged(
                key,
                format!("no frame contains revision {}", after + 1),
            ));
        }
        bytes += frame.len();
        if !frames.is_empty() && bytes > max_bytes {
            break;
        }
        frames.push(Frame {
            first: Revision::new(first),
            events,
            bytes: frame,
        });
        first += u64::from(events);
        if bytes >= max_bytes {
            break;
        }
    }
    Ok(frames)
}

/// Implements [`crate::SessionLog::snapshot`].
pub(super) fn snapshot(
    shared: &Shared,
    key: &SessionKey,
    incarnation: u64,
) -> Result<Option<StoredSnapshot>, StoreError> {
    let snapshot = consistent(shared, key, incarnation, |record| {
        let Some(mark) = record.snapshot else {
            return Ok(None);
        };
        let prefix = keys::snapshot(record.incarnation, mark.version);
        let (_, bytes) = object(key, &prefix, &mut shared.db()?.scan_prefix(&prefix))?;
        Ok(Some(StoredSnapshot {
            at: Revision::new(mark.at),
            bytes,
        }))
    })?;
    Ok(snapshot.flatten())
}

/// Implements [`crate::SessionLog::list_rows`].
pub(super) fn rows(
    shared: &Shared,
    project: Option<&ProjectId>,
    after: Option<&SessionKey>,
    limit: usize,
) -> Result<RowPage, StoreError> {
    let prefix = keys::heads(project);
    // A start before the prefix belongs to another project and is ignored.
    let begin = match after.map(keys::head) {
        Some(after) if after >= prefix => Bound::Excluded(after),
        _ => Bound::Included(prefix.clone()),
    };
    let mut listing = RowPage::default();
    for found in shared.db()?.range((begin, Bound::Unbounded)).keys() {
        let found = found.map_err(|e| failed(&e))?;
        if listing.rows.len() >= limit.min(MAX_LIST) || !found.starts_with(&prefix) {
            break;
        }
        // Report the row instead of hiding it or failing the whole list.
        let Some(key) = keys::parse_head(&found) else {
            listing.nameless += 1;
            continue;
        };
        // The scan includes applied changes. Only the durable head decides whether the session is listed.
        match shared.record(&key) {
            Ok(Some(record)) => listing.rows.push((key, Ok(record.head()))),
            Ok(None) => {}
            Err(error @ StoreError::Damaged { .. }) => listing.rows.push((key, Err(error))),
            Err(error) => return Err(error),
        }
    }
    Ok(listing)
}

/// Skips the queue entry of a damaged session, so that other sessions are processed. Lists and
/// `verify-store` report the damage.
fn skip_damaged<T>(read: Result<Option<T>, StoreError>) -> Result<Option<T>, StoreError> {
    match read {
        Err(StoreError::Damaged { .. }) => Ok(None),
        read => read,
    }
}

/// Implements [`crate::WorkQueue::due`].
pub(super) fn due(
    shared: &Shared,
    now: Timestamp,
    limit: usize,
    each: usize,
) -> Result<Vec<DueSession>, StoreError> {
    let mut ready = Vec::new();
    let mut of_project: HashMap<ProjectId, usize> = HashMap::new();
    let (db, now) = (shared.db()?, now.as_millis());
    let waiting = db.range(keys::due_until(now)).keys();
    // Times that only a wrong clock can have set count as due.
    let astray = db.range(keys::due_after(now)).keys();
    for found in waiting.chain(astray) {
        let found = found.map_err(|e| failed(&e))?;
        if ready.len() >= limit.min(MAX_LIST) {
            break;
        }
        // An unreadable queue entry names no session that could be worked on.
        let Some((time, key)) = keys::parse_due(&found) else {
            continue;
        };
        let taken = of_project.entry(key.project.clone()).or_default();
        // Skipped entries remain in the queue for the next query.
        if *taken >= each {
            continue;
        }
        // As in `rows`: an entry that contradicts the durable head belongs to a group that is not durable yet.
        let is_this = |r: &HeadRecord| r.ready_at() == Some(time) && r.is_ready(now);
        let Some(record) = skip_damaged(shared.record(&key))?.filter(is_this) else {
            continue;
        };
        *taken += 1;
        ready.push(DueSession {
            key,
            // `is_ready` requires a due time, so the fallback is never used.
            at: Timestamp::from_millis(record.due.unwrap_or(time)),
            revision: Revision::new(record.revision),
        });
    }
    Ok(ready)
}

/// Returns a tombstone from the tree, durable or not.
pub(super) fn stored_tombstone(db: &Db, key: &SessionKey) -> Result<Option<Tombstone>, StoreError> {
    let stored = keys::tombstone(key);
    let Some(value) = db.get(&stored).map_err(|e| failed(&e))? else {
        return Ok(None);
    };
    match keys::decode_tombstone(&stored, &value) {
        Some(tombstone) => Ok(Some(tombstone)),
        None => Err(damaged(key, "its tombstone cannot be read")),
    }
}

/// Returns the intent of a file from the tree, durable or not.
pub(super) fn stored_intent(
    db: &Db,
    key: &SessionKey,
    file: &str,
) -> Result<Option<FileIntent>, StoreError> {
    let stored = keys::intent(key, file);
    let Some(value) = db.get(&stored).map_err(|e| failed(&e))? else {
        return Ok(None);
    };
    match keys::decode_intent(&stored, &value) {
        Some(intent) => Ok(Some(intent)),
        None => Err(damaged(key, "the intent of a file cannot be read")),
    }
}

/// Implements [`crate::FileIntents::list_intents`].
pub(super) fn intents(
    shared: &Shared,
    after: Option<&(SessionKey, Box<str>)>,
    limit: usize,
) -> Result<IntentPage, StoreError> {
    let begin = match after {
        Some((key, file)) => Bound::Excluded(keys::intent(key, file)),
        None => Bound::Included(keys::INTENT_PREFIX.to_vec()),
    };
    let mut found = IntentCollector::default();
    for pair in shared.db()?.range((begin, Bound::Unbounded)) {
        let (key, value) = pair.map_err(|e| failed(&e))?;
        if found.len() >= limit.min(MAX_LIST) || !key.starts_with(keys::INTENT_PREFIX) {
            break;
        }
        found.push(keys::decode_intent(&key, &value));
    }
    Ok(found.page())
}

/// Implements [`crate::Tombstones::tombstone`]. A head that is still visible means that the deletion is
/// not durable yet.
pub(super) fn tombstone(
    shared: &Shared,
    key: &SessionKey,
) -> Result<Option<Tombstone>, StoreError> {
    let found = stored_tombstone(&shared.db()?, key)?;
    Ok(match found {
        Some(_) if shared.record(key)?.is_some() => None,
        found => found,
    })
}

/// Implements [`crate::Tombstones::tombstones`].
pub(super) fn tombstones(
    shared: &Shared,
    after: Option<&SessionKey>,
    limit: usize,
) -> Result<Vec<Tombstone>, StoreError> {
    let begin = match after.map(keys::tombstone) {
        Some(after) => Bound::Excluded(after),
        None => Bound::Included(keys::TOMBSTONE_PREFIX.to_vec()),
    };
    let mut found = Vec::new();
    for pair in shared.db()?.range((begin, Bound::Unbounded)) {
        let (key, value) = pair.map_err(|e| failed(&e))?;
        if found.len() >= limit.min(MAX_LIST) || !key.starts_with(keys::TOMBSTONE_PREFIX) {
            break;
        }
        let Some(tombstone) = keys::decode_tombstone(&key, &value) else {
            tracing::error!(
                "a tombstone cannot be read, so the data of its session stays. Run `palimpsest verify-store`"
            );
            continue;
        };
        // As in `tombstone`: a head that is still visible means that the deletion is not durable.
        if shared.record(&tombstone.key)?.is_none() {
            found.push(tombstone);
        }
    }
    Ok(found)
}
