//! The error of a read or a write of files.

use std::io;

use crate::StoreId;

/// Why a blob could not be had or kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BlobError {
    /// There is none at that path.
    #[error("there is no blob at {0}")]
    NotFound(String),
    /// The path holds other bytes than its digest says, and is left as it is.
    #[error("the blob at {0} does not hold what its name says")]
    Damaged(String),
    /// The file is larger than any that is read whole.
    #[error("{path} has {bytes} bytes, more than is ever read: make it shorter, or delete it")]
    TooLarge {
        /// Where it is.
        path: String,
        /// Its size.
        bytes: u64,
    },
    /// The place does not let this process keep anything there, and will not until somebody sees to it.
    #[error(
        "blobs cannot be kept there: {0}; its bucket has to be there, and the credentials need the right to put, \
         get, list and delete objects in it"
    )]
    Refused(String),
    /// The files there belong to another log.
    #[error(
        "the files there belong to the store {found}, and this is the store {ours}: nothing is read as its own, written or \
         removed there. Give each store a place of its own (blobs.url), or open the log that these files belong to"
    )]
    OtherStore {
        /// The store that the marker names.
        found: StoreId,
        /// The store that was opened.
        ours: StoreId,
    },
    /// There are files that belong to no log, and the log is empty: they are another one's.
    #[error(
        "there are files of sessions, and the store {ours} has no session: they belong to another store. Open the log that \
         they belong to, restore its backup (with --keep-blobs), or give this store a place of its own (blobs.url)"
    )]
    Unmarked {
        /// The store that was opened.
        ours: StoreId,
    },
    /// The marker says nothing that this release understands.
    #[error("the marker {path} cannot be read: {reason}. Put it back from a backup of the files")]
    Marker {
        /// Where it is.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The place was opened for reading alone.
    #[error(
        "the blobs were opened for reading: bind them to a store before anything is written there"
    )]
    ReadOnly,
    /// A part of the path is not one.
    #[error("{0:?} cannot be a part of a blob's path")]
    Name(String),
    /// The configured location cannot be used.
    #[error("blobs cannot be kept at {location}: {reason}")]
    Location {
        /// What was configured.
        location: String,
        /// Why not.
        reason: String,
    },
    /// The store behind it failed; the call may be tried again.
    #[error("failed to reach the blob store")]
    Store(#[source] object_store::Error),
    /// A local folder could not be synced, so that what was written may not last; the call may be
    /// tried again.
    #[error("failed to sync a folder of the blob store")]
    Folder(#[source] io::Error),
}

impl BlobError {
    /// True if trying again does not help until somebody has changed something.
    pub fn is_final(&self) -> bool {
        matches!(
            self,
            Self::Refused(_)
                | Self::OtherStore { .. }
                | Self::Unmarked { .. }
                | Self::Marker { .. }
                | Self::Location { .. }
        )
    }
}

impl BlobError {
    /// The same error, or [`Self::Refused`] for a place that lets nobody in with these credentials or is missing.
    #[must_use]
    pub(super) fn or_refused(self) -> Self {
        match self {
            Self::Store(
                error @ (object_store::Error::PermissionDenied { .. }
                | object_store::Error::Unauthenticated { .. }
                | object_store::Error::NotFound { .. }),
            ) => Self::Refused(bucket_error_text(&error)),
            error => error,
        }
    }
}

/// What a bucket answered, on one line, as far as it fits in a message.
pub(super) fn bucket_error_text(error: &object_store::Error) -> String {
    let text = error.to_string();
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    words.chars().take(400).collect()
}

pub(crate) fn lost(error: object_store::Error, path: &str) -> BlobError {
    match error {
        object_store::Error::NotFound { .. } => BlobError::NotFound(path.to_owned()),
        error => BlobError::Store(error),
    }
}

/// Whether a bucket refused a write for its condition; those that know none do not say so in one way.
pub(super) fn knows_no_conditions(error: &object_store::Error) -> bool {
    match error {
        object_store::Error::NotImplemented { .. } | object_store::Error::NotSupported { .. } => {
            true
        }
        object_store::Error::Generic { source, .. } => {
            let reason = crate::error_chain(&**source);
            reason.contains("501") || reason.contains("NotImplemented")
        }
        _ => false,
    }
}
