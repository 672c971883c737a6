//! Cleanup of leases from an earlier process. The store has a single process, so all leases are
//! orphaned when it opens. The sessions become ready again, regardless of the clock.

use ::sled::{Batch, Db, Result};

use super::keys;

/// The maximum number of sessions in one batch.
const STEP: usize = 128;

/// Ends the leases of all sessions and tombstones. The change is not synced. If it is lost, the next
/// start repeats it.
pub(super) fn end_all(db: &Db) -> Result<()> {
    let leased: Vec<_> = db.scan_prefix(keys::LEASED_PREFIX).keys().collect();
    for some in leased.chunks(STEP) {
        let mut batch = Batch::default();
        for found in some {
            let found = found.as_ref().map_err(Clone::clone)?;
            // The marker is removed in any case, even if the head is unreadable.
            batch.remove(found);
            let Some(key) = keys::parse_leased(found) else {
                continue;
            };
            // Skip an unreadable head. The next reader reports it.
            let head = keys::head(&key);
            let value = db.get(&head)?;
            let Some(mut record) = value.and_then(|value| keys::decode_record(&value)) else {
                continue;
            };
            if let Some(ready) = record.ready_at() {
                batch.remove(keys::due(ready, &key));
            }
            record.lease = None;
            if let Some(ready) = record.ready_at() {
                batch.insert(keys::due(ready, &key), &[]);
            }
            batch.insert(head, keys::encode_record(&record));
        }
        db.apply_batch(batch)?;
    }
    for pair in db.scan_prefix(keys::TOMBSTONE_PREFIX) {
        let (key, value) = pair?;
        let tombstone = keys::decode_tombstone(&key, &value);
        if let Some(mut tombstone) = tombstone.filter(|it| it.lease.is_some()) {
            tombstone.lease = None;
            db.insert(key, keys::encode_tombstone(&tombstone))?;
        }
    }
    Ok(())
}
