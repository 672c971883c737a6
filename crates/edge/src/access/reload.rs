//! Values that are built from files and rebuilt when the files change.
//!
//! Changes are detected by contents and not by modification times. Kubernetes replaces a mounted secret by switching a
//! symlink, and a file may change twice within one tick of its clock. Changed contents are read twice, because many
//! programs truncate a file before they write it, and the beginning of a file can be valid. Invalid contents leave the
//! last valid value in force and are logged once.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// The maximum size of a file, far above any legitimate size.
const MAX_FILE_BYTES: u64 = 64 * 1024 * 1024;

/// Time between two reads of changed contents.
const SETTLE_TIME: Duration = Duration::from_millis(200);

/// Builds a value from file contents and the previous value.
type LoadFn<T> = Box<dyn Fn(&[Vec<u8>], Option<&T>) -> Result<T, String> + Send + Sync>;

/// The reason for a failed first load.
#[derive(Debug, thiserror::Error)]
#[error("{setting} cannot be used: {reason}")]
pub struct LoadError {
    /// The setting that contains the first path.
    pub setting: &'static str,
    /// The failure. It contains nothing of the file's contents.
    pub reason: String,
}

/// A value that is built from files.
pub struct Reloadable<T> {
    setting: &'static str,
    files: Vec<PathBuf>,
    make: LoadFn<T>,
    current: RwLock<Arc<T>>,
    /// The fingerprint of the last contents that were examined, valid or not.
    seen: Mutex<[u8; 32]>,
    stale: AtomicBool,
}

impl<T> fmt::Debug for Reloadable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloaded")
            .field("setting", &self.setting)
            .field("stale", &self.stale)
            .finish_non_exhaustive()
    }
}

impl<T: Send + Sync + 'static> Reloadable<T> {
    /// Loads the value for the first time.
    ///
    /// Reads files, so it must not run on a thread that serves calls.
    pub fn load(
        setting: &'static str,
        files: Vec<PathBuf>,
        make: impl Fn(&[Vec<u8>], Option<&T>) -> Result<T, String> + Send + Sync + 'static,
    ) -> Result<Arc<Self>, LoadError> {
        let wrong = |reason| LoadError { setting, reason };
        let contents = read(&files);
        // Taken from the same read as the value, so that a change during startup is not missed.
        let seen = fingerprint(&contents);
        let contents = contents.map_err(wrong)?;
        let first = make(&contents, None).map_err(|what| wrong(in_files(&files, &what)))?;
        Ok(Arc::new(Self {
            setting,
            files,
            make: Box::new(make),
            current: RwLock::new(Arc::new(first)),
            seen: Mutex::new(seen),
            stale: AtomicBool::new(false),
        }))
    }

    /// Returns the last valid value.
    pub fn current(&self) -> Arc<T> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns true if the current contents of the files are invalid and the previous value is in force.
    pub fn is_stale(&self) -> bool {
        self.stale.load(Ordering::Relaxed)
    }

    /// Rebuilds the value if the contents of the files changed and are equal before and after `pause`. Contents that
    /// still change are left to the next check.
    fn check_for_changes(&self, pause: impl FnOnce()) {
        let found = fingerprint(&read(&self.files));
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if *seen == found {
            return;
        }
        pause();
        let contents = read(&self.files);
        if fingerprint(&contents) != found {
            return;
        }
        // Stored before the rebuild, so that invalid contents are logged once and not at every check.
        *seen = found;
        let before = self.current();
        let make = |contents: Vec<Vec<u8>>| {
            (self.make)(&contents, Some(&before)).map_err(|what| in_files(&self.files, &what))
        };
        match contents.and_then(make) {
            Ok(next) => {
                // The value is complete before the lock is taken, so no call waits while files are parsed.
                let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
                *current = Arc::new(next);
                self.stale.store(false, Ordering::Relaxed);
                tracing::info!(setting = self.setting, "reloaded changed files");
            }
            Err(what) => {
                self.stale.store(true, Ordering::Relaxed);
                tracing::error!(
                    setting = self.setting,
                    what,
                    "failed to reload changed files; the previous content stays in use"
                );
            }
        }
    }

    /// Checks the files every `every`, until `stop`.
    pub async fn watch(self: Arc<Self>, every: Duration, stop: CancellationToken) {
        while stop.run_until_cancelled(sleep(every)).await.is_some() {
            let this = Arc::clone(&self);
            // Reading may block for long. Only the next check waits for it.
            if spawn_blocking(move || this.check_for_changes(|| std::thread::sleep(SETTLE_TIME)))
                .await
                .is_err()
            {
                tracing::error!(
                    setting = self.setting,
                    "the check for changed files panicked"
                );
            }
        }
    }
}

fn read(files: &[PathBuf]) -> Result<Vec<Vec<u8>>, String> {
    let read_one = |path: &PathBuf| {
        contents(path).map_err(|error| format!("failed to read {}: {error}", path.display()))
    };
    files.iter().map(read_one).collect()
}

fn contents(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One byte more than allowed, to detect a file that is too large.
    let mut file = File::open(path)?.take(MAX_FILE_BYTES + 1);
    file.read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > MAX_FILE_BYTES {
        return Err(std::io::ErrorKind::FileTooLarge.into());
    }
    Ok(bytes)
}

/// Returns a hash of the contents, or of the read error. The length prefix prevents collisions between files.
fn fingerprint(contents: &Result<Vec<Vec<u8>>, String>) -> [u8; 32] {
    let mut hash = Sha256::new();
    match contents {
        Ok(contents) => {
            for bytes in contents {
                hash.update(bytes.len().to_be_bytes());
                hash.update(bytes);
            }
        }
        Err(error) => hash.update(error.as_bytes()),
    }
    hash.finalize().into()
}

fn in_files(files: &[PathBuf], what: &str) -> String {
    let names: Vec<_> = files
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    format!("{}: {what}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn number(contents: &[Vec<u8>], _: Option<&u32>) -> Result<u32, String> {
        let text = String::from_utf8_lossy(&contents[0]);
        text.trim()
            .parse()
            .map_err(|_| "it is no number".to_owned())
    }

    #[test]
    fn an_invalid_or_missing_file_keeps_the_last_valid_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("n");
        let load = || Reloadable::load("n_file", vec![path.clone()], number);
        assert!(
            load()
                .unwrap_err()
                .to_string()
                .starts_with("n_file cannot be used: failed to read")
        );
        fs::write(&path, "1").unwrap();
        let thing = load().unwrap();
        let now = || {
            thing.check_for_changes(|| ());
            (*thing.current(), thing.is_stale())
        };
        assert_eq!(now(), (1, false));
        fs::write(&path, "x").unwrap();
        assert_eq!(now(), (1, true));
        fs::write(&path, "2").unwrap();
        assert_eq!(now(), (2, false));
        fs::remove_file(&path).unwrap();
        assert_eq!(now(), (2, true));
        // These contents equal those of the value in force. The failed read in between has changed the fingerprint.
        fs::write(&path, "2").unwrap();
        assert_eq!(now(), (2, false));
    }

    #[test]
    fn a_half_written_file_is_not_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("n");
        fs::write(&path, "12").unwrap();
        let thing = Reloadable::load("n_file", vec![path.clone()], number).unwrap();
        fs::write(&path, "3").unwrap();
        thing.check_for_changes(|| fs::write(&path, "34").unwrap());
        assert_eq!((*thing.current(), thing.is_stale()), (12, false));
        thing.check_for_changes(|| ());
        assert_eq!(*thing.current(), 34);
    }

    #[cfg(unix)]
    #[test]
    fn a_changed_symlink_target_is_a_change() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("a"), "1").unwrap();
        fs::write(at("b"), "2").unwrap();
        symlink(at("a"), at("n")).unwrap();
        let thing = Reloadable::load("n_file", vec![at("n")], number).unwrap();
        // Kubernetes updates a mounted secret in this way: it renames a new symlink over the old one.
        symlink(at("b"), at("new")).unwrap();
        fs::rename(at("new"), at("n")).unwrap();
        thing.check_for_changes(|| ());
        assert_eq!(*thing.current(), 2);
    }
}
