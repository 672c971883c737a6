//! How a store's folder is opened: locked, checked, and moved aside if it cannot be trusted.

use std::fs::{self, File, TryLockError};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use ::sled::{Config, Db, Mode};

use super::files::{self, Files};
use super::{SledOptions, garbage, keys, space, usage};
use crate::StoreError;
use crate::fs as durable;

/// The layout of `keys`. Raised when an older release could not read what this one writes.
pub(super) const FORMAT: u64 = 2;
/// The layout before projects' rows.
const WITHOUT_USAGE: u64 = 1;

const LOCK_TRIES: u32 = 40;
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// A folder that is open and checked.
pub(super) struct Opened {
    pub(super) db: Db,
    pub(super) files: Files,
    pub(super) sequence: u64,
    pub(super) incarnation: u64,
}

/// Why a folder that sled opened is not to be used.
enum Defect {
    Corrupt(String),
    Refused(StoreError),
}

impl From<::sled::Error> for Defect {
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
            _ => Self::Refused(match space::was_no_room(&error) {
                Some(why) => StoreError::Full(why),
                None => StoreError::Read(error.to_string()),
            }),
        }
    }
}

/// Opens a folder, or creates it.
pub(super) fn open(options: &SledOptions) -> Result<(Opened, File), StoreError> {
    let dir = options.dir.as_path();
    refuse_after_quarantine(dir)?;
    durable::create_dir(dir).map_err(io_error("create the folder", dir))?;
    // Half an opening could pass for damage.
    space::room(dir, space::TO_OPEN).map_err(StoreError::Full)?;
    let lock = lock(dir)?;
    Ok((open_locked(options)?, lock))
}

/// Opens a folder whose lock the caller has.
pub(super) fn open_locked(options: &SledOptions) -> Result<Opened, StoreError> {
    let dir = options.dir.as_path();
    files::prepare(dir).map_err(io_error("prepare the folder", dir))?;
    let opened = match catch_unwind(AssertUnwindSafe(|| open_sled(options))) {
        Ok(opened) => opened,
        Err(_) => Err(Defect::Corrupt("sled panicked".into())),
    };
    let db = match opened {
        Ok(db) => db,
        Err(defect) => return Err(reject(dir, defect)),
    };
    let mut files = Files::open(dir).map_err(io_error("open the files of", dir))?;
    match check(&db, &mut files, dir) {
        Ok((sequence, incarnation)) => Ok(Opened {
            db,
            files,
            sequence,
            incarnation,
        }),
        Err(defect) => {
            drop(db);
            Err(reject(dir, defect))
        }
    }
}

fn io_error<'a>(doing: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> StoreError + 'a {
    move |source| StoreError::Io {
        doing,
        path: path.to_owned(),
        source,
    }
}

/// The folder's own lock. sled locks `db` too, but only once it may already have touched other files.
fn lock(dir: &Path) -> Result<File, StoreError> {
    let path = dir.join("lock");
    let file = File::create(&path).map_err(io_error("create", &path))?;
    for _ in 0..LOCK_TRIES {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => thread::sleep(LOCK_PAUSE),
            Err(TryLockError::Error(e)) => return Err(io_error("lock", &path)(e)),
        }
    }
    Err(StoreError::Locked { dir: dir.into() })
}

/// Opens sled's part. Its lock may outlive the last user of a store in this process by a moment, and
/// it says so only in words.
fn open_sled(options: &SledOptions) -> Result<Db, Defect> {
    let config = Config::new()
        .path(&options.dir)
        .cache_capacity(options.cache_bytes)
        .mode(Mode::HighThroughput)
        .use_compression(false)
        .flush_every_ms(Some(options.flush_every_ms));
    for _ in 0..LOCK_TRIES {
        match config.open() {
            Err(::sled::Error::Io(e)) if e.to_string().contains("could not acquire lock") => {
                thread::sleep(LOCK_PAUSE);
            }
            opened => return Ok(opened?),
        }
    }
    Err(Defect::Refused(StoreError::Locked {
        dir: options.dir.clone(),
    }))
}

fn number(db: &Db, key: &[u8]) -> Result<Option<u64>, Defect> {
    let Some(value) = db.get(key)? else {
        return Ok(None);
    };
    let bytes = <[u8; 8]>::try_from(&*value)
        .map_err(|_| Defect::Corrupt("a counter has the wrong size".into()))?;
    Ok(Some(u64::from_be_bytes(bytes)))
}

/// Checks that the store is ours and whole, finishes what a crash left half done, and makes durable
/// what opening wrote.
fn check(db: &Db, files: &mut Files, dir: &Path) -> Result<(u64, u64), Defect> {
    let format = number(db, keys::FORMAT_KEY)?;
    let sequence = number(db, keys::SEQUENCE_KEY)?.unwrap_or(0);
    let incarnation = number(db, keys::INCARNATION_KEY)?.unwrap_or(0);
    let refused = |source| Defect::Refused(io_error("sync", dir)(source));
    // sled ends its log at the first record that it cannot read and starts there, silently.
    let mark = files.read_mark().map_err(refused)?;
    if let Some(mark) = mark.filter(|mark| *mark > sequence) {
        return Err(Defect::Corrupt(format!(
            "the log ends at batch {sequence}, but batch {mark} was acknowledged"
        )));
    }
    match format {
        None if db.is_empty() => {
            db.insert(keys::FORMAT_KEY, &FORMAT.to_be_bytes())?;
        }
        None => return Err(Defect::Corrupt("it holds data, but no format".into())),
        Some(found) if found > FORMAT => {
            return Err(Defect::Refused(StoreError::Newer {
                found,
                supported: FORMAT,
            }));
        }
        Some(_) => {}
    }
    if format == Some(WITHOUT_USAGE) {
        usage::count_all(db)?;
        db.insert(keys::FORMAT_KEY, &FORMAT.to_be_bytes())?;
    }
    garbage::remove_objects(db)?;
    db.flush()?;
    files.sync().map_err(refused)?;
    files::settle(dir).map_err(refused)?;
    Ok((sequence, incarnation))
}

/// Moves a corrupt folder aside and says so.
fn reject(dir: &Path, defect: Defect) -> StoreError {
    let detail = match defect {
        Defect::Refused(error) => return error,
        Defect::Corrupt(detail) => detail,
    };
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

fn quarantined(dir: &Path, n: u32) -> PathBuf {
    let mut name = dir.as_os_str().to_owned();
    name.push(format!(".quarantined-{n}"));
    name.into()
}

fn quarantine(dir: &Path) -> io::Result<PathBuf> {
    let kept = (1..=u32::MAX)
        .map(|n| quarantined(dir, n))
        .find(|path| !path.exists())
        .ok_or(io::ErrorKind::AlreadyExists)?;
    fs::rename(dir, &kept)?;
    durable::sync_dir(durable::parent(dir))?;
    Ok(kept)
}

/// After a quarantine the folder is missing, as it is before the first start. A supervisor that
/// restarts the process must not get an empty store that way: somebody has to decide.
fn refuse_after_quarantine(dir: &Path) -> Result<(), StoreError> {
    let kept = quarantined(dir, 1);
    if dir.exists() || !kept.exists() {
        return Ok(());
    }
    Err(StoreError::Corrupt {
        dir: dir.to_owned(),
        kept,
        detail: "an earlier start moved it aside".into(),
    })
}
