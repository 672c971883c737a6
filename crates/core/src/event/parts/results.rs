//! Stored results, and decisions about results whose message has not arrived.

use crate::ids::{CallKey, PersistDecisionKey};
use crate::message::{Block, Digest, ResultContent};
use crate::view::NO_OUTPUT;

/// A result about which a caller has asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersistDecision {
    /// Its number.
    pub key: PersistDecisionKey,
    /// The caller's id of the call.
    pub tool_use_id: Box<str>,
    /// The tool.
    pub tool: Box<str>,
    /// The call, when its message is there.
    pub call: Option<CallKey>,
    /// What the tool returned, in short.
    pub content: Digest,
    /// What was decided.
    pub verdict: Verdict,
    /// Where the result is and what stands in its place, when it was stored.
    pub kept: Option<UnboundResult>,
}

/// A result that was stored, and what stands in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredResult {
    /// The call.
    pub call: CallKey,
    /// The name of its file among the session's results.
    pub file: Box<str>,
    /// The SHA-256 of what is in the file.
    pub sha256: [u8; 32],
    /// The size of the file.
    pub bytes: u64,
    /// The original's estimated tokens.
    pub tokens: u32,
    /// What the model sees.
    pub text: Box<str>,
    /// Its estimated tokens.
    pub text_tokens: u32,
    /// Whether the transcript holds no more than what the model sees, because that is what the caller
    /// appended: the original is in the file alone.
    pub only_file: bool,
}

/// The same before it belongs to a call: a caller may ask what becomes of a result before the call is
/// known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnboundResult {
    /// The name of its file among the session's results.
    pub file: Box<str>,
    /// The SHA-256 of what is in the file.
    pub sha256: [u8; 32],
    /// The size of the file.
    pub bytes: u64,
    /// The original's estimated tokens.
    pub tokens: u32,
    /// What the model sees.
    pub text: Box<str>,
    /// Its estimated tokens.
    pub text_tokens: u32,
}

impl UnboundResult {
    /// The result of a call.
    #[must_use]
    pub fn of(self, call: CallKey, only_file: bool) -> StoredResult {
        StoredResult {
            call,
            file: self.file,
            sha256: self.sha256,
            bytes: self.bytes,
            tokens: self.tokens,
            text: self.text,
            text_tokens: self.text_tokens,
            only_file,
        }
    }
}

impl From<&StoredResult> for UnboundResult {
    fn from(stored: &StoredResult) -> Self {
        Self {
            file: stored.file.clone(),
            sha256: stored.sha256,
            bytes: stored.bytes,
            tokens: stored.tokens,
            text: stored.text.clone(),
            text_tokens: stored.text_tokens,
        }
    }
}

/// What a result says, when it says it in one text: as a string, or as the only block. What a caller
/// is given in place of a result comes back in either form.
pub fn only_text(content: &ResultContent) -> Option<&str> {
    match content {
        ResultContent::Text(text) => Some(text),
        ResultContent::Blocks(blocks) => match blocks.as_slice() {
            [Block::Text { text, .. }] => Some(text),
            _ => None,
        },
        ResultContent::None => None,
    }
}

/// What was decided about one result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It is stored; a preview and a reference replace it.
    Persist,
    /// It is within its limit.
    UnderLimit,
    /// Its rule says that it is never replaced.
    Never,
    /// It is empty; a line that says so replaces it.
    Empty,
    /// It holds a picture.
    Image,
    /// It is a replacement already.
    Replacement,
    /// The policy turns the level off.
    Disabled,
    /// It could not be stored.
    StoreFailed,
}

impl Verdict {
    /// What the model is told in place of a result that is not stored; none when that is the result.
    pub const fn line(self) -> Option<&'static str> {
        match self {
            Self::Empty => Some(NO_OUTPUT),
            _ => None,
        }
    }
}
