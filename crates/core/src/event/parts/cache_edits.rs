//! The position of a cache edit in an array.

use crate::message::Digest;

/// The position of a message in the array of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArrayPosition {
    /// The digest of the target.
    pub target: Digest,
    /// The index of the message, starting at 0.
    pub message: u32,
}
