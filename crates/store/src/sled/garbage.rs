//! What is to be removed: named by a journal in the tree itself, so that a crash forgets none of it.
//!
//! A write that needs several batches names itself here in its first one and takes its name back in
//! its last; what a deletion or a new snapshot makes unreachable is named in the same batch.

use ::sled::{Batch, Db, Result};

use super::keys;

/// So few that a batch of removals, each of which may touch another page, does not hold up appends.
const STEP: usize = 256;

/// Removes some of what lies under a prefix, and its name from the journal with the last of it. True
/// when nothing is left. Not synced: until it is, the journal still names it.
pub(super) fn remove_some(db: &Db, prefix: &[u8]) -> Result<bool> {
    let mut batch = Batch::default();
    let mut removed = 0;
    for key in db.scan_prefix(prefix).keys().take(STEP) {
        batch.remove(key?);
        removed += 1;
    }
    let done = removed < STEP;
    if done {
        batch.remove(keys::garbage(prefix));
    }
    db.apply_batch(batch)?;
    Ok(done)
}

/// Removes what a crash left of single objects. It must be gone before anything is written, because
/// the next write of that object uses the same keys.
pub(super) fn remove_objects(db: &Db) -> Result<()> {
    for prefix in journal(db)? {
        if keys::is_object(&prefix) {
            while !remove_some(db, &prefix)? {}
        }
    }
    Ok(())
}

/// All that is to be removed.
pub(super) fn journal(db: &Db) -> Result<Vec<Vec<u8>>> {
    let mut prefixes = Vec::new();
    for key in db.scan_prefix(keys::GARBAGE_PREFIX).keys() {
        prefixes.extend(keys::parse_garbage(&key?).map(<[u8]>::to_vec));
    }
    Ok(prefixes)
}
