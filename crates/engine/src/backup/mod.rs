//! Backups: the whole store in a folder or a bucket, taken from a running server and restored into an empty store.
//! `docs/backup.md` describes the format.
//!
//! A backup consists of the files that its manifest names. The manifest is written last, so files without a manifest
//! are no backup. Every file is verified against its digest in the manifest when it is read.

mod manifest;
mod prune;
mod restore;
mod session_copy;
mod tip_reader;

use palimpsest_store::blobs::BlobError;
use palimpsest_store::{StoreError, StoreId, error_chain};

pub use self::manifest::{
    FORMAT, LogFile, ManifestEntry, ManifestHeader, ManifestReader, ManifestWriter, ResultFile,
    latest, list, log_path, result_path,
};
pub use self::prune::{Pruned, prune};
pub use self::restore::{RestoreFilter, RestoreReport, RestoreTarget, check, restore};
pub use self::session_copy::{PART_BYTES, SessionCopy, SessionCopyEnd, StoredFile};

/// An error while a backup is read, restored or pruned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The archive of the backup cannot be read or written.
    #[error("{}", error_chain(.0))]
    Archive(#[from] BlobError),
    /// The target store cannot be written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The archive has no backup, or none of this name.
    #[error("there is no backup {0}: `palimpsest backup --list` shows those that there are")]
    Missing(String),
    /// A file was not written by a backup, is incomplete, or changed later.
    #[error("{path} is damaged: {what}; use an earlier backup")]
    Damaged {
        /// The damaged file.
        path: String,
        /// The kind of the damage.
        what: String,
    },
    /// The backup was made by a newer release with a newer format.
    #[error("the backup has format {0}, this release reads up to {max}: use a newer one", max = manifest::FORMAT)]
    Newer(u32),
    /// The latest backup of the archive was made of another store.
    #[error(
        "the latest backup {backup} is of the store {found}, and the server has the store {given}: give \
         another place, or take a full backup with `--full` if this store replaces that one"
    )]
    OtherStore {
        /// The name of the backup.
        backup: String,
        /// The store that was backed up.
        found: String,
        /// The store of the server.
        given: String,
    },
    /// The stored results at the target belong to another store than the backup.
    #[error(
        "the results at the target belong to the store {found}, and the backup is of the store {given}: \
         restore without `--keep-blobs` to a place that is empty"
    )]
    OtherResults {
        /// The store that the marker of the target names.
        found: StoreId,
        /// The store that was backed up.
        given: StoreId,
    },
    /// The target is not empty.
    #[error("{0}")]
    Occupied(String),
    /// A file operation failed.
    #[error("failed to {doing} {path}: {source}")]
    Io {
        /// The operation.
        doing: &'static str,
        /// The path.
        path: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
}

fn damaged(path: &str, what: impl Into<String>) -> BackupError {
    BackupError::Damaged {
        path: path.to_owned(),
        what: what.into(),
    }
}
