//! The event for whole arrays of callers.

use crate::array::{ChainHead, Link};
use crate::ids::Ordinal;
use crate::message::{Digest, MessageOrigin};

/// The array that the caller has changed by more than appended or rewound messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArraySynced {
    /// The version of the digests.
    pub version: u32,
    /// The API format of the array.
    pub format: MessageOrigin,
    /// The digests of the operator messages before the conversation. `None` if they are the same as before.
    pub lead: Option<Vec<Digest>>,
    /// Number of links that stay, from the first.
    pub keep: u32,
    /// The links after them.
    pub links: Vec<Link>,
    /// True if the session received one array so far, and the request had no tools.
    pub is_provisional: bool,
    /// The messages of a recorded response that become visible.
    pub confirmed: Vec<Ordinal>,
    /// The ends that rewinds left, oldest first.
    pub abandoned: Vec<ChainHead>,
    /// The tip of the array, if the session is found by content and did not have this tip.
    pub tip: Option<Digest>,
}
