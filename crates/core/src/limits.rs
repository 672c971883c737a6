//! How much one call may bring. Each limit is a server setting; exceeding one names the field.

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
