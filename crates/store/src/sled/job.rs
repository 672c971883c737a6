//! One change that a caller enqueues, with the channel for its reply.

use bytes::Bytes;
use palimpsest_core::ids::{SessionKey, Timestamp};
use tokio::sync::oneshot;

use crate::{Batch, DueChange, Lease, Position, StoreError};

pub(super) type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// A change that was asked for.
pub(super) enum Job {
    Append(SessionKey, Batch, Reply<Position>),
    PutSnapshot(SessionKey, Position, Bytes, Reply<()>),
    Delete(SessionKey, Position, Timestamp, Reply<()>),
    ClaimRemoval(SessionKey, u64, Lease, Timestamp, Reply<bool>),
    Forget(SessionKey, u64, String, Reply<bool>),
    Intend(SessionKey, Vec<Box<str>>, Timestamp, Reply<()>),
    DoomIntent(SessionKey, Box<str>, Timestamp, Reply<bool>),
    EndIntent(SessionKey, Box<str>, Reply<()>),
    Claim(SessionKey, Lease, Timestamp, Reply<bool>),
    Release(SessionKey, String, DueChange, Reply<bool>),
    Check(Reply<()>),
}

impl Job {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Append(_, batch, _) => batch.frame.len() + batch.summary.len(),
            Self::PutSnapshot(_, _, bytes, _) => bytes.len(),
            _ => 0,
        }
    }
}
