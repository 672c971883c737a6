//! Errors of the blob store.

use std::io;

use crate::StoreId;

/// An error of a blob operation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BlobError {
    /// No blob exists at this path.
    #[error("there is no blob at {0}")]
    NotFound(String),
    /// The content does not match its digest. The blob is not changed.
    #[error("the blob at {0} does not hold what its name says")]
    Damaged(String),
    /// The file exceeds the maximum size for reading.
    #[error("{path} has {bytes} bytes, more than is ever read: make it shorter, or delete it")]
    TooLarge {
        /// The path of the file.
        path: String,
        /// The size of the file, in bytes.
        bytes: u64,
    },
    /// The location rejects the operations of this process. An operator must correct its settings or
    /// rights.
    #[error(
        "blobs cannot be kept there: {0}; its bucket has to be there, and the credentials need the right to put, \
         get, list and delete objects in it"
    )]
    Refused(String),
    /// The files belong to another log.
    #[error(
        "the files there belong to the store {found}, and this is the store {ours}: nothing is read as its own, written or \
         removed there. Give each store a place of its own (blobs.url), or open the log that these files belong to"
    )]
    OtherStore {
        /// The store id in the marker.
        found: StoreId,
        /// The id of the store that was opened.
        ours: StoreId,
    },
    /// The location contains files without a marker, and the log is empty. The files belong to another log.
    #[error(
        "there are files of sessions, and the store {ours} has no session: they belong to another store. Open the log that \
         they belong to, restore its backup (with --keep-blobs), or give this store a place of its own (blobs.url)"
    )]
    Unmarked {
        /// The id of the store that was opened.
        ours: StoreId,
    },
    /// The marker is unreadable for this release.
    #[error("the marker {path} cannot be read: {reason}. Put it back from a backup of the files")]
    Marker {
        /// The path of the marker.
        path: String,
        /// The defect of the marker.
        reason: String,
    },
    /// The blobs were opened read-only.
    #[error(
        "the blobs were opened for reading: bind them to a store before anything is written there"
    )]
    ReadOnly,
    /// A part of the path is invalid.
    #[error("{0:?} cannot be a part of a blob's path")]
    Name(String),
    /// The configured location is invalid.
    #[error("blobs cannot be kept at {location}: {reason}")]
    Location {
        /// The configured location.
        location: String,
        /// The reason.
        reason: String,
    },
    /// The underlying store failed. The caller may retry.
    #[error("failed to reach the blob store")]
    Store(#[source] object_store::Error),
    /// A local folder could not be synced, so the write may not be durable. The caller may retry.
    #[error("failed to sync a folder of the blob store")]
    Folder(#[source] io::Error),
}

impl BlobError {
    /// Returns true if a retry cannot succeed until an operator changes something.
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
    /// Converts an error of missing rights or a missing bucket into [`Self::Refused`].
    #[must_use]
    pub(super) fn or_refused(self) -> Self {
        match self {
            Self::Store(
                // `NotFound` on a bucket operation means that the bucket itself is missing.
                error @ (object_store::Error::PermissionDenied { .. }
                | object_store::Error::Unauthenticated { .. }
                | object_store::Error::NotFound { .. }),
            ) => Self::Refused(bucket_error_text(&error)),
            error => error,
        }
    }
}

/// Returns a bucket's error on one line, with at most 400 characters.
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

/// Returns true if a bucket does not support conditional writes. Such buckets report this in different
/// ways.
pub(super) fn knows_no_conditions(error: &object_store::Error) -> bool {
    match error {
        object_store::Error::NotImplemented { .. } | object_store::Error::NotSupported { .. } => {
            true
        }
        // Some S3 implementations answer with status 501, which the client reports as a generic error.
        object_store::Error::Generic { source, .. } => {
            let reason = crate::error_chain(&**source);
            reason.contains("501") || reason.contains("NotImplemented")
        }
        _ => false,
    }
}
