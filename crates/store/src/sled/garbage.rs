//! Garbage collection with a journal in the tree, so that a crash loses no pending removal.
//!
//! A write of several batches adds its own prefix to the journal in the first batch and removes it in
//! the last. A deletion or a new snapshot adds the unreachable prefixes in its own batch.

use ::sled::{Batch, Db, Result};

use super::keys;

/// The maximum number of records in one removal batch. Each removal may touch another page, and a
/// larger batch would delay appends.
const STEP: usize = 256;

/// Removes some of the records under a prefix. The last batch also removes the journal entry. Returns
/// true if nothing is left.
///
/// The removal is not synced. The journal keeps the entry until it is.
pub(super) fn collect_some(db: &Db, prefix: &[u8]) -> Result<bool> {
    let mut batch = Batch::default();
    let mut removed = 0;
    for key in db.scan_prefix(prefix).keys().take(STEP) {
        batch.remove(key?);
        removed += 1;
    }
    // Fewer keys than the limit mean that the scan reached the end of the prefix.
    let done = removed < STEP;
    if done {
        batch.remove(keys::garbage(prefix));
    }
    db.apply_batch(batch)?;
    Ok(done)
}

/// Removes the incomplete objects that a crash left. They must be removed before any write, because the
/// next write of the same object uses the same keys.
pub(super) fn remove_objects(db: &Db) -> Result<()> {
    for prefix in journal(db)? {
        // Garbage of whole sessions can wait: its incarnation is never used again.
        if keys::is_object(&prefix) {
            while !collect_some(db, &prefix)? {}
        }
    }
    Ok(())
}

pub(super) fn journal(db: &Db) -> Result<Vec<Vec<u8>>> {
    let mut prefixes = Vec::new();
    for key in db.scan_prefix(keys::GARBAGE_PREFIX).keys() {
        prefixes.extend(keys::parse_garbage(&key?).map(<[u8]>::to_vec));
    }
    Ok(prefixes)
}
