//! The input of a plan besides the array: facts about the request, and messages of the session.

use std::sync::Arc;

use super::compacted::OwnCompaction;
use crate::ids::Ordinal;
use crate::message::Message;
use crate::session::{ContentNotLoaded, Session};

/// Facts about the request besides the array.
#[derive(Debug, Clone, Copy, Default)]
pub struct Hints<'a> {
    /// True if the caller states that the array begins with its own summary.
    pub caller_compacted: bool,
    /// True if the caller sends side requests without tools under the name of the session.
    pub side_requests: bool,
    /// The latest responses to side requests of the session. One of them can be a summary.
    pub side_responses: &'a [Arc<Message>],
    /// The compaction of the session that the array contains, and the known array does not.
    pub own_compaction: Option<&'a OwnCompaction>,
}

/// Access to messages of the session.
pub trait KnownContent {
    /// Returns a message.
    ///
    /// # Errors
    ///
    /// Returns an error if the content is not in memory.
    fn message(&self, ordinal: Ordinal) -> Result<Arc<Message>, ContentNotLoaded>;
}

impl KnownContent for Session {
    fn message(&self, ordinal: Ordinal) -> Result<Arc<Message>, ContentNotLoaded> {
        self.transcript().require_content(ordinal).cloned()
    }
}
