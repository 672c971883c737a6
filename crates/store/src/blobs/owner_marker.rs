//! The marker that says whose files these are: a small object that holds the identity of the log.
//!
//! A second log with the same bucket or folder would read, overwrite and remove the files of the first. So a log is
//! bound to its files: the first writes its identity there, and no other one changes anything afterwards. A place that
//! cannot be reached is verified later, before the first write.

use std::sync::Arc;

use bytes::Bytes;
use object_store::{Error, PutMode};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::error::{BlobError, knows_no_conditions, lost};
use super::location;
use super::store::Blobs;
use crate::{SessionLog, StoreError, StoreId};

/// No project's name begins so.
const PATH: &str = "_palimpsest/store.json";

/// Who wants to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// The identity of the log.
    pub store: StoreId,
    /// Whether files without a marker may be taken for the log's own: an earlier release wrote none. Not for a log that
    /// has no session.
    pub adopts: bool,
    /// A log whose files these may be, and that gives them up to this one.
    pub takes_over_from: Option<StoreId>,
}

impl Owner {
    /// The owner that a log is: one that has sessions adopts files without a marker.
    pub async fn of(log: &dyn SessionLog) -> Result<Self, StoreError> {
        let store = log.store_id().await?;
        let is_empty =
            log.list(None, None, 1).await?.is_empty() && log.tombstones(None, 1).await?.is_empty();
        Ok(Self {
            store,
            adopts: !is_empty,
            takes_over_from: None,
        })
    }
}

/// An owner, and whether the marker has been seen to agree.
#[derive(Debug)]
pub(super) struct OwnerMarker {
    owner: Owner,
    is_verified: OnceCell<()>,
}

impl Blobs {
    /// A place in memory that belongs to nobody else, for tests and benchmarks.
    pub fn in_memory() -> Self {
        let (store, root, folders) = location::in_memory();
        let owner = Owner {
            store: StoreId::from_bytes([0; 16]),
            adopts: true,
            takes_over_from: None,
        };
        let blobs = Self {
            store,
            root,
            folders,
            marker: None,
        };
        blobs.bind(owner)
    }

    /// The same place for a log that writes there. Nothing is written before the marker was seen to agree, which the first
    /// write sees to and [`Self::verify`] may do earlier.
    #[must_use]
    pub fn bind(mut self, owner: Owner) -> Self {
        self.marker = Some(Arc::new(OwnerMarker {
            owner,
            is_verified: OnceCell::new(),
        }));
        self
    }

    /// Sees to it that these files are the log's own. Costs nothing once that was seen. Fails for good with
    /// [`BlobError::OtherStore`] and [`BlobError::Unmarked`], and may be tried again after other errors.
    pub async fn verify(&self) -> Result<(), BlobError> {
        let marker = self.marker.as_ref().ok_or(BlobError::ReadOnly)?;
        let verified = marker.is_verified.get_or_try_init(async || {
            let owner = &marker.owner;
            let found = match self.marked().await? {
                Some(found) => found,
                None => self.mark(owner).await?,
            };
            if owner.takes_over_from == Some(found) {
                self.overwrite(PATH, content(owner.store)).await?;
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

    /// The log whose files these are; none when nobody has said so yet.
    pub async fn marked(&self) -> Result<Option<StoreId>, BlobError> {
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
        let id = read.get("store").and_then(Value::as_str);
        let id = id.ok_or_else(|| marker("it names no store"))?;
        let id = id.parse();
        id.map(Some).map_err(|_| marker("its store is no store id"))
    }

    /// Writes the marker where there is none, and says whose it is then: two that begin together find one.
    async fn mark(&self, owner: &Owner) -> Result<StoreId, BlobError> {
        if !owner.adopts && !self.projects().await?.is_empty() {
            return Err(BlobError::Unmarked { ours: owner.store });
        }
        let path = self.path(PATH)?;
        let put = self
            .store
            .put_opts(&path, content(owner.store).into(), PutMode::Create.into())
            .await;
        match put {
            Ok(_) | Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => {
                self.sync_folders(PATH).await?;
            }
            // Where a bucket cannot compare, what is read back decides.
            Err(error) if knows_no_conditions(&error) => {
                self.overwrite(PATH, content(owner.store)).await?;
            }
            Err(error) => return Err(lost(error, PATH)),
        }
        let marked = self.marked().await?;
        marked.ok_or_else(|| BlobError::NotFound(PATH.into()))
    }
}

fn content(store: StoreId) -> Bytes {
    let text = json!({"store": store.to_string()}).to_string();
    Bytes::from(text + "\n")
}
