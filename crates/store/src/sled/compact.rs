//! Copies a store into a fresh folder: sled's files never shrink, a copy has only what is in use.

use std::fs::File;
use std::path::{Path, PathBuf};

use ::sled::{Batch, Db, IVec};
use sha2::{Digest, Sha256};

use super::folder_swap::put_in_place;
use super::group::MAX_BATCH;
use super::options::SledOptions;
use super::{files, garbage, keys, open};
use crate::{StoreError, crash_point};

/// What a copy holds, for the report to whoever asked for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactReport {
    /// Sessions copied.
    pub sessions: u64,
    /// Records of all kinds copied.
    pub records: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// The size of the old folder's data.
    pub from_disk_bytes: u64,
    /// The size of the new folder's data.
    pub to_disk_bytes: u64,
}

/// What a pass over a store finds; two stores that are alike have equal ones.
#[derive(PartialEq, Eq)]
struct StoreDigest {
    sessions: u64,
    records: u64,
    bytes: u64,
    digest: [u8; 32],
}

/// Copies the closed store in `from` into the folder `to`, which must not exist or be empty, compares the two, and puts
/// the copy in the place of the store, which is kept as `old`. Both are locked until the copy is in its place.
pub fn compact_store(from: &Path, to: &Path, old: &Path) -> Result<CompactReport, StoreError> {
    let (compacted, _locks) = copied(from, to)?;
    crash_point("compact.copied");
    put_in_place(to, from, Some(old))?;
    crash_point("compact.placed");
    Ok(compacted)
}

/// The copy, closed, and the locks of both folders. The locks move with their folders.
fn copied(from: &Path, to: &Path) -> Result<(CompactReport, [File; 2]), StoreError> {
    let occupied = to
        .read_dir()
        .is_ok_and(|mut entries| entries.next().is_some());
    if occupied {
        return Err(StoreError::Io {
            doing: "write a copy into",
            path: to.to_owned(),
            source: std::io::ErrorKind::DirectoryNotEmpty.into(),
        });
    }
    if !from.join("db").exists() {
        return Err(StoreError::Io {
            doing: "find a store in",
            path: from.to_owned(),
            source: std::io::ErrorKind::NotFound.into(),
        });
    }
    let (source, source_lock) = open::open(&SledOptions::new(from))?;
    let (mut target, target_lock) = open::open(&SledOptions::new(to))?;
    let garbage = garbage::journal(&source.db).map_err(|e| failed(&e))?;
    copy(&source.db, &target.db, &garbage).map_err(|e| failed(&e))?;
    target.db.flush().map_err(|e| failed(&e))?;
    let io = |source| StoreError::Io {
        doing: "sync",
        path: to.to_owned(),
        source,
    };
    target.files.sync().map_err(io)?;
    target.files.write_mark(source.sequence).map_err(io)?;
    target.files.sync_mark().map_err(io)?;
    files::settle(to).map_err(io)?;
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
    // sled writes to its paths when it closes, so it closes before the paths change.
    drop((source, target));
    Ok((compacted, [source_lock, target_lock]))
}

fn failed(error: &::sled::Error) -> StoreError {
    StoreError::Read(error.to_string())
}

/// All records in the order of their keys, without garbage and its journal.
fn live<'a>(
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
    for pair in live(from, garbage) {
        let (key, value) = pair?;
        bytes += key.len() + value.len();
        batch.insert(key, value);
        if bytes > MAX_BATCH - 2 * keys::MAX_VALUE {
            to.apply_batch(std::mem::take(&mut batch))?;
            // sled takes a segment into use again only once what replaced it is flushed: without this
            // the copy was up to half as large again as the store that it was made of.
            to.flush()?;
            bytes = 0;
        }
    }
    to.apply_batch(batch)
}

fn content(db: &Db, garbage: &[Vec<u8>]) -> ::sled::Result<StoreDigest> {
    let mut digest = Sha256::new();
    let (mut sessions, mut records, mut bytes) = (0, 0, 0);
    for pair in live(db, garbage) {
        let (key, value) = pair?;
        for part in [&key, &value] {
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
