//! Tool results and summaries, in a local folder or a bucket.
//!
//! A file of a tool result has a name that no other command uses, and its bytes never change, so that an event that names
//! it can be trusted for ever and a late removal meets no other file. The files belong to one log: nothing is written or
//! removed before the `marker` module has seen that. Not here: which results are worth a blob, and what an event says of it.

mod doubt;
mod folders;
mod location;
mod marker;
mod removal;
mod summary;

use std::fmt::Write as _;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, WriteMultipart};
use palimpsest_core::ids::{SessionKey, Timestamp};
use sha2::{Digest, Sha256};
use tokio::task::spawn_blocking;

use self::folders::Folders;
use self::marker::Marker;
pub use self::marker::Owner;
pub use self::removal::{Belongings, Removed};
pub use self::summary::{Replaced, SummaryFile, summary_path};
use crate::{StoreId, crash_point};

/// Up to so many bytes go to a bucket in one request; more of them go in parts of this size.
pub(crate) const PART_BYTES: usize = 8 << 20;
/// Parts that are on their way at one time.
pub(crate) const PARTS: usize = 2;
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
    fn or_refused(self) -> Self {
        match self {
            Self::Store(
                error @ (object_store::Error::PermissionDenied { .. }
                | object_store::Error::Unauthenticated { .. }
                | object_store::Error::NotFound { .. }),
            ) => Self::Refused(told(&error)),
            error => error,
        }
    }
}

/// The store that a location means, and the path in it below which everything is.
pub(crate) fn open_location(location: &str) -> Result<(Arc<dyn ObjectStore>, Path), BlobError> {
    let (store, root, _) = location::open(location)?;
    Ok((store, root))
}

/// A blob as a list shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobEntry {
    /// Where it is.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// When it was last written.
    pub written: Timestamp,
}

/// Where tool results and summaries are kept.
#[derive(Debug, Clone)]
pub struct Blobs {
    store: Arc<dyn ObjectStore>,
    root: Path,
    folders: Option<Arc<Folders>>,
    /// Whose files these are; without it nothing is written.
    marker: Option<Arc<Marker>>,
}

impl Blobs {
    /// Opens a location for reading: a folder as a path or a `file://` URL, `s3://bucket/prefix` with credentials
    /// from the environment, or `memory://`. [`Self::bind`] lets it be written.
    pub fn open(location: &str) -> Result<Self, BlobError> {
        let (store, root, folders) = location::open(location)?;
        Ok(Self {
            store,
            root,
            folders,
            marker: None,
        })
    }

    /// Whether a bucket takes, gives and removes objects: writes one that nobody reads. A folder is asked nothing,
    /// because it was created or found when it was opened.
    pub async fn check(&self, process: &str) -> Result<(), BlobError> {
        if self.folders.is_some() {
            return Ok(());
        }
        let name: String = process
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .collect();
        // No project's name begins so.
        let path = self.path(&format!("_check/{name}"))?;
        let checked = async {
            self.store
                .put(&path, Bytes::from_static(b"-").into())
                .await?;
            self.store.get(&path).await?.bytes().await?;
            let listed = self
                .store
                .list(Some(&self.path("_check").unwrap_or_default()));
            listed.take(1).try_collect::<Vec<_>>().await?;
            self.store.delete(&path).await
        };
        let checked = checked.await.map_err(BlobError::Store);
        checked.map_err(BlobError::or_refused)
    }

    /// Keeps a tool result under a name that no other command uses, durably.
    #[tracing::instrument(target = "palimpsest::span", level = "debug", name = "blob.put", skip_all, fields(bytes = bytes.len()))]
    pub async fn put_file(
        &self,
        session: &SessionKey,
        file: &str,
        bytes: Bytes,
    ) -> Result<(), BlobError> {
        let path = result_path(session, file)?;
        self.verify().await?;
        if self.folders.is_some() || bytes.len() <= PART_BYTES {
            return self.overwrite(&path, bytes).await;
        }
        let upload = self.store.put_multipart(&self.path(&path)?).await;
        let upload = upload.map_err(BlobError::Store)?;
        let mut parts = WriteMultipart::new_with_chunk_size(upload, PART_BYTES);
        for start in (0..bytes.len()).step_by(PART_BYTES) {
            if let Err(error) = parts.wait_for_capacity(PARTS).await {
                // What is there of it is taken away; what that cannot, a rule of the bucket ends.
                drop(parts.abort().await);
                return Err(BlobError::Store(error));
            }
            parts.put(bytes.slice(start..bytes.len().min(start + PART_BYTES)));
        }
        // This takes it away again by itself.
        parts.finish().await.map_err(BlobError::Store)?;
        crash_point("blob.put");
        Ok(())
    }

    /// All of a blob.
    #[tracing::instrument(
        target = "palimpsest::span",
        level = "debug",
        name = "blob.get",
        skip_all
    )]
    pub async fn get(&self, path: &str) -> Result<Bytes, BlobError> {
        let found = self.store.get(&self.path(path)?).await;
        let bytes = found.map_err(|e| lost(e, path))?.bytes().await;
        bytes.map_err(BlobError::Store)
    }

    /// All of a tool result, by the name of its file, checked against the digest that an event has.
    pub async fn get_result(
        &self,
        session: &SessionKey,
        file: &str,
        sha256: &[u8; 32],
    ) -> Result<Bytes, BlobError> {
        check_name(file)?;
        let path = format!("{}{file}", tool_results(session));
        let bytes = self.get(&path).await?;
        if Sha256::digest(&bytes)[..] != sha256[..] {
            return Err(BlobError::Damaged(path));
        }
        Ok(bytes)
    }

    /// The names and sizes of a session's tool results, in the order of the names.
    pub async fn results(&self, session: &SessionKey) -> Result<Vec<(String, u64)>, BlobError> {
        let folder = tool_results(session);
        let entries = self.entries(&folder).await?.into_iter();
        let named = entries.filter_map(|entry| {
            let file = entry.path.strip_prefix(&folder)?;
            check_name(file).ok()?;
            Some((file.to_owned(), entry.bytes))
        });
        Ok(named.collect())
    }

    /// All blobs of a session, by their paths.
    pub async fn list(&self, session: &SessionKey) -> Result<Vec<BlobEntry>, BlobError> {
        self.entries(&session_dir(session)).await
    }

    async fn overwrite(&self, path: &str, bytes: Bytes) -> Result<(), BlobError> {
        let put = self.store.put(&self.path(path)?, bytes.into()).await;
        put.map_err(BlobError::Store)?;
        crash_point("blob.put");
        self.sync_folders(path).await
    }

    async fn sync_folders(&self, path: &str) -> Result<(), BlobError> {
        let Some(folders) = self.folders.clone() else {
            return Ok(());
        };
        let path = path.to_owned();
        let synced = spawn_blocking(move || folders.sync(&path)).await;
        synced
            .map_err(io::Error::other)
            .flatten()
            .map_err(BlobError::Folder)
    }

    async fn delete(&self, path: &str) -> Result<(), BlobError> {
        let deleted = self.store.delete(&self.path(path)?).await;
        if let Some(folders) = &self.folders {
            folders.forget();
        }
        match deleted {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(BlobError::Store(error)),
        }
    }

    async fn entries(&self, dir: &str) -> Result<Vec<BlobEntry>, BlobError> {
        let within = self.path(dir)?;
        let entries = self.store.list(Some(&within)).map(|meta| {
            let meta = meta.map_err(BlobError::Store)?;
            Ok(self.entry(&meta))
        });
        let mut entries: Vec<_> = entries.try_collect::<Vec<_>>().await?;
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(entries)
    }

    fn entry(&self, meta: &ObjectMeta) -> BlobEntry {
        let full = meta.location.as_ref();
        let path = full.strip_prefix(self.root.as_ref()).unwrap_or(full);
        BlobEntry {
            path: path.trim_start_matches('/').to_owned(),
            bytes: meta.size,
            written: Timestamp::from_millis(meta.last_modified.timestamp_millis()),
        }
    }

    fn path(&self, path: &str) -> Result<Path, BlobError> {
        let full = format!("{}/{path}", self.root);
        Path::parse(full.trim_matches('/')).map_err(|_| BlobError::Name(path.to_owned()))
    }
}

/// Ends with a slash, so that it is no other session's prefix.
fn session_dir(session: &SessionKey) -> String {
    format!("{}/{}/", session.project, session.session)
}

/// Where a tool result is, by the name of its file.
pub fn result_path(session: &SessionKey, file: &str) -> Result<String, BlobError> {
    check_name(file)?;
    Ok(format!("{}{file}", tool_results(session)))
}

fn tool_results(session: &SessionKey) -> String {
    format!("{}tool-results/", session_dir(session))
}

/// The same letters that a session's name may have: they are safe in a path and a URL alike.
fn check_name(call: &str) -> Result<(), BlobError> {
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let begins = call.bytes().next().is_some_and(|b| b != b'.');
    if begins && call.len() <= 128 && call.bytes().all(legal) {
        return Ok(());
    }
    Err(BlobError::Name(call.to_owned()))
}

/// The text of a digest.
pub fn hex(digest: &[u8]) -> String {
    let mut out = String::with_capacity(digest.len() * 2);
    for byte in digest {
        // Writing to a string cannot fail.
        let _ = write!(out, "{byte:02x}");
    }
    out
}

/// What a bucket answered, on one line, as far as it fits in a message.
fn told(error: &object_store::Error) -> String {
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
