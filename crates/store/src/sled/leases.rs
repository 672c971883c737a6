//! Leases of earlier processes. Nobody else has the store open, so whoever held them is gone: they end when it is opened,
//! and what they held up is ready again, whatever the clock shows.

use ::sled::{Batch, Db, Result};

use super::keys;

/// Changes of one batch, so that it stays small.
const STEP: usize = 128;

/// Ends all leases, of sessions and of tombstones. Not synced: until it is, the next start does it again.
pub(super) fn end_all(db: &Db) -> Result<()> {
    let leased: Vec<_> = db.scan_prefix(keys::LEASED_PREFIX).keys().collect();
    for some in leased.chunks(STEP) {
        let mut batch = Batch::default();
        for found in some {
            let found = found.as_ref().map_err(Clone::clone)?;
            batch.remove(found);
            let Some(key) = keys::parse_leased(found) else {
                continue;
            };
            // One that cannot be read is whoever's who reads it next.
            let head = keys::head(&key);
            let value = db.get(&head)?;
            let Some(mut record) = value.and_then(|value| keys::decode_record(&value)) else {
                continue;
            };
            if let Some(ready) = record.ready() {
                batch.remove(keys::due(ready, &key));
            }
            record.lease = None;
            if let Some(ready) = record.ready() {
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
