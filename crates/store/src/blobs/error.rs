//! Errors of the blob store.

use std::error::Error;
use std::io;

use crate::StoreId;

/// An error of a blob operation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BlobError {
    /// No blob exists at this path.
    #[error("the blob {0} does not exist")]
    NotFound(String),
    /// The content does not match its digest. The blob is not changed.
    #[error("the content of the blob {0} does not match the digest in its name")]
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
        "blobs cannot be stored there: {0}; the bucket must exist, and the credentials need the right to put, \
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
    #[error("blobs cannot be stored at {location}: {reason}")]
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

pub(crate) fn not_found_or(error: object_store::Error, path: &str) -> BlobError {
    match error {
        object_store::Error::NotFound { .. } => BlobError::NotFound(path.to_owned()),
        error => BlobError::Store(error),
    }
}

/// Returns true if a bucket does not support conditional writes. Such buckets report this in different
/// ways.
pub(super) fn lacks_conditional_writes(error: &object_store::Error) -> bool {
    match error {
        object_store::Error::NotImplemented { .. } | object_store::Error::NotSupported { .. } => {
            true
        }
        // Some S3 implementations answer with status 501, which the client reports as a generic error.
        object_store::Error::Generic { source, .. } => is_not_implemented(&**source),
        _ => false,
    }
}

/// Returns true if the client reports status 501. It exports no type for its errors, so their texts are compared. Only
/// the beginning contains the status: paths and bodies may contain any number.
fn is_not_implemented(error: &(dyn Error + 'static)) -> bool {
    let text = error.to_string();
    text.starts_with("Server returned non-2xx status code: 501")
        || text.starts_with("Server returned error response")
            && text.contains("<Code>NotImplemented</Code>")
        || error.source().is_some_and(is_not_implemented)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use object_store::aws::AmazonS3Builder;
    use object_store::path::Path;
    use object_store::{ObjectStore as _, PutMode, RetryConfig};

    use super::*;

    /// Returns the error of a conditional put to a bucket that answers with this status and body.
    async fn put_error(status: &str, body: &str) -> object_store::Error {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let length = body.len();
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}");
        let answers = std::thread::spawn(move || {
            let (mut caller, _) = server.accept().unwrap();
            let mut request = [0; 4096];
            assert!(caller.read(&mut request).unwrap() > 0);
            caller.write_all(answer.as_bytes()).unwrap();
        });
        let store = AmazonS3Builder::new()
            .with_bucket_name("bucket")
            .with_endpoint(format!("http://{address}"))
            .with_allow_http(true)
            .with_access_key_id("id")
            .with_secret_access_key("secret")
            .with_retry(RetryConfig {
                max_retries: 0,
                ..RetryConfig::default()
            })
            .build()
            .unwrap();
        // The name contains the number, as a salted name can.
        let path = Path::from("file-501");
        let put = store.put_opts(&path, "x".into(), PutMode::Create.into());
        let error = put.await.unwrap_err();
        answers.join().unwrap();
        error
    }

    #[tokio::test]
    async fn only_status_501_means_no_support_for_conditional_writes() {
        assert!(lacks_conditional_writes(
            &put_error("501 Not Implemented", "").await
        ));
        let other = put_error("400 Bad Request", "<Code>NotImplementedYet</Code> 501").await;
        assert!(!lacks_conditional_writes(&other), "{other}");
    }
}
