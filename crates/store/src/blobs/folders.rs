//! Work on a local folder of blobs: on blocking threads, and durably.
//!
//! `object_store` syncs folders that it creates, but not those that it finds. Another put may have
//! created such a folder a moment ago, or a process that was killed before its sync.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::{fmt, io};

use tokio::task::spawn_blocking;

use super::error::BlobError;

/// The number of remembered folders at which all are forgotten. A forgotten folder costs one more sync.
const MAX_KNOWN: usize = 10_000;

pub(super) struct Folders {
    root: PathBuf,
    known: Mutex<HashSet<PathBuf>>,
}

impl fmt::Debug for Folders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Folders")
            .field("root", &self.root)
            .finish_non_exhaustive()
    }
}

impl Folders {
    pub(super) fn new(root: PathBuf) -> Self {
        Self {
            root,
            known: Mutex::default(),
        }
    }

    pub(super) fn file(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// Syncs the folders from the root to the blob, unless they are known to be durable.
    pub(super) fn sync(&self, path: &str) -> io::Result<()> {
        let mut dir = self.root.clone();
        for part in Path::new(path).parent().unwrap_or(Path::new("")) {
            let name = dir.join(part);
            // The lock is not held during the sync. Two puts may then sync one folder twice, which is harmless.
            if !self.lock().contains(&name) {
                // Syncing the parent makes the entry of this folder durable.
                crate::fs::sync_dir(&dir)?;
                let mut known = self.lock();
                if known.len() >= MAX_KNOWN {
                    known.clear();
                }
                known.insert(name.clone());
            }
            dir = name;
        }
        Ok(())
    }

    /// Forgets all folders. Empty folders are removed with their last blob, so a remembered one may be new
    /// and not durable.
    pub(super) fn forget(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashSet<PathBuf>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs work on the file system on a blocking thread.
pub(super) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, BlobError> {
    let done = spawn_blocking(work).await;
    let done = done.map_err(io::Error::other).flatten();
    done.map_err(BlobError::Folder)
}
