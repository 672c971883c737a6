//! The changes that callers enqueue for the commit thread, each with the channel for its reply.

use ::sled::Error;
use tokio::sync::oneshot;

use super::group::{ChangeError, WriteGroup};
use super::write_error::WriteError;
use crate::StoreError;

/// Sends one caller's reply. The argument is the error of the group, if the group failed.
pub(super) type PendingReply = Box<dyn FnOnce(Option<&WriteError>) + Send>;

type Decide = dyn FnOnce(Option<&mut WriteGroup<'_>>) -> (PendingReply, Option<Error>) + Send;

/// The disk space that a change needs. Changes that free space must not be rejected on a full disk.
#[derive(Debug, Clone, Copy)]
pub(super) enum DiskUse {
    /// The change stores contents of this size in bytes. Small changes have size 0 and count only towards the number
    /// of changes in a group.
    Grows(usize),
    Frees,
}

/// A requested change.
pub(super) struct WriteJob {
    pub(super) disk: DiskUse,
    decide: Box<Decide>,
}

impl WriteJob {
    pub(super) fn new<T: Send + 'static>(
        disk: DiskUse,
        change: impl FnOnce(&mut WriteGroup<'_>) -> Result<T, ChangeError> + Send + 'static,
        reply: oneshot::Sender<Result<T, StoreError>>,
    ) -> Self {
        // The text is never sent, because a failed group replaces every reply by its own error.
        let replaced = || Err(StoreError::Failed(String::new()));
        let decide = move |group: Option<&mut WriteGroup<'_>>| {
            let (result, broken) = match group.map(change) {
                Some(Ok(value)) => (Ok(value), None),
                Some(Err(ChangeError::Rejected(error))) => (Err(error), None),
                Some(Err(ChangeError::Failed(error))) => (replaced(), Some(error)),
                None => (replaced(), None),
            };
            let answer: PendingReply = Box::new(move |failure| {
                let result = failure.map_or(result, |trouble| Err(trouble.error()));
                // The caller may have been cancelled.
                drop(reply.send(result));
            });
            (answer, broken)
        };
        let decide = Box::new(decide);
        Self { disk, decide }
    }

    pub(super) fn bytes(&self) -> usize {
        match self.disk {
            DiskUse::Grows(bytes) => bytes,
            DiskUse::Frees => 0,
        }
    }

    /// Adds the change to the group. The reply waits for the sync: even a rejection contains a revision,
    /// which must be durable before a caller sees it. An error means that the group is broken.
    pub(super) fn run(self, group: &mut WriteGroup<'_>) -> (PendingReply, Option<Error>) {
        (self.decide)(Some(group))
    }

    /// Replies with an error, without a change.
    pub(super) fn refuse(self, trouble: &WriteError) {
        let (answer, _) = (self.decide)(None);
        answer(Some(trouble));
    }
}
