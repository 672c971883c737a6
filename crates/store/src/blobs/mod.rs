//! Tool results and summaries, in a local folder or a bucket.
//!
//! A tool result's path ends with its digest and its bytes never change, so that an event that names
//! it can be trusted for ever. Not here: which results are worth a blob, and what an event says of it.

mod folders;
mod location;
mod removal;
mod summary;

use std::fmt::Write as _;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, WriteMultipart};
use palimpsest_core::ids::{SessionKey, Timestamp};
use sha2::{Digest, Sha256};
use tokio::sync::RwLock;
use tokio::task::spawn_blocking;

use self::folders::Folders;
pub use self::removal::Removed;
pub use self::summary::{Replaced, SummaryFile, summary_path};
use crate::crash_point;

/// Tool results younger than this are never swept, whatever the caller asks: the event that names one
/// may not be written yet.
pub const MIN_SWEEP_AGE_MILLIS: i64 = 24 * 60 * 60 * 1000;

/// Up to so many bytes are sent to a bucket without asking whether they are there.
const SMALL_BYTES: usize = 64 << 10;
/// Up to so many bytes go to a bucket in one request; more of them go in parts of this size.
pub(crate) const PART_BYTES: usize = 8 << 20;
/// Parts that are on their way at one time.
pub(crate) const PARTS: usize = 2;
/// How many of a digest's hex digits a path holds.
const DIGEST_IN_PATH: usize = 16;

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
    /// The range is not within the blob.
    #[error("bytes {start} to {end} are not within the blob")]
    Range {
        /// Its first byte.
        start: u64,
        /// The byte after its last.
        end: u64,
    },
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

/// The store that a location means, and the path in it below which everything is.
pub(crate) fn open_location(location: &str) -> Result<(Arc<dyn ObjectStore>, Path), BlobError> {
    let (store, root, _) = location::open(location)?;
    Ok((store, root))
}

/// What an event holds of a blob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobRef {
    /// Where it is, within the store.
    pub path: String,
    /// What it holds, by which a reader can tell that nothing has changed.
    pub sha256: String,
    /// Its size.
    pub bytes: u64,
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

/// How a tool result's bytes should be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlobKind {
    /// Plain text.
    Text,
    /// JSON, for content that has more than text in it.
    Json,
}

impl BlobKind {
    fn extension(self) -> &'static str {
        match self {
            Self::Text => "txt",
            Self::Json => "json",
        }
    }
}

/// Where tool results and summaries are kept.
#[derive(Debug, Clone)]
pub struct Blobs {
    store: Arc<dyn ObjectStore>,
    root: Path,
    folders: Option<Arc<Folders>>,
    /// Held shared by a put and alone by each deletion of a sweep, so that a put never relies on a
    /// blob that is about to go. Processes that share a bucket are not kept apart by it: there, the day
    /// that a sweep leaves is what does.
    sweeping: Arc<RwLock<()>>,
}

impl Blobs {
    /// Opens a location: a folder as a path or a `file://` URL, `s3://bucket/prefix` with credentials
    /// from the environment, or `memory://`.
    pub fn open(location: &str) -> Result<Self, BlobError> {
        let (store, root, folders) = location::open(location)?;
        Ok(Self {
            store,
            root,
            folders,
            sweeping: Arc::default(),
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
        checked.await.map_err(|error| match error {
            object_store::Error::PermissionDenied { .. }
            | object_store::Error::Unauthenticated { .. }
            | object_store::Error::NotFound { .. } => BlobError::Refused(told(&error)),
            error => BlobError::Store(error),
        })
    }

    /// Keeps a tool result, durably. Its path follows from what it holds, so keeping it again is the
    /// same as keeping it once. `call` is the caller's name for the tool call, made fit for a path.
    pub async fn put(
        &self,
        session: &SessionKey,
        call: &str,
        kind: BlobKind,
        bytes: Bytes,
    ) -> Result<BlobRef, BlobError> {
        let sha256 = Sha256::digest(&bytes).into();
        self.put_digested(session, call, kind, &sha256, bytes).await
    }

    /// The same for whoever has worked the SHA-256 of the bytes out already.
    #[tracing::instrument(target = "palimpsest::span", level = "debug", name = "blob.put", skip_all, fields(bytes = bytes.len()))]
    pub async fn put_digested(
        &self,
        session: &SessionKey,
        call: &str,
        kind: BlobKind,
        sha256: &[u8; 32],
        bytes: Bytes,
    ) -> Result<BlobRef, BlobError> {
        debug_assert_eq!(Sha256::digest(&bytes)[..], sha256[..], "another digest");
        check_name(call)?;
        let sha256 = hex(sha256);
        let blob = BlobRef {
            path: format!(
                "{}{call}-{}.{}",
                tool_results(session),
                &sha256[..DIGEST_IN_PATH],
                kind.extension()
            ),
            sha256,
            bytes: bytes.len() as u64,
        };
        let _not_swept = self.sweeping.read().await;
        let path = self.path(&blob.path)?;
        if self.folders.is_none() && bytes.len() > SMALL_BYTES {
            self.put_large(&blob.path, &path, bytes).await?;
            return Ok(blob);
        }
        let create = PutMode::Create.into();
        match self
            .store
            .put_opts(&path, bytes.clone().into(), create)
            .await
        {
            Ok(_) => {
                crash_point("blob.put");
                self.sync_folders(&blob.path).await?;
                return Ok(blob);
            }
            Err(object_store::Error::AlreadyExists { .. }) => {}
            // Not every bucket knows a condition, and they do not say so in one way. Without one it works too: what
            // is written is the same every time.
            Err(_) if self.folders.is_none() => {
                self.put_large(&blob.path, &path, bytes).await?;
                return Ok(blob);
            }
            Err(error) => return Err(BlobError::Store(error)),
        }
        if self.get(&blob.path).await? != bytes {
            return Err(BlobError::Damaged(blob.path));
        }
        // It is there, but whoever wrote it may have died before its folder was synced; and it may be
        // old enough for a sweep that runs right now. Writing the same bytes again settles both.
        self.overwrite(&blob.path, bytes).await?;
        Ok(blob)
    }

    /// Keeps what is large in a bucket. It is asked for first: what is there need not be sent to learn that, and a
    /// server that refuses a condition before it has read a body may close the connection under it. Whoever else
    /// writes it at the same time writes the same bytes.
    async fn put_large(&self, name: &str, path: &Path, bytes: Bytes) -> Result<(), BlobError> {
        match self.store.head(path).await {
            Ok(_) if self.get(name).await? != bytes => {
                return Err(BlobError::Damaged(name.to_owned()));
            }
            Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => return Err(BlobError::Store(error)),
        }
        if bytes.len() <= PART_BYTES {
            let put = self.store.put(path, bytes.into()).await;
            put.map_err(BlobError::Store)?;
        } else {
            let upload = self.store.put_multipart(path).await;
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
        }
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

    /// All of a blob that an event names, checked against what the event says.
    pub async fn get_checked(&self, blob: &BlobRef) -> Result<Bytes, BlobError> {
        let bytes = self.get(&blob.path).await?;
        if hex(&Sha256::digest(&bytes)) != blob.sha256 {
            return Err(BlobError::Damaged(blob.path.clone()));
        }
        Ok(bytes)
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

    /// A part of a blob, for readers of large results. It must lie within; an empty one always does.
    #[tracing::instrument(
        target = "palimpsest::span",
        level = "debug",
        name = "blob.get",
        skip_all
    )]
    pub async fn get_range(&self, path: &str, range: Range<u64>) -> Result<Bytes, BlobError> {
        let at = self.path(path)?;
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        let size = self.store.head(&at).await.map_err(|e| lost(e, path))?.size;
        if range.end > size {
            return Err(BlobError::Range {
                start: range.start,
                end: range.end,
            });
        }
        let part = self.store.get_range(&at, range).await;
        part.map_err(|e| lost(e, path))
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

    /// Puts a tool result back under the name that it had, from a copy.
    pub async fn put_file(
        &self,
        session: &SessionKey,
        file: &str,
        bytes: Bytes,
    ) -> Result<(), BlobError> {
        self.overwrite(&result_path(session, file)?, bytes).await
    }

    /// All blobs of a session, by their paths.
    pub async fn list(&self, session: &SessionKey) -> Result<Vec<BlobEntry>, BlobError> {
        self.entries(&session_dir(session)).await
    }

    async fn overwrite(&self, path: &str, bytes: Bytes) -> Result<(), BlobError> {
        let put = self.store.put(&self.path(path)?, bytes.into()).await;
        put.map_err(BlobError::Store)?;
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
