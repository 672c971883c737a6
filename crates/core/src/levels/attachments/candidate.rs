//! One thing that a compaction may attach, with its size.

use crate::event::{AttachmentKind, AttachmentRecord};
use crate::ids::{MessageId, Ordinal};
use crate::message::{Block, Message, MessageKind, Role};
use crate::tokens::{Counter, Size, head_within};

/// Something to attach.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is told apart")]
pub(crate) struct AttachmentCandidate {
    pub(crate) kind: AttachmentKind,
    pub(crate) name: Box<str>,
    /// The texts of its blocks.
    pub(crate) texts: Vec<Box<str>>,
    pub(crate) truncated: bool,
    pub(crate) stale: bool,
    /// Whether leaving it out loses edits.
    pub(super) edited: bool,
    /// Whether it is left out.
    pub(crate) omitted: bool,
    pub(crate) size: Size,
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
            size: Size::default(),
        }
    }

    /// The same with its size.
    pub(super) fn counted(mut self, counter: Counter) -> Self {
        // The id is no part of the size.
        self.size = counter.message(&self.message(MessageId::new(uuid::Uuid::nil())));
        self
    }

    /// The message that holds it.
    pub(crate) fn message(&self, id: MessageId) -> Message {
        let blocks = self.texts.iter().map(|text| Block::text(text.clone()));
        let mut message = Message::new(id, Role::User, blocks.collect());
        message.kind = MessageKind::Attachment;
        message.machine_generated = true;
        message
    }

    /// What is told of it.
    pub(crate) fn told(&self, message: Option<Ordinal>) -> AttachmentRecord {
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

/// The beginning of a text within so many tokens, on a line's end where one is near, and whether it was
/// cut.
pub(super) fn within(text: &str, max_tokens: u32) -> (&str, bool) {
    let cut = head_within(text, max_tokens);
    if cut.len() == text.len() {
        return (text, false);
    }
    match cut.rfind('\n') {
        Some(line) if line > cut.len() / 2 => (&cut[..line], true),
        _ => (cut, true),
    }
}
