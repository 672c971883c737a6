//! The place of an edit of the provider's cache.

use crate::message::Digest;

/// Where a message stands in an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PinPlace {
    /// Stands for the target of the array.
    pub target: Digest,
    /// The message's place, from 0.
    pub message: u32,
}
