//! Backups: the whole store in a folder or a bucket, taken from a running server and put back into an
//! empty one. `docs/backup.md` describes the format.
//!
//! A backup is what its manifest says, and the manifest is written last: without one nothing was
//! backed up, whatever lies there. Everything that a manifest names is checked against its digest
//! when it is read.

mod manifest;
mod prune;
mod restore;

use palimpsest_store::blobs::BlobError;
use palimpsest_store::{StoreError, error_chain};

pub use self::manifest::{
    FORMAT, LogFile, Manifest, ManifestEntry, ManifestHeader, ManifestWriter, ResultFile, latest,
    list, log_path, result_path,
};
pub use self::prune::{Pruned, prune};
pub use self::restore::{RestoreFilter, RestoreReport, RestoreTarget, check, restore};

/// An error while a backup is read, restored or pruned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The place of the backup cannot be read or written.
    #[error("{}", error_chain(.0))]
    Place(#[from] BlobError),
    /// The store that is restored into cannot be written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is no backup there, or none of that name.
    #[error("there is no backup {0}: `palimpsest backup --list` shows those that there are")]
    Missing(String),
    /// What is there was not written by a backup, or not to its end, or has changed since.
    #[error("{path} is damaged: {what}; use an earlier backup")]
    Damaged {
        /// The file.
        path: String,
        /// How.
        what: String,
    },
    /// The backup was made by a newer release.
    #[error("the backup has format {0}, this release reads up to {max}: use a newer one", max = manifest::FORMAT)]
    Newer(u32),
    /// The target is not empty.
    #[error("{0}")]
    Occupied(String),
    /// The file system.
    #[error("failed to {doing} {path}: {source}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On which path.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
}

fn damaged(path: &str, what: impl Into<String>) -> BackupError {
    BackupError::Damaged {
        path: path.to_owned(),
        what: what.into(),
    }
}
