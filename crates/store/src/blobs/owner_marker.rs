//! The owner marker, a small object with the identity of the log.
//!
//! A second log with the same location would read, overwrite and remove the files of the first. The
//! first log therefore writes its identity there, and no other log can change anything. If the location
//! is unavailable, the marker is verified before the first write.

use std::sync::Arc;

use bytes::Bytes;
use object_store::{Error, PutMode};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::error::{BlobError, lacks_conditional_writes, not_found_or};
use super::location;
use super::store::Blobs;
use crate::{Store, StoreError, StoreId};

/// Project names cannot begin with an underscore.
const PATH: &str = "_palimpsest/store.json";

/// The log that uses a blob location.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobOwner {
    /// The identity of the log.
    pub store: StoreId,
    /// True if the log may adopt files without a marker, which an earlier release wrote. Must be false for
    /// a log without sessions.
    pub adopts: bool,
    /// A log that hands its files over to this one. Default: none.
    pub takes_over_from: Option<StoreId>,
    /// The log whose backup this one was restored from. The marker keeps it. Default: none.
    pub restored_from: Option<StoreId>,
}

impl BlobOwner {
    /// Returns the owner for a log. A log with sessions or tombstones adopts files without a marker.
    pub async fn of(log: &dyn Store) -> Result<Self, StoreError> {
        let store = log.store_id().await?;
        let is_empty =
            // Tombstones count too: the files of deleted sessions belong to this log until they are removed.
            log.list(None, None, 1).await?.is_empty() && log.tombstones(None, 1).await?.is_empty();
        Ok(Self {
            store,
            adopts: !is_empty,
            takes_over_from: None,
            restored_from: None,
        })
    }
}

/// An owner, and the result of the marker verification.
#[derive(Debug)]
pub(super) struct OwnerMarker {
    owner: BlobOwner,
    is_verified: OnceCell<()>,
}

impl Blobs {
    /// Returns a private location in memory, for tests and benchmarks.
    pub fn in_memory() -> Self {
        let (store, root, folders) = location::in_memory();
        let owner = BlobOwner {
            store: StoreId::from_bytes([0; 16]),
            adopts: true,
            takes_over_from: None,
            restored_from: None,
        };
        let blobs = Self {
            store,
            root,
            folders,
            marker: None,
        };
        blobs.bind(owner)
    }

    /// Binds the location to a log that writes there. The marker is verified before the first write, or
    /// earlier by [`Self::verify`].
    #[must_use]
    pub fn bind(mut self, owner: BlobOwner) -> Self {
        self.marker = Some(Arc::new(OwnerMarker {
            owner,
            is_verified: OnceCell::new(),
        }));
        self
    }

    /// Returns true if the location is not bound to a log.
    pub fn is_read_only(&self) -> bool {
        self.marker.is_none()
    }

    /// Verifies that the files belong to the log. The result is cached. Fails permanently with
    /// [`BlobError::OtherStore`] and [`BlobError::Unmarked`]. Other errors may be retried.
    pub async fn verify(&self) -> Result<(), BlobError> {
        let marker = self.marker.as_ref().ok_or(BlobError::ReadOnly)?;
        let verified = marker.is_verified.get_or_try_init(async || {
            let owner = &marker.owner;
            // The marker is read back after it was written, because two logs may start at the same time.
            let found = match self.read_owner().await? {
                Some(found) => found,
                None => self.create_owner_marker(owner).await?,
            };
            // A migration moves a log to another store, which adopts the files of the former one.
            if owner.takes_over_from == Some(found) {
                self.overwrite(PATH, content(owner)).await?;
                return Ok(());
            }
            if found != owner.store {
                return Err(BlobError::OtherStore {
                    found,
                    ours: owner.store,
                });
            }
            Ok(())
        });
        verified.await.copied()
    }

    /// Returns the log that owns the files, or `None` without a marker.
    pub async fn read_owner(&self) -> Result<Option<StoreId>, BlobError> {
        self.marked_in("store").await
    }

    /// Returns the log whose backup the owner was restored from, or `None` if there is none.
    pub async fn restored_from(&self) -> Result<Option<StoreId>, BlobError> {
        self.marked_in("restored_from").await
    }

    /// Returns the id in a field of the marker. Only the field `store` is required.
    async fn marked_in(&self, field: &str) -> Result<Option<StoreId>, BlobError> {
        let bytes = match self.get(PATH).await {
            Ok(bytes) => bytes,
            Err(BlobError::NotFound(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let marker = |reason: &str| BlobError::Marker {
            path: PATH.into(),
            reason: reason.into(),
        };
        let read: Value = serde_json::from_slice(&bytes).map_err(|_| marker("it is not JSON"))?;
        let id = match read.get(field).and_then(Value::as_str) {
            Some(id) => id,
            None if field == "store" => return Err(marker("it names no store")),
            None => return Ok(None),
        };
        let id = id.parse();
        id.map(Some).map_err(|_| marker("its store is no store id"))
    }

    /// Creates the marker if there is none, and returns its content. If two logs start at the same time,
    /// both read the same winner.
    async fn create_owner_marker(&self, owner: &BlobOwner) -> Result<StoreId, BlobError> {
        if !owner.adopts && !self.projects().await?.is_empty() {
            return Err(BlobError::Unmarked { ours: owner.store });
        }
        let path = self.path(PATH)?;
        let put = self
            .store
            .put_opts(&path, content(owner).into(), PutMode::Create.into())
            .await;
        match put {
            Ok(_) | Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => {
                // Also if the marker exists: the process that created it may have been killed before its sync.
                self.sync_folders(PATH).await?;
            }
            // Without conditional writes, the content that is read back decides.
            Err(error) if lacks_conditional_writes(&error) => {
                self.overwrite(PATH, content(owner)).await?;
            }
            Err(error) => return Err(not_found_or(error, PATH)),
        }
        let marked = self.read_owner().await?;
        marked.ok_or_else(|| BlobError::NotFound(PATH.into()))
    }
}

fn content(owner: &BlobOwner) -> Bytes {
    let mut marker = json!({"store": owner.store.to_string()});
    if let Some(from) = owner.restored_from {
        marker["restored_from"] = from.to_string().into();
    }
    Bytes::from(marker.to_string() + "\n")
}
