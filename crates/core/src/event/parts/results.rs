//! Stored results, and persist decisions about results whose messages were not appended yet.

use crate::ids::{CallKey, PersistDecisionKey};
use crate::message::{Block, Digest, ResultContent};
use crate::view::NO_OUTPUT;

/// A decision about a result whose message was not appended yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersistDecision {
    /// The key of the decision.
    pub key: PersistDecisionKey,
    /// The caller's `tool_use_id`.
    pub tool_use_id: Box<str>,
    /// The name of the tool.
    pub tool: Box<str>,
    /// The call. `None` if its message was not appended yet.
    pub call: Option<CallKey>,
    /// The digest of the tool's result.
    pub content: Digest,
    /// The decision.
    pub verdict: Verdict,
    /// The stored file and the replacement text. `None` if the result was not stored.
    pub stored: Option<UnboundResult>,
}

/// A stored result and its replacement text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredResult {
    /// The call that the result answers.
    pub call: CallKey,
    /// The name of the file among the session's stored results.
    pub file: Box<str>,
    /// SHA-256 of the file's content.
    pub sha256: [u8; 32],
    /// Size of the file, in bytes.
    pub bytes: u64,
    /// Estimated tokens of the original.
    pub tokens: u32,
    /// The replacement text, which the model sees.
    pub replacement: Box<str>,
    /// Estimated tokens of the replacement text.
    pub replacement_tokens: u32,
    /// True if the caller appended the replacement text. The transcript then lacks the original, which exists only in
    /// the file.
    pub original_only_in_file: bool,
}

/// A stored result that is not bound to a call yet. A caller may request a decision before the call is appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnboundResult {
    /// The name of the file among the session's stored results.
    pub file: Box<str>,
    /// SHA-256 of the file's content.
    pub sha256: [u8; 32],
    /// Size of the file, in bytes.
    pub bytes: u64,
    /// Estimated tokens of the original.
    pub tokens: u32,
    /// The replacement text, which the model sees.
    pub replacement: Box<str>,
    /// Estimated tokens of the replacement text.
    pub replacement_tokens: u32,
}

impl UnboundResult {
    /// Binds the result to a call.
    #[must_use]
    pub fn bind(self, call: CallKey, original_only_in_file: bool) -> StoredResult {
        StoredResult {
            call,
            file: self.file,
            sha256: self.sha256,
            bytes: self.bytes,
            tokens: self.tokens,
            replacement: self.replacement,
            replacement_tokens: self.replacement_tokens,
            original_only_in_file,
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
            replacement: stored.replacement.clone(),
            replacement_tokens: stored.replacement_tokens,
        }
    }
}

/// Returns the text of a result that consists of one text, either a string or a single text block. Callers append a
/// replacement text in both forms.
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

/// A decision about one result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The result is stored. A preview and a reference replace it in the view.
    Persist,
    /// The result is within its limit.
    UnderLimit,
    /// The tool's rule forbids a replacement.
    Never,
    /// The result is empty. A fixed line replaces it.
    Empty,
    /// The result contains an image.
    Image,
    /// The result is a replacement text already.
    Replacement,
    /// The policy disables level 1.
    Disabled,
    /// The result could not be stored.
    StoreFailed,
}

impl Verdict {
    /// Returns the fixed line that replaces a result that is not stored. `None` if the result itself is shown.
    pub const fn fixed_replacement(self) -> Option<&'static str> {
        match self {
            Self::Empty => Some(NO_OUTPUT),
            _ => None,
        }
    }
}
