//! Streams whole files to and from a folder or a bucket, for backups and exports. A file is visible
//! only when it is complete.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, WriteMultipart};
use sha2::{Digest, Sha256};

use crate::blobs::{BlobError, PART_BYTES, PARTS, aborted, not_found_or};

pub use palimpsest_core::hex;

/// A folder or bucket for files.
#[derive(Debug, Clone)]
pub struct Archive {
    store: Arc<dyn ObjectStore>,
    root: Path,
}

/// The checksum and the size of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChecksum {
    /// The SHA-256 of the content, in hex.
    pub sha256: String,
    /// The size in bytes.
    pub bytes: u64,
}

impl Archive {
    /// Opens a folder (a path or `file://`) or a bucket (`s3://bucket/prefix`, with credentials from the
    /// environment).
    pub fn open(location: &str) -> Result<Self, BlobError> {
        let (store, root) = crate::blobs::open_location(location)?;
        Ok(Self { store, root })
    }

    /// Starts a file. It becomes visible after [`ArchiveWriter::finish`].
    pub fn writer(&self, path: &str) -> Result<ArchiveWriter, BlobError> {
        Ok(ArchiveWriter {
            store: Arc::clone(&self.store),
            path: self.path(path)?,
            buffer: BytesMut::new(),
            parts: None,
            digest: Sha256::new(),
            bytes: 0,
        })
    }

    /// Returns the content of a file as a stream of chunks.
    pub async fn read(
        &self,
        path: &str,
    ) -> Result<BoxStream<'static, Result<Bytes, BlobError>>, BlobError> {
        let found = self.store.get(&self.path(path)?).await;
        let found = found.map_err(|error| not_found_or(error, path))?;
        Ok(found.into_stream().map_err(BlobError::Store).boxed())
    }

    /// Reads a whole file and returns its checksum and size.
    pub async fn checksum(&self, path: &str) -> Result<FileChecksum, BlobError> {
        let mut parts = self.read(path).await?;
        let (mut digest, mut bytes) = (Sha256::new(), 0);
        while let Some(part) = parts.try_next().await? {
            digest.update(&part);
            bytes += part.len() as u64;
        }
        Ok(FileChecksum {
            sha256: hex(&digest.finalize()),
            bytes,
        })
    }

    /// Returns the paths of all files below a folder, relative to the root, in no order.
    pub fn list(
        &self,
        folder: &str,
    ) -> Result<BoxStream<'_, Result<String, BlobError>>, BlobError> {
        let within = self.path(folder)?;
        let root = self.root.clone();
        let listed = self.store.list(Some(&within)).map(move |meta| {
            let meta = meta.map_err(BlobError::Store)?;
            let full = meta.location.as_ref();
            let path = full.strip_prefix(root.as_ref()).unwrap_or(full);
            Ok(path.trim_start_matches('/').to_owned())
        });
        Ok(listed.boxed())
    }

    /// Removes a file. A missing file is not an error.
    pub async fn remove(&self, path: &str) -> Result<(), BlobError> {
        match self.store.delete(&self.path(path)?).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(BlobError::Store(error)),
        }
    }

    fn path(&self, path: &str) -> Result<Path, BlobError> {
        let full = format!("{}/{path}", self.root);
        // `parse` rejects parts such as `..`. `Path::from` would encode them, and the path would name another file.
        Path::parse(full.trim_matches('/')).map_err(|_| BlobError::Name(path.to_owned()))
    }
}

/// A file that is being written.
pub struct ArchiveWriter {
    store: Arc<dyn ObjectStore>,
    path: Path,
    buffer: BytesMut,
    parts: Option<WriteMultipart>,
    digest: Sha256,
    bytes: u64,
}

impl std::fmt::Debug for ArchiveWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl ArchiveWriter {
    /// Appends bytes. Waits while too many parts are being uploaded.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), BlobError> {
        self.digest.update(bytes);
        self.bytes += bytes.len() as u64;
        // Small files are stored by a single put. A multipart upload starts only when the content exceeds one
        // part.
        if self.parts.is_none() && self.buffer.len() + bytes.len() > PART_BYTES {
            let upload = self.store.put_multipart(&self.path).await;
            let upload = upload.map_err(BlobError::Store)?;
            let mut parts = WriteMultipart::new_with_chunk_size(upload, PART_BYTES);
            parts.write(&std::mem::take(&mut self.buffer));
            self.parts = Some(parts);
        }
        match &mut self.parts {
            None => self.buffer.extend_from_slice(bytes),
            Some(parts) => {
                // Limit the memory of parts in flight when the target is slower than the writer.
                let room = parts.wait_for_capacity(PARTS).await;
                if let Err(error) = room {
                    return Err(match self.parts.take() {
                        Some(parts) => aborted(parts, error).await,
                        None => BlobError::Store(error),
                    });
                }
                parts.write(bytes);
            }
        }
        Ok(())
    }

    /// Returns the checksum and the size of the bytes written so far.
    pub fn sum(&self) -> FileChecksum {
        FileChecksum {
            sha256: hex(&self.digest.clone().finalize()),
            bytes: self.bytes,
        }
    }

    /// Completes the file. In a local folder, the file is durable on return.
    pub async fn finish(self) -> Result<FileChecksum, BlobError> {
        let sum = self.sum();
        let put = if let Some(parts) = self.parts {
            parts.finish().await
        } else {
            self.store
                .put(&self.path, self.buffer.freeze().into())
                .await
        };
        put.map_err(BlobError::Store)?;
        Ok(sum)
    }
}
