//! The folder that contains the store of a run.

use std::env;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use tempfile::TempDir;

/// The file of a folder that its run locks.
const LOCK: &str = "run.lock";
/// The file for the log lines of a run.
const LOG: &str = "run.log";
/// The maximum number of runs at the same time in the folder of the user.
const MAX_RUNS: u32 = 64;

/// The folder of a run. No other run uses the folder while this value exists.
#[derive(Debug)]
pub(super) struct RunFolder {
    path: PathBuf,
    /// False if a run without `--data-dir` finds the sessions of this folder.
    is_named: bool,
    // The lock ends when the file is closed.
    _lock: Option<File>,
    temporary: Option<TempDir>,
}

impl RunFolder {
    /// Opens a temporary folder.
    pub(super) fn temporary() -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("palimpsest-run-")
            .tempdir()
            .context("cannot create a temporary folder: set TMPDIR to a writable folder")?;
        Ok(Self {
            path: folder.path().to_owned(),
            is_named: true,
            _lock: None,
            temporary: Some(folder),
        })
    }

    /// Opens a folder that the user chose.
    pub(super) fn named(path: &Path) -> anyhow::Result<Self> {
        let Some(lock) = lock(path)? else {
            bail!(
                "cannot use {}: another `palimpsest run` uses it. End that run, or choose another --data-dir",
                path.display()
            );
        };
        Ok(Self::locked(path.to_owned(), true, lock))
    }

    /// Opens the first free folder of the user. The embedded store belongs to one process, so runs at the same time have
    /// different folders.
    pub(super) fn of_user() -> anyhow::Result<Self> {
        let base = user_folder()?;
        for number in 0..MAX_RUNS {
            let path = base.join(number.to_string());
            // The folder 0 is tried first, so single runs always find their earlier sessions.
            if let Some(lock) = lock(&path)? {
                return Ok(Self::locked(path, number > 0, lock));
            }
        }
        bail!(
            "cannot use {}: {MAX_RUNS} runs use its folders. Choose another folder with --data-dir",
            base.display()
        )
    }

    fn locked(path: PathBuf, is_named: bool, lock: File) -> Self {
        Self {
            path,
            is_named,
            _lock: Some(lock),
            temporary: None,
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Creates the file for the log lines. It contains those of the latest run.
    pub(super) fn log(&self) -> anyhow::Result<File> {
        let path = self.path.join(LOG);
        File::create(&path).with_context(|| format!("cannot create {}", path.display()))
    }

    /// Returns the option with which another run uses this folder. `None` for a folder that does not persist.
    pub(super) fn option(&self) -> Option<String> {
        if self.temporary.is_some() {
            return None;
        }
        let option = format!("--data-dir {} ", self.path.display());
        Some(if self.is_named { option } else { String::new() })
    }

    /// Removes the folder if it is temporary.
    pub(super) fn close(self) -> anyhow::Result<()> {
        let removed = self.temporary.map_or(Ok(()), TempDir::close);
        removed.context("failed to remove the temporary folder of the run: delete it by hand")
    }
}

/// Creates and locks a folder. Returns `None` if another run uses it.
fn lock(path: &Path) -> anyhow::Result<Option<File>> {
    let cannot = || format!("cannot use {} for the sessions", path.display());
    create_private(path).with_context(cannot)?;
    let file = File::options()
        .create(true)
        .append(true)
        .open(path.join(LOCK))
        .with_context(cannot)?;
    // The system releases the lock when the process ends, so a killed run does not block the folder.
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        // Another error, such as a file system without locks, must not look like a used folder.
        Err(TryLockError::Error(error)) => Err(error).with_context(cannot),
    }
}

/// Creates a folder and its parents. Only the user can read them, because they contain conversations.
fn create_private(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
}

/// Returns the folder of the user's runs, by the XDG base directories.
fn user_folder() -> anyhow::Result<PathBuf> {
    // The specification ignores relative paths.
    let absolute = |name: &str| {
        let path = env::var_os(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let data = absolute("XDG_DATA_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local").join("share")));
    let data =
        data.context("cannot find the home folder: set HOME, or choose a folder with --data-dir")?;
    Ok(data.join("palimpsest").join("runs"))
}
