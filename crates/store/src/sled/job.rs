//! The changes that callers enqueue for the commit thread, each with the channel for its reply.

use bytes::Bytes;
use palimpsest_core::ids::{SessionKey, Timestamp};
use tokio::sync::oneshot;

use crate::{Batch, DueChange, Lease, Position, StoreError};

pub(super) type ReplySender<T> = oneshot::Sender<Result<T, StoreError>>;

/// A requested change.
pub(super) enum WriteJob {
    Append(SessionKey, Batch, ReplySender<Position>),
    PutSnapshot(SessionKey, Position, Bytes, ReplySender<()>),
    Delete(SessionKey, Position, Timestamp, ReplySender<()>),
    ClaimRemoval(SessionKey, u64, Lease, Timestamp, ReplySender<bool>),
    Forget(SessionKey, u64, String, ReplySender<bool>),
    Intend(SessionKey, Vec<Box<str>>, Timestamp, ReplySender<()>),
    DoomIntent(SessionKey, Box<str>, Timestamp, ReplySender<bool>),
    EndIntent(SessionKey, Box<str>, ReplySender<()>),
    Claim(SessionKey, Lease, Timestamp, ReplySender<bool>),
    Release(SessionKey, String, DueChange, ReplySender<bool>),
    Check(ReplySender<()>),
}

impl WriteJob {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Append(_, batch, _) => batch.frame.len() + batch.summary.len(),
            Self::PutSnapshot(_, _, bytes, _) => bytes.len(),
            // Other changes are small and count only towards the number of changes in a group.
            _ => 0,
        }
    }
}
