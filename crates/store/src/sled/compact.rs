//! Offline compaction: copies a store into a new folder. sled's files never shrink, and a copy contains
//! only live records.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use ::sled::{Batch, Db, IVec};
use sha2::{Digest, Sha256};

use super::folder_swap::swap_folder_with;
use super::group::MAX_BATCH;
use super::options::SledOptions;
use super::{files, garbage, keys, open};
use crate::fs as durable;
use crate::{StoreError, crash_point};

/// The result of a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactReport {
    /// The number of copied sessions.
    pub sessions: u64,
    /// The number of copied records of all kinds.
    pub records: u64,
    /// The size of the copied keys and values, in bytes.
    pub bytes: u64,
    /// The size of the old data file, in bytes.
    pub from_disk_bytes: u64,
    /// The size of the new data file, in bytes.
    pub to_disk_bytes: u64,
}

/// The counts and the checksum of a store's records. Stores with the same records have equal digests.
#[derive(PartialEq, Eq)]
struct StoreDigest {
    sessions: u64,
    records: u64,
    bytes: u64,
    digest: [u8; 32],
}

/// Copies the closed store in `from` into the folder `to` and verifies the copy. The copy then replaces
/// the store, which is kept as `old`. Both folders are locked until the replacement is complete.
///
/// Fails if `to` is not empty.
pub fn compact_store(from: &Path, to: &Path, old: &Path) -> Result<CompactReport, StoreError> {
    compact_store_with((from, to, old), durable::exchange_paths)
}

fn compact_store_with(
    (from, to, old): (&Path, &Path, &Path),
    exchange: impl Fn(&Path, &Path) -> io::Result<()>,
) -> Result<CompactReport, StoreError> {
    let (compacted, _locks) = copy_store(from, to)?;
    crash_point("compact.copied");
    swap_folder_with(to, from, Some(old), exchange)?;
    crash_point("compact.placed");
    Ok(compacted)
}

/// Copies and verifies the store. Returns the report and the locks of both folders. The locks stay
/// valid when the folders are renamed.
fn copy_store(from: &Path, to: &Path) -> Result<(CompactReport, [File; 2]), StoreError> {
    // Refuse to mix the copy with existing files.
    let occupied = to
        .read_dir()
        .is_ok_and(|mut entries| entries.next().is_some());
    if occupied {
        return Err(StoreError::Io {
            doing: "write a copy into",
            path: to.to_owned(),
            source: io::ErrorKind::DirectoryNotEmpty.into(),
        });
    }
    // Opening would create an empty store in a missing folder.
    if !from.join("db").exists() {
        return Err(StoreError::Io {
            doing: "find a store in",
            path: from.to_owned(),
            source: io::ErrorKind::NotFound.into(),
        });
    }
    let (source, source_lock) = open::open(&SledOptions::new(from))?;
    let (mut target, target_lock) = open::open(&SledOptions::new(to))?;
    // Garbage is not copied, so it is excluded from the comparison too.
    let garbage = garbage::journal(&source.db).map_err(|e| failed(&e))?;
    copy(&source.db, &target.db, &garbage).map_err(|e| failed(&e))?;
    target.db.flush().map_err(|e| failed(&e))?;
    let io = |source| StoreError::Io {
        doing: "sync",
        path: to.to_owned(),
        source,
    };
    target.files.sync().map_err(io)?;
    // The sequence number of the source is one of the copied records. A mark ahead of it would count as a loss.
    target.files.write_mark(source.sequence).map_err(io)?;
    target.files.sync_mark().map_err(io)?;
    files::sync_after_open(to).map_err(io)?;
    // Compare all records before the copy replaces the store.
    let copied = content(&target.db, &[]).map_err(|e| failed(&e))?;
    if copied != content(&source.db, &garbage).map_err(|e| failed(&e))? {
        return Err(StoreError::Failed("the copy differs from the store".into()));
    }
    let compacted = CompactReport {
        sessions: copied.sessions,
        records: copied.records,
        bytes: copied.bytes,
        from_disk_bytes: disk_bytes(from),
        to_disk_bytes: disk_bytes(to),
    };
    // sled writes to its paths when it closes, so close both stores before the folders are renamed.
    drop((source, target));
    Ok((compacted, [source_lock, target_lock]))
}

fn failed(error: &::sled::Error) -> StoreError {
    StoreError::Read(error.to_string())
}

/// Returns all records in key order, except garbage and its journal.
fn live_records<'a>(
    db: &Db,
    garbage: &'a [Vec<u8>],
) -> impl Iterator<Item = ::sled::Result<(IVec, IVec)>> + 'a {
    db.iter().filter(move |pair| {
        let Ok((key, _)) = pair else { return true };
        keys::parse_garbage(key).is_none() && !garbage.iter().any(|prefix| key.starts_with(prefix))
    })
}

fn copy(from: &Db, to: &Db, garbage: &[Vec<u8>]) -> ::sled::Result<()> {
    let mut batch = Batch::default();
    let mut bytes = 0;
    for pair in live_records(from, garbage) {
        let (key, value) = pair?;
        bytes += key.len() + value.len();
        batch.insert(key, value);
        // A record adds a key and at most one value, so the batch stays below `MAX_BATCH`.
        if bytes > MAX_BATCH - 2 * keys::MAX_VALUE {
            to.apply_batch(std::mem::take(&mut batch))?;
            // sled reuses a segment only after its replacement was flushed. Without this flush, the copy was up to
            // 50 % larger than its source.
            to.flush()?;
            bytes = 0;
        }
    }
    to.apply_batch(batch)
}

fn content(db: &Db, garbage: &[Vec<u8>]) -> ::sled::Result<StoreDigest> {
    let mut digest = Sha256::new();
    let (mut sessions, mut records, mut bytes) = (0, 0, 0);
    for pair in live_records(db, garbage) {
        let (key, value) = pair?;
        for part in [&key, &value] {
            // Hash the lengths too, or different splits of the same bytes would have equal digests.
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
            bytes += part.len() as u64;
        }
        records += 1;
        sessions += u64::from(keys::parse_head(&key).is_some());
    }
    Ok(StoreDigest {
        sessions,
        records,
        bytes,
        digest: digest.finalize().into(),
    })
}

fn disk_bytes(dir: &Path) -> u64 {
    let db: PathBuf = dir.join("db");
    db.metadata().map_or(0, |metadata| metadata.len())
}

#[cfg(test)]
mod tests {
    use std::fs::TryLockError;

    use super::*;

    fn is_locked(dir: &Path) -> bool {
        let file = File::open(dir.join("lock")).unwrap();
        matches!(file.try_lock(), Err(TryLockError::WouldBlock))
    }

    #[test]
    fn no_one_opens_a_store_while_its_compaction_replaces_it() {
        let root = tempfile::tempdir().unwrap();
        let [store, copy, old] = ["log", "log.new", "log.old"].map(|name| root.path().join(name));
        drop(open::open(&SledOptions::new(&store)).unwrap());
        let exchange = |new: &Path, current: &Path| -> io::Result<()> {
            let opened = open::open(&SledOptions::new(current));
            assert!(matches!(opened, Err(StoreError::Locked { .. })));
            assert!(is_locked(new), "the copy can be opened before the exchange");
            durable::exchange_paths(new, current)?;
            for folder in [new, current] {
                assert!(is_locked(folder), "{folder:?} can be opened in between");
            }
            Ok(())
        };
        let folders = (store.as_path(), copy.as_path(), old.as_path());
        compact_store_with(folders, exchange).unwrap();
        for folder in [&store, &old] {
            assert!(!is_locked(folder), "{folder:?} stays locked");
        }
    }
}
