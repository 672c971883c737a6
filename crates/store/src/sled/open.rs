//! Opening of a store's folder: lock it, verify it, and quarantine it if it is corrupt.

use std::fs::{self, File, TryLockError};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use ::sled::{Config, Db, Mode, fail};

use super::files::{self, DurableFiles};
use super::options::SledOptions;
use super::{folder_swap, garbage, keys, leases, space, subagents, usage};
use crate::fs as durable;
use crate::{StoreError, StoreId};

/// The version of the layout in `keys`. Raise it when older releases cannot read the layout of this
/// one.
pub(super) const FORMAT: u64 = 3;
/// The version before usage rows existed.
const WITHOUT_USAGE: u64 = 1;
/// The version before the index of subagents existed.
const WITHOUT_SUBAGENTS: u64 = 2;

const LOCK_TRIES: u32 = 40;
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// A folder that was opened and verified.
pub(super) struct OpenedStore {
    pub(super) db: Db,
    pub(super) files: DurableFiles,
    pub(super) sequence: u64,
    pub(super) incarnation: u64,
    pub(super) id: StoreId,
}

/// The reason to reject a folder that sled opened.
enum OpenDefect {
    Corrupt(String),
    Refused(StoreError),
}

impl From<::sled::Error> for OpenDefect {
    fn from(error: ::sled::Error) -> Self {
        match error {
            ::sled::Error::Corruption { .. } | ::sled::Error::ReportableBug(_) => {
                Self::Corrupt(error.to_string())
            }
            ::sled::Error::Io(ref io)
                if matches!(
                    io.kind(),
                    io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData
                ) =>
            {
                Self::Corrupt(error.to_string())
            }
            _ => Self::Refused(match space::full_disk_reason(&error) {
                Some(why) => StoreError::OutOfSpace(why),
                None => StoreError::Read(error.to_string()),
            }),
        }
    }
}

/// Opens or creates a folder and locks it.
pub(super) fn open(options: &SledOptions) -> Result<(OpenedStore, File), StoreError> {
    let dir = options.dir.as_path();
    // Both checks precede the creation of the folder, after which they would always pass.
    refuse_after_quarantine(dir)?;
    folder_swap::reject_missing_with_siblings(dir)?;
    durable::create_dir(dir).map_err(io_error("create the folder", dir))?;
    let lock = lock(dir)?;
    // An interrupted opening could look like corruption, so check the space first. A process that was
    // killed on a full disk left reserved space for this.
    space::check_free_space_to_open(dir).map_err(StoreError::OutOfSpace)?;
    let opened = open_locked(options)?;
    // Reopening in the same process does not pass here, because its own leases remain valid.
    match leases::end_all(&opened.db) {
        Ok(()) => Ok((opened, lock)),
        Err(error) => Err(quarantine_or_fail(options, error.into())),
    }
}

/// Opens a folder that the caller has locked.
pub(super) fn open_locked(options: &SledOptions) -> Result<OpenedStore, StoreError> {
    let dir = options.dir.as_path();
    files::prepare(dir).map_err(io_error("prepare the folder", dir))?;
    // sled panics on some corrupt files.
    let opened = match catch_unwind(AssertUnwindSafe(|| open_sled(options))) {
        Ok(opened) => opened,
        Err(_) => Err(OpenDefect::Corrupt("sled panicked".into())),
    };
    let db = match opened {
        Ok(db) => db,
        Err(defect) => return Err(quarantine_or_fail(options, defect)),
    };
    let mut files = DurableFiles::open(dir).map_err(io_error("open the files of", dir))?;
    match check(&db, &mut files, options) {
        Ok((sequence, incarnation, id)) => Ok(OpenedStore {
            db,
            files,
            sequence,
            incarnation,
            id,
        }),
        Err(defect) => {
            // sled must release the folder before it is renamed.
            drop(db);
            Err(quarantine_or_fail(options, defect))
        }
    }
}

pub(super) fn io_error<'a>(
    doing: &'static str,
    path: &'a Path,
) -> impl FnOnce(io::Error) -> StoreError + 'a {
    move |source| StoreError::Io {
        doing,
        path: path.to_owned(),
        source,
    }
}

/// Locks the folder for reading. Returns `None` if it has no lock file, and never creates one.
pub(super) fn lock_for_reading(dir: &Path) -> Result<Option<File>, StoreError> {
    lock_existing(dir, "lock")
}

/// Locks the folder. sled locks `db` too, but only after it may have changed other files.
fn lock(dir: &Path) -> Result<File, StoreError> {
    let path = dir.join("lock");
    for _ in 0..LOCK_TRIES {
        let file = File::create(&path).map_err(io_error("create", &path))?;
        lock_file(&file, dir, &path)?;
        // If the folder was replaced meanwhile, the lock of the new folder counts.
        if is_at(&file, &path) {
            return Ok(file);
        }
    }
    Err(StoreError::Locked { dir: dir.into() })
}

/// Waits until sled has released a closed folder. sled holds a lock on `db` until its last thread ends.
pub(super) fn wait_until_closed(dir: &Path) -> Result<(), StoreError> {
    lock_existing(dir, "db").map(drop)
}

/// Locks a file of the folder. Returns `None` if the file does not exist.
fn lock_existing(dir: &Path, name: &str) -> Result<Option<File>, StoreError> {
    let path = dir.join(name);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io_error("open", &path)(error)),
    };
    lock_file(&file, dir, &path)?;
    Ok(Some(file))
}

/// Locks an open file. Waits about 2 s for another holder.
fn lock_file(file: &File, dir: &Path, path: &Path) -> Result<(), StoreError> {
    for _ in 0..LOCK_TRIES {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => thread::sleep(LOCK_PAUSE),
            Err(TryLockError::Error(error)) => return Err(io_error("lock", path)(error)),
        }
    }
    Err(StoreError::Locked { dir: dir.into() })
}

/// Returns true if an open file is the file at `path`.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let identity = |meta: fs::Metadata| (meta.dev(), meta.ino());
    let (open, there) = (file.metadata().map(identity), path.metadata().map(identity));
    matches!((open, there), (Ok(open), Ok(there)) if open == there)
}

#[cfg(not(unix))]
fn is_at(_: &File, _: &Path) -> bool {
    true
}

/// Opens the database with sled.
///
/// While it opens a log, sled writes a new snapshot of its page table, renames it to its final name and
/// then overwrites the segments that this snapshot does not need, without a sync in between. If the
/// machine lost power then, the disk could hold the earlier snapshot without its segments. For this
/// reason, a failpoint of sled ends an opening directly after the rename. The next opening finds a
/// durable snapshot and writes none, or it ends there again.
fn open_sled(options: &SledOptions) -> Result<Db, OpenDefect> {
    let dir = options.dir.as_path();
    let config = Config::new()
        .path(dir)
        .cache_capacity(options.cache_bytes)
        .mode(Mode::HighThroughput)
        // Frames, snapshots and list rows are compressed already.
        .use_compression(false)
        // Never `None`: without its flusher, sled also stops its garbage collection.
        .flush_every_ms(Some(options.flush_every_ms));
    for _ in 0..LOCK_TRIES {
        // The failpoint applies to the whole process and loses one bit whenever it is met. Bits that
        // remain do no harm, because sled writes snapshots only while it opens a folder.
        fail::set("snap write mv post", u64::MAX);
        match config.open() {
            Err(::sled::Error::FailPoint) => files::keep_newest_snapshot(dir)
                .map_err(|error| OpenDefect::Refused(io_error("sync", dir)(error)))?,
            // The lock may outlive the last user in this process briefly. sled reports it only in the
            // text of the error.
            Err(::sled::Error::Io(e)) if e.to_string().contains("could not acquire lock") => {
                thread::sleep(LOCK_PAUSE);
            }
            opened => return Ok(opened?),
        }
    }
    Err(OpenDefect::Refused(StoreError::Locked {
        dir: options.dir.clone(),
    }))
}

fn number(db: &Db, key: &[u8]) -> Result<Option<u64>, OpenDefect> {
    let Some(value) = db.get(key)? else {
        return Ok(None);
    };
    let bytes = <[u8; 8]>::try_from(&*value)
        .map_err(|_| OpenDefect::Corrupt("a counter has the wrong size".into()))?;
    Ok(Some(u64::from_be_bytes(bytes)))
}

/// Verifies that the store is compatible and complete. Finishes work that a crash interrupted, and
/// makes all writes of the opening durable. Returns the sequence number, the last incarnation and the
/// store id.
fn check(
    db: &Db,
    files: &mut DurableFiles,
    options: &SledOptions,
) -> Result<(u64, u64, StoreId), OpenDefect> {
    let dir = options.dir.as_path();
    let format = number(db, keys::FORMAT_KEY)?;
    let sequence = number(db, keys::SEQUENCE_KEY)?.unwrap_or(0);
    let incarnation = number(db, keys::INCARNATION_KEY)?.unwrap_or(0);
    let refused = |source| OpenDefect::Refused(io_error("sync", dir)(source));
    // sled truncates its log silently at the first unreadable record. The mark reveals such a loss.
    let mark = files.read_mark().map_err(refused)?;
    if let Some(mark) = mark.filter(|mark| *mark > sequence) {
        return Err(OpenDefect::Corrupt(format!(
            "the log ends at batch {sequence}, but batch {mark} was acknowledged"
        )));
    }
    match format {
        // The mark was compared before. A log that lost all its batches is therefore not taken for a new store.
        None if db.is_empty() => {
            db.insert(keys::FORMAT_KEY, &FORMAT.to_be_bytes())?;
        }
        // The format is the first record of every store, so its loss means damage.
        None => {
            return Err(OpenDefect::Corrupt(
                "it contains data, but no format".into(),
            ));
        }
        // A newer layout must not be changed by this release.
        Some(found) if found > FORMAT => {
            return Err(OpenDefect::Refused(StoreError::Newer {
                found,
                supported: FORMAT,
            }));
        }
        Some(_) => {}
    }
    if let Some(earlier) = format.filter(|found| *found < FORMAT) {
        if earlier <= WITHOUT_USAGE {
            usage::count_all(db)?;
        }
        if earlier <= WITHOUT_SUBAGENTS {
            subagents::index_all(db)?;
        }
        // The format changes last. If a crash interrupts the changes, the next opening repeats them.
        db.insert(keys::FORMAT_KEY, &FORMAT.to_be_bytes())?;
    }
    let id = store_id(db, options.id)?;
    // Incomplete objects must be removed before the first write, which may use the same keys.
    garbage::remove_objects(db)?;
    db.flush()?;
    files.sync().map_err(refused)?;
    files::sync_after_open(dir).map_err(refused)?;
    Ok((sequence, incarnation, id))
}

/// Returns the identity of the store. A store from an earlier release gets one when it is first opened.
fn store_id(db: &Db, wanted: Option<StoreId>) -> Result<StoreId, OpenDefect> {
    if let Some(value) = db.get(keys::STORE_KEY)? {
        let bytes = <[u8; 16]>::try_from(&*value)
            .map_err(|_| OpenDefect::Corrupt("its identity has the wrong size".into()))?;
        return Ok(StoreId::from_bytes(bytes));
    }
    let new = wanted.map_or_else(StoreId::random, Ok);
    let new = new.map_err(OpenDefect::Refused)?;
    db.insert(keys::STORE_KEY, &new.to_bytes())?;
    Ok(new)
}

/// Quarantines a corrupt folder if the options allow it, and returns the error.
fn quarantine_or_fail(options: &SledOptions, defect: OpenDefect) -> StoreError {
    let dir = options.dir.as_path();
    let detail = match defect {
        OpenDefect::Refused(error) => return error,
        OpenDefect::Corrupt(detail) => detail,
    };
    // Tools that only read or verify must leave the folder in its place.
    if !options.quarantines_damaged {
        return StoreError::Corrupt {
            dir: dir.to_owned(),
            kept: dir.to_owned(),
            detail,
        };
    }
    let kept = quarantine(dir).unwrap_or_else(|error| {
        tracing::error!(dir = %dir.display(), %error, "a corrupt store could not be moved aside");
        dir.to_owned()
    });
    StoreError::Corrupt {
        dir: dir.to_owned(),
        kept,
        detail,
    }
}

fn quarantine_path(dir: &Path, n: u32) -> PathBuf {
    let mut name = dir.as_os_str().to_owned();
    name.push(format!(".quarantined-{n}"));
    name.into()
}

fn quarantine(dir: &Path) -> io::Result<PathBuf> {
    let kept = (1..=u32::MAX)
        .map(|n| quarantine_path(dir, n))
        // Never overwrite an earlier quarantined store.
        .find(|path| !path.exists())
        .ok_or(io::ErrorKind::AlreadyExists)?;
    fs::rename(dir, &kept)?;
    // Without the sync, a power loss can undo the move. The next start then moves the store again.
    let _ = durable::sync_dir(durable::parent(dir));
    Ok(kept)
}

/// Rejects a missing folder if a quarantined one exists. Otherwise a supervisor that restarts the
/// process would get an empty store. An operator must decide.
fn refuse_after_quarantine(dir: &Path) -> Result<(), StoreError> {
    let kept = quarantine_path(dir, 1);
    if dir.exists() || !kept.exists() {
        return Ok(());
    }
    Err(StoreError::Corrupt {
        dir: dir.to_owned(),
        kept,
        detail: "an earlier start moved it aside".into(),
    })
}
