//! The folders above a local blob, made durable too.
//!
//! `object_store` syncs the folders that it creates. It does not sync those that it finds, though
//! another put may have created them a moment ago, or a process that was killed before it synced them.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::{fmt, io};

/// How many folders are remembered before all are forgotten: forgetting costs a sync.
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

    /// Where a blob's file is.
    pub(super) fn file(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// Syncs every folder from the root to the blob's that is not known to be durable.
    pub(super) fn sync(&self, path: &str) -> io::Result<()> {
        let mut dir = self.root.clone();
        for part in Path::new(path).parent().unwrap_or(Path::new("")) {
            let name = dir.join(part);
            if !self.lock().contains(&name) {
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

    /// Empty folders go with their last blob: what was known of them is no longer true.
    pub(super) fn forget(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashSet<PathBuf>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
