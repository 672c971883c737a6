//! Limits of one call. Each limit is a server setting, and an error names the field that exceeds it.

use crate::policy::LimitPolicy;

/// The limits of one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The maximum size of one call in bytes. Default: 32 MiB.
    pub max_request_bytes: usize,
    /// The maximum size of one message's content in bytes. Default: 16 MiB.
    pub max_message_bytes: usize,
    /// The maximum number of messages of one call. Default: 10,000.
    pub max_messages: usize,
    /// The maximum number of blocks of one message. Default: 10,000.
    pub max_blocks: usize,
    /// The maximum length of a call id, message id, model name or tool name in bytes. Default: 256.
    pub max_id_bytes: usize,
    /// The maximum number of attributes of one message or session. Default: 64.
    pub max_attributes: usize,
    /// The maximum size of one attribute (name and value) in bytes. Default: 16 KiB.
    pub max_attribute_bytes: usize,
    /// The maximum length of a request id in bytes. Default: 128.
    pub max_request_id_bytes: usize,
    /// The maximum length of a title in bytes. Default: 1,024.
    pub max_title_bytes: usize,
    /// The maximum length of a search pattern in characters. Default: 1,024.
    pub max_pattern_chars: usize,
    /// The maximum size of one reply's view in bytes. A longer view is fetched in chunks. Default: 3
    /// MiB.
    pub max_reply_bytes: usize,
    /// The maximum number of items of one page. Default: 1,000.
    pub max_page_size: usize,
}

impl Limits {
    /// Returns the lower of these limits and a session's own limits.
    #[must_use]
    pub fn narrowed_by(&self, own: &LimitPolicy) -> Self {
        let low = |limit: usize, own: u64| limit.min(usize::try_from(own).unwrap_or(usize::MAX));
        Self {
            max_message_bytes: low(self.max_message_bytes, own.max_message_bytes),
            max_messages: low(self.max_messages, own.max_messages.into()),
            max_blocks: low(self.max_blocks, own.max_blocks.into()),
            max_pattern_chars: low(self.max_pattern_chars, own.max_pattern_chars.into()),
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
            max_pattern_chars: 1_024,
            max_reply_bytes: 3 * 1024 * 1024,
            max_page_size: 1_000,
        }
    }
}
