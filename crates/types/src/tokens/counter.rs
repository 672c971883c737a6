//! How a session counts what no provider has reported yet: messages, blocks and texts, by the estimator
//! that its policy names.

use super::Size;
use super::bpe::{Encoding, Reading};
use super::bytes::{self, Nature};
use crate::message::{
    Block, Media, MediaKind, MediaSource, Message, ResultContent, Thinking, ToolResult,
};
use crate::policy::{TokenEstimator, TokenPolicy};

/// What a message costs beside its content.
pub const MESSAGE_TOKENS: u64 = 4;
/// What the frame of a call or a result costs beside its content.
pub const CALL_TOKENS: u64 = 12;

/// How a session counts. Every count is bounded: it takes a few milliseconds at most, however much is
/// counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counter {
    estimator: TokenEstimator,
    /// What a picture, or a document of unknown size, counts.
    media_tokens: u32,
}

impl Counter {
    /// As a policy says.
    pub const fn new(policy: &TokenPolicy) -> Self {
        Self {
            estimator: policy.estimator,
            media_tokens: policy.unknown_image_tokens,
        }
    }

    /// By bytes, whatever a session counts with: for limits of texts that the service writes itself, which
    /// are tried at many lengths and should come out the same whatever the rest is counted with.
    pub const BYTES: Self = Self {
        estimator: TokenEstimator::Bytes,
        media_tokens: 2_000,
    };

    /// The same with another estimator.
    #[must_use]
    pub const fn by(self, estimator: TokenEstimator) -> Self {
        Self { estimator, ..self }
    }

    /// Whether it can count at once.
    pub fn is_ready(self) -> bool {
        self.encoding().is_none_or(Encoding::is_ready)
    }

    /// Makes it ready, so that nobody has to wait for that later. A byte-pair encoding takes a tenth of a
    /// second the first time, and nothing after that.
    pub fn prepare(self) {
        if let Some(encoding) = self.encoding() {
            encoding.ready();
        }
    }

    /// A message.
    pub fn message(self, message: &Message) -> Size {
        self.tally(message.content_bytes()).message(message)
    }

    /// The result that a text stands for.
    pub fn text(self, text: &str) -> u32 {
        let content = self.tally(text.len()).text(text, Nature::Code);
        short(CALL_TOKENS + content)
    }

    /// A result.
    pub fn result(self, result: &ToolResult) -> u32 {
        short(self.tally(Block::result_bytes(result)).result(result))
    }

    /// A block.
    pub fn block(self, block: &Block) -> u32 {
        short(self.tally(block.content_bytes()).block(block))
    }

    /// One count of several things, which have so many bytes together.
    pub const fn tally(self, bytes: usize) -> TokenTally {
        let by = match self.encoding() {
            None => By::Bytes,
            Some(encoding) => By::Reading(Reading::new(encoding, bytes)),
        };
        TokenTally {
            by,
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

/// One count of several things.
#[derive(Debug)]
pub struct TokenTally {
    by: By,
    media_tokens: u32,
}

#[derive(Debug)]
enum By {
    Bytes,
    Reading(Reading),
}

impl TokenTally {
    /// The next message.
    pub fn message(&mut self, message: &Message) -> Size {
        self.sized(message, |_, _, _| {})
    }

    /// The same; `tell` is told of each of its results, with its place and its tokens.
    pub fn sized(
        &mut self,
        message: &Message,
        mut tell: impl FnMut(u16, &ToolResult, u32),
    ) -> Size {
        let (mut tokens, mut result_tokens) = (MESSAGE_TOKENS, 0);
        for (at, block) in (0..).zip(&message.blocks) {
            let block_tokens = self.block(block);
            tokens += block_tokens;
            if let Block::ToolResult(result) = block {
                result_tokens += block_tokens;
                tell(at, result, short(block_tokens));
            }
        }
        Size {
            tokens: short(tokens),
            result_tokens: short(result_tokens),
        }
    }

    fn block(&mut self, block: &Block) -> u64 {
        match block {
            Block::Text { text, .. } => self.text(text, Nature::Prose),
            Block::Media(media) => self.media(media),
            Block::ToolUse(call) => {
                let name = self.text(&call.name, Nature::Prose);
                CALL_TOKENS + name + self.text(call.input.as_str(), Nature::Code)
            }
            Block::ToolResult(result) => self.result(result),
            Block::Thinking(thinking) => self.thinking(thinking),
            Block::Opaque { json, .. } => self.text(json.as_str(), Nature::Code),
        }
    }

    fn result(&mut self, result: &ToolResult) -> u64 {
        let content = match &result.content {
            ResultContent::None => 0,
            ResultContent::Text(text) => self.text(text, Nature::Code),
            ResultContent::Blocks(blocks) => blocks.iter().map(|block| self.nested(block)).sum(),
        };
        CALL_TOKENS + content
    }

    /// Text in a result is output of a program more often than prose.
    fn nested(&mut self, block: &Block) -> u64 {
        match block {
            Block::Text { text, .. } => self.text(text, Nature::Code),
            other => self.block(other),
        }
    }

    /// The tokens of a block of thinking.
    pub fn thinking(&mut self, thinking: &Thinking) -> u64 {
        match thinking {
            Thinking::Plain { thinking, .. } => self.text(thinking, Nature::Prose),
            Thinking::Redacted { data, .. } => self.text(data, Nature::Prose),
        }
    }

    /// The tokens of a picture or a document.
    pub fn media(&mut self, media: &Media) -> u64 {
        let MediaSource::Base64 { media_type, data } = &media.source else {
            return self.media_tokens.into();
        };
        if let By::Reading(reading) = &mut self.by {
            reading.pass_over(data.len());
        }
        if media.kind == MediaKind::Document && media_type.starts_with("text/") {
            // A document's text is roughly its bytes: base64 is four characters for three of them.
            return (data.len() as u64 * 3 / 4) / 4;
        }
        self.media_tokens.into()
    }

    /// The tokens of a text.
    pub fn text(&mut self, text: &str, nature: Nature) -> u64 {
        match &mut self.by {
            By::Bytes => bytes::count(text, nature),
            By::Reading(reading) => reading.text(text, nature),
        }
    }
}

fn short(tokens: u64) -> u32 {
    u32::try_from(tokens).unwrap_or(u32::MAX)
}
