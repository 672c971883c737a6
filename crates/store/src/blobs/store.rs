//! The blob store: reads and writes of single files in a local folder or a bucket.

use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, WriteMultipart};
use palimpsest_core::ids::{SessionKey, Timestamp};
use sha2::{Digest, Sha256};

use super::error::{BlobError, not_found_or};
use super::folders::{Folders, run_blocking};
use super::location;
use super::owner_marker::OwnerMarker;
use super::paths::{check_name, result_path, session_dir, tool_results};
use crate::crash_point;

/// The size of an upload part, in bytes. Smaller files are uploaded in one request.
pub(crate) const PART_BYTES: usize = 8 << 20;
/// The maximum number of parts in flight per upload.
pub(crate) const PARTS: usize = 2;

/// A blob as returned by a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobEntry {
    /// The path within the store.
    pub path: String,
    /// The size in bytes.
    pub bytes: u64,
    /// The time of the last write.
    pub written: Timestamp,
}

/// The location of tool results and summaries.
#[derive(Debug, Clone)]
pub struct Blobs {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) root: Path,
    pub(super) folders: Option<Arc<Folders>>,
    /// The owner marker. Without it, the location is read-only.
    pub(super) marker: Option<Arc<OwnerMarker>>,
}

impl Blobs {
    /// Opens a location for reading: a path, a `file://` URL, `s3://bucket/prefix` with credentials from
    /// the environment, or `memory://`. [`Self::bind`] enables writes.
    pub fn open(location: &str) -> Result<Self, BlobError> {
        let (store, root, folders) = location::open(location)?;
        Ok(Self {
            store,
            root,
            folders,
            marker: None,
        })
    }

    /// Verifies that a bucket allows put, get, list and delete, with a probe object. A folder needs no
    /// check, because opening it verified or created it.
    pub async fn check(&self, process: &str) -> Result<(), BlobError> {
        if self.folders.is_some() {
            return Ok(());
        }
        let path = self.path(&probe_path(process)?)?;
        let checked = async {
            self.store
                .put(&path, Bytes::from_static(b"-").into())
                .await?;
            self.store.get(&path).await?.bytes().await?;
            // The name is legal, so the default is never used. One entry proves the right to list.
            let listed = self
                .store
                .list(Some(&self.path("_check").unwrap_or_default()));
            listed.take(1).try_collect::<Vec<_>>().await?;
            self.store.delete(&path).await
        };
        let checked = checked.await.map_err(BlobError::Store);
        checked.map_err(BlobError::or_refused)
    }

    /// Stores a tool result durably. The caller chooses a name that no other command uses.
    #[tracing::instrument(target = "palimpsest::span", level = "debug", name = "blob.put", skip_all, fields(bytes = bytes.len()))]
    pub async fn put_file(
        &self,
        session: &SessionKey,
        file: &str,
        bytes: Bytes,
    ) -> Result<(), BlobError> {
        let path = result_path(session, file)?;
        self.verify().await?;
        // A local put writes one file atomically. Only large objects in buckets are uploaded in parts.
        if self.folders.is_some() || bytes.len() <= PART_BYTES {
            return self.overwrite(&path, bytes).await;
        }
        let upload = self.store.put_multipart(&self.path(&path)?).await;
        let upload = upload.map_err(BlobError::Store)?;
        let mut parts = WriteMultipart::new_with_chunk_size(upload, PART_BYTES);
        for start in (0..bytes.len()).step_by(PART_BYTES) {
            if let Err(error) = parts.wait_for_capacity(PARTS).await {
                return Err(aborted(parts, error).await);
            }
            parts.put(bytes.slice(start..bytes.len().min(start + PART_BYTES)));
        }
        // `finish` aborts the upload itself if it fails.
        parts.finish().await.map_err(BlobError::Store)?;
        crash_point("blob.put");
        Ok(())
    }

    /// Returns the content of a blob.
    #[tracing::instrument(
        target = "palimpsest::span",
        level = "debug",
        name = "blob.get",
        skip_all
    )]
    pub async fn get(&self, path: &str) -> Result<Bytes, BlobError> {
        let found = self.store.get(&self.path(path)?).await;
        let bytes = found.map_err(|e| not_found_or(e, path))?.bytes().await;
        bytes.map_err(BlobError::Store)
    }

    /// Returns the content of a tool result, verified against the digest in its event.
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

    /// Returns the names and sizes of a session's tool results, ordered by name. Sizes are in bytes.
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

    /// Returns all blobs of a session, ordered by path.
    pub async fn list(&self, session: &SessionKey) -> Result<Vec<BlobEntry>, BlobError> {
        self.entries(&session_dir(session)).await
    }

    pub(super) async fn overwrite(&self, path: &str, bytes: Bytes) -> Result<(), BlobError> {
        let put = self.store.put(&self.path(path)?, bytes.into()).await;
        put.map_err(BlobError::Store)?;
        crash_point("blob.put");
        self.sync_folders(path).await
    }

    pub(super) async fn sync_folders(&self, path: &str) -> Result<(), BlobError> {
        let Some(folders) = self.folders.clone() else {
            return Ok(());
        };
        let path = path.to_owned();
        run_blocking(move || folders.sync(&path)).await
    }

    pub(super) async fn delete(&self, path: &str) -> Result<(), BlobError> {
        let deleted = self.store.delete(&self.path(path)?).await;
        if let Some(folders) = &self.folders {
            folders.forget();
        }
        match deleted {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(BlobError::Store(error)),
        }
    }

    pub(super) async fn entries(&self, dir: &str) -> Result<Vec<BlobEntry>, BlobError> {
        let within = self.path(dir)?;
        let entries = self.store.list(Some(&within)).map(|meta| {
            let meta = meta.map_err(BlobError::Store)?;
            Ok(self.entry(&meta))
        });
        let mut entries: Vec<_> = entries.try_collect::<Vec<_>>().await?;
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(entries)
    }

    pub(super) fn entry(&self, meta: &ObjectMeta) -> BlobEntry {
        let full = meta.location.as_ref();
        let path = full.strip_prefix(self.root.as_ref()).unwrap_or(full);
        BlobEntry {
            path: path.trim_start_matches('/').to_owned(),
            bytes: meta.size,
            written: Timestamp::from_millis(meta.last_modified.timestamp_millis()),
        }
    }

    pub(super) fn path(&self, path: &str) -> Result<Path, BlobError> {
        let full = format!("{}/{path}", self.root);
        // `parse` rejects parts such as `..`. `Path::from` would encode them, and the path would name another file.
        Path::parse(full.trim_matches('/')).map_err(|_| BlobError::Name(path.to_owned()))
    }
}

/// Removes the parts of an upload that failed. If the removal fails too, a lifecycle rule of the bucket removes them.
pub(crate) async fn aborted(parts: WriteMultipart, error: object_store::Error) -> BlobError {
    drop(parts.abort().await);
    BlobError::Store(error)
}

/// Returns the path of a new probe object. It contains the name of the process, so that an operator can attribute an
/// object that remains after a crash.
fn probe_path(process: &str) -> Result<String, BlobError> {
    let name: String = process
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    // Servers may have one name. Without the number, one server could delete the object between the write and the read
    // of another.
    let number = getrandom::u64().map_err(|error| object_store::Error::Generic {
        store: "random numbers",
        source: error.into(),
    });
    let number = number.map_err(BlobError::Store)?;
    // Project names cannot begin with an underscore.
    Ok(format!("_check/{name}-{number:016x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_with_one_name_probe_different_objects() {
        let [one, other] = [(); 2].map(|()| probe_path("host:7447").unwrap());
        assert!(one.starts_with("_check/host-7447-"), "{one}");
        assert_ne!(one, other);
    }
}
