//! Token estimates of messages, blocks and texts that no provider has reported yet. The policy of
//! the session selects the estimator.

use super::TokenSize;
use super::bpe::{Encoding, SampledCount};
use super::bytes::{self, TextKind};
use crate::message::{
    Block, Media, MediaKind, MediaSource, Message, ResultContent, Thinking, ToolResult,
};
use crate::policy::{TokenEstimator, TokenPolicy};

/// The tokens of a message in addition to its content.
pub const MESSAGE_TOKENS: u64 = 4;
/// The tokens of a tool call or tool result in addition to its content.
pub const CALL_TOKENS: u64 = 12;

/// A token estimator with its settings. Every count takes a few milliseconds at most, independent of
/// the size of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenCounter {
    estimator: TokenEstimator,
    /// The tokens of an image, or of a document of unknown size.
    media_tokens: u32,
}

impl TokenCounter {
    /// Creates a counter from the policy's settings.
    pub const fn new(policy: &TokenPolicy) -> Self {
        Self {
            estimator: policy.estimator,
            media_tokens: policy.unknown_image_tokens,
        }
    }

    /// A counter that uses the `bytes` estimator. Used for size limits of texts that the service
    /// writes itself. Such texts are tried at many lengths, and their limits must not depend on the
    /// session's estimator.
    pub const BYTES: Self = Self {
        estimator: TokenEstimator::Bytes,
        media_tokens: 2_000,
    };

    /// Returns the counter with another estimator.
    #[must_use]
    pub const fn by(self, estimator: TokenEstimator) -> Self {
        Self { estimator, ..self }
    }

    /// Returns true if the vocabulary is loaded, so that counting starts immediately.
    pub fn is_ready(self) -> bool {
        self.encoding().is_none_or(Encoding::is_ready)
    }

    /// Loads the vocabulary ahead of the first count. Loading a byte-pair encoding takes about 100
    /// ms once per process.
    pub fn prepare(self) {
        if let Some(encoding) = self.encoding() {
            encoding.load();
        }
    }

    /// Counts a message.
    pub fn message(self, message: &Message) -> TokenSize {
        self.tally(message.content_bytes()).message(message)
    }

    /// Counts a text as the content of a tool result.
    pub fn text(self, text: &str) -> u32 {
        let content = self.tally(text.len()).text(text, TextKind::Code);
        saturate_u32(CALL_TOKENS + content)
    }

    /// Counts a tool result.
    pub fn result(self, result: &ToolResult) -> u32 {
        saturate_u32(self.tally(Block::result_bytes(result)).result(result))
    }

    /// Counts a block.
    pub fn block(self, block: &Block) -> u32 {
        saturate_u32(self.tally(block.content_bytes()).block(block))
    }

    /// Starts a combined count of several items with a total of `bytes` bytes.
    pub const fn tally(self, bytes: usize) -> TokenTally {
        let method = match self.encoding() {
            None => TallyMethod::Bytes,
            Some(encoding) => TallyMethod::Reading(SampledCount::new(encoding, bytes)),
        };
        TokenTally {
            method,
            media_tokens: self.media_tokens,
        }
    }

    const fn encoding(self) -> Option<Encoding> {
        match self.estimator {
            TokenEstimator::Bytes => None,
            TokenEstimator::O200k => Some(Encoding::O200k),
            TokenEstimator::Cl100k => Some(Encoding::Cl100k),
        }
    }
}

/// A combined count of several items, which share one limit on the bytes that are read.
#[derive(Debug)]
pub struct TokenTally {
    method: TallyMethod,
    media_tokens: u32,
}

#[derive(Debug)]
enum TallyMethod {
    Bytes,
    Reading(SampledCount),
}

impl TokenTally {
    /// Counts the next message.
    pub fn message(&mut self, message: &Message) -> TokenSize {
        self.message_with_results(message, |_, _, _| {})
    }

    /// Counts the next message. Calls `on_result` for each tool result with its block index and its
    /// tokens.
    pub fn message_with_results(
        &mut self,
        message: &Message,
        mut on_result: impl FnMut(u16, &ToolResult, u32),
    ) -> TokenSize {
        let (mut tokens, mut result_tokens) = (MESSAGE_TOKENS, 0);
        for (at, block) in (0..).zip(&message.blocks) {
            let block_tokens = self.block(block);
            tokens += block_tokens;
            if let Block::ToolResult(result) = block {
                result_tokens += block_tokens;
                on_result(at, result, saturate_u32(block_tokens));
            }
        }
        TokenSize {
            tokens: saturate_u32(tokens),
            result_tokens: saturate_u32(result_tokens),
        }
    }

    fn block(&mut self, block: &Block) -> u64 {
        match block {
            Block::Text { text, .. } => self.text(text, TextKind::Prose),
            Block::Media(media) => self.media(media),
            Block::ToolUse(call) => {
                let name = self.text(&call.name, TextKind::Prose);
                CALL_TOKENS + name + self.text(call.input.as_str(), TextKind::Code)
            }
            Block::ToolResult(result) => self.result(result),
            Block::Thinking(thinking) => self.thinking(thinking),
            Block::Opaque { json, .. } => self.text(json.as_str(), TextKind::Code),
        }
    }

    fn result(&mut self, result: &ToolResult) -> u64 {
        let content = match &result.content {
            ResultContent::None => 0,
            ResultContent::Text(text) => self.text(text, TextKind::Code),
            ResultContent::Blocks(blocks) => blocks.iter().map(|block| self.nested(block)).sum(),
        };
        CALL_TOKENS + content
    }

    /// Counts a block inside a result. Text in a result is program output more often than prose.
    fn nested(&mut self, block: &Block) -> u64 {
        match block {
            Block::Text { text, .. } => self.text(text, TextKind::Code),
            other => self.block(other),
        }
    }

    /// Counts a thinking block.
    pub fn thinking(&mut self, thinking: &Thinking) -> u64 {
        match thinking {
            Thinking::Plain { thinking, .. } => self.text(thinking, TextKind::Prose),
            Thinking::Redacted { data, .. } => self.text(data, TextKind::Prose),
        }
    }

    /// Counts an image or a document.
    pub fn media(&mut self, media: &Media) -> u64 {
        let MediaSource::Base64 { media_type, data } = &media.source else {
            return self.media_tokens.into();
        };
        if let TallyMethod::Reading(reading) = &mut self.method {
            // The bytes were part of the announced total, but no text is read for them.
            reading.skip_bytes(data.len());
        }
        if media.kind == MediaKind::Document && media_type.starts_with("text/") {
            // Base64 uses four characters for three bytes. The decoded text has about four bytes per
            // token.
            return (data.len() as u64 * 3 / 4) / 4;
        }
        self.media_tokens.into()
    }

    /// Counts a text.
    pub fn text(&mut self, text: &str, nature: TextKind) -> u64 {
        match &mut self.method {
            TallyMethod::Bytes => bytes::count(text, nature),
            TallyMethod::Reading(reading) => reading.text(text, nature),
        }
    }
}

fn saturate_u32(tokens: u64) -> u32 {
    u32::try_from(tokens).unwrap_or(u32::MAX)
}
