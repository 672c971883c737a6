//! One candidate for attachment after a compaction, with its size.

use crate::event::{AttachmentKind, AttachmentRecord};
use crate::ids::{MessageId, Ordinal};
use crate::message::{Block, Message, MessageKind, Role};
use crate::tokens::{TokenCounter, TokenSize, head_within};

/// Content that a compaction may attach.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is told apart")]
pub(crate) struct AttachmentCandidate {
    pub(crate) kind: AttachmentKind,
    pub(crate) name: Box<str>,
    /// The texts of the message's blocks.
    pub(crate) texts: Vec<Box<str>>,
    pub(crate) truncated: bool,
    pub(crate) stale: bool,
    /// True if an omission loses edits.
    pub(super) edited: bool,
    /// True if the candidate is not attached.
    pub(crate) omitted: bool,
    pub(crate) size: TokenSize,
}

impl AttachmentCandidate {
    pub(super) fn new(kind: AttachmentKind, name: &str, texts: Vec<Box<str>>) -> Self {
        Self {
            kind,
            name: name.into(),
            texts,
            truncated: false,
            stale: false,
            edited: false,
            omitted: false,
            size: TokenSize::default(),
        }
    }

    /// Computes the size and returns the candidate with it.
    pub(super) fn with_size(mut self, counter: TokenCounter) -> Self {
        // The id does not influence the size, so a nil id is sufficient.
        self.size = counter.message(&self.message(MessageId::new(uuid::Uuid::nil())));
        self
    }

    pub(crate) fn message(&self, id: MessageId) -> Message {
        let blocks = self.texts.iter().map(|text| Block::text(text.clone()));
        let mut message = Message::new(id, Role::User, blocks.collect());
        message.kind = MessageKind::Attachment;
        message.machine_generated = true;
        message
    }

    /// Returns the record of this candidate. `message` is its message, or `None` if the candidate was omitted.
    pub(crate) fn to_record(&self, message: Option<Ordinal>) -> AttachmentRecord {
        AttachmentRecord {
            kind: self.kind,
            name: self.name.clone(),
            message,
            tokens: self.size.tokens,
            truncated: self.truncated,
            stale: self.stale || (message.is_none() && self.edited),
        }
    }
}

/// Returns the beginning of a text with at most `max_tokens` tokens, and true if the text was cut. The cut is at a line
/// end if one exists in the second half.
pub(super) fn truncate_to_tokens(text: &str, max_tokens: u32) -> (&str, bool) {
    // A line end in the first half is ignored, because the cut would waste more than half of the limit.
    let cut = head_within(text, max_tokens);
    if cut.len() == text.len() {
        return (text, false);
    }
    match cut.rfind('\n') {
        Some(line) if line > cut.len() / 2 => (&cut[..line], true),
        _ => (cut, true),
    }
}
