//! How much one call may bring. Each limit is a server setting; exceeding one names the field.

use crate::policy::LimitPolicy;

/// The limits of one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one call.
    pub max_request_bytes: usize,
    /// Bytes of one message's content.
    pub max_message_bytes: usize,
    /// Messages of one call.
    pub max_messages: usize,
    /// Blocks of one message.
    pub max_blocks: usize,
    /// Bytes of a tool call's id, a provider's message id, a model's name or a tool's name.
    pub max_id_bytes: usize,
    /// Attributes of one message or session.
    pub max_attributes: usize,
    /// Bytes of one attribute, name and value together.
    pub max_attribute_bytes: usize,
    /// Bytes of a request id.
    pub max_request_id_bytes: usize,
    /// Bytes of a title.
    pub max_title_bytes: usize,
    /// Bytes of a search pattern.
    pub max_pattern_bytes: usize,
    /// Bytes of one reply's view; a longer one is fetched in chunks.
    pub max_reply_bytes: usize,
    /// Items of one page.
    pub max_page_size: usize,
}

impl Limits {
    /// The lower of these and a session's own.
    #[must_use]
    pub fn narrowed_by(&self, own: &LimitPolicy) -> Self {
        let low = |limit: usize, own: u64| limit.min(usize::try_from(own).unwrap_or(usize::MAX));
        Self {
            max_message_bytes: low(self.max_message_bytes, own.max_message_bytes),
            max_messages: low(self.max_messages, own.max_messages.into()),
            max_blocks: low(self.max_blocks, own.max_blocks.into()),
            max_pattern_bytes: low(self.max_pattern_bytes, own.max_pattern_chars.into()),
            max_reply_bytes: low(self.max_reply_bytes, own.max_reply_bytes.into()),
            ..self.clone()
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_request_bytes: 32 * 1024 * 1024,
            max_message_bytes: 16 * 1024 * 1024,
            max_messages: 10_000,
            max_blocks: 10_000,
            max_id_bytes: 256,
            max_attributes: 64,
            max_attribute_bytes: 16 * 1024,
            max_request_id_bytes: 128,
            max_title_bytes: 1_024,
            max_pattern_bytes: 1_024,
            max_reply_bytes: 3 * 1024 * 1024,
            max_page_size: 1_000,
        }
    }
}
