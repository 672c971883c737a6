//! The reasons why a group of changes could not be written.

use super::space::{exhausted_resource, full_disk_reason};
use crate::StoreError;

/// The reason why a group could not be written.
#[derive(Debug, Clone)]
pub(super) enum WriteError {
    /// A write failed. The outcome is unknown until the process restarts.
    Failed(String),
    /// The disk is full. Writes are accepted again when space is available.
    OutOfSpace(&'static str),
    /// A resource is exhausted for now. The applied group waits for its sync.
    OutOfResources(&'static str),
}

impl WriteError {
    /// Classifies an error of sled.
    pub(super) fn of(error: &::sled::Error) -> Self {
        match full_disk_reason(error) {
            Some(why) => Self::OutOfSpace(why),
            None => Self::Failed(error.to_string()),
        }
    }

    /// Classifies an error of the store's own sync. A full disk is fatal here: the operating system may
    /// have dropped pages that it could not write.
    pub(super) fn of_sync(error: &std::io::Error) -> Self {
        match exhausted_resource(error) {
            Some(resource) => Self::OutOfResources(resource),
            None => Self::Failed(error.to_string()),
        }
    }

    /// Returns the error for callers.
    pub(super) fn error(&self) -> StoreError {
        match self {
            Self::Failed(reason) => StoreError::Failed(reason.clone()),
            Self::OutOfSpace(why) => StoreError::OutOfSpace(why),
            Self::OutOfResources(resource) => StoreError::OutOfResources(resource),
        }
    }
}
