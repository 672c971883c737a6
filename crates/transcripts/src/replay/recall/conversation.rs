//! The messages of a conversation as one text, in which names are searched.

use palimpsest_core::message::{Block, Message, Role};

use super::needs::Name;
use super::shown::last_mention;
use super::texts::push_message;

/// A mention of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mention {
    /// The line of the message.
    pub line: usize,
    /// The part of the conversation.
    pub place: MentionPlace,
    /// The number of messages between the mention and the compaction.
    pub messages_before: usize,
}

/// The parts of a conversation that can mention a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MentionPlace {
    /// A message of the user.
    User,
    /// A message or a call of the model.
    Assistant,
    /// The output of a tool.
    Result,
    /// The summary of an earlier compaction, and other generated messages.
    Generated,
}

impl MentionPlace {
    /// Returns the name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::User => "the user's message",
            Self::Assistant => "the model's message or call",
            Self::Result => "a tool result",
            Self::Generated => "a generated message",
        }
    }
}

/// The text of all messages so far.
#[derive(Default)]
pub(super) struct Conversation {
    pub(super) text: String,
    /// The end of each message in the text.
    messages: Vec<MessageEnd>,
}

struct MessageEnd {
    end: usize,
    line: usize,
    place: MentionPlace,
}

impl Conversation {
    /// Appends a message.
    pub(super) fn push(&mut self, line: usize, message: &Message) {
        push_message(message, &mut self.text);
        let has_results = message
            .blocks
            .iter()
            .any(|block| matches!(block, Block::ToolResult(_)));
        let place = match message.role {
            Role::Assistant => MentionPlace::Assistant,
            _ if has_results => MentionPlace::Result,
            _ if message.is_real_user_input() => MentionPlace::User,
            _ => MentionPlace::Generated,
        };
        self.messages.push(MessageEnd {
            end: self.text.len(),
            line,
            place,
        });
    }

    /// Returns the last mention of a name.
    pub(super) fn last_mention(&self, name: &Name, root: Option<&str>) -> Option<Mention> {
        let at = last_mention(&self.text, name, root)?;
        // The ends ascend, so the first message that ends after the mention contains it.
        let number = self.messages.partition_point(|message| message.end <= at);
        let message = self.messages.get(number)?;
        Some(Mention {
            line: message.line,
            place: message.place,
            messages_before: self.messages.len() - number - 1,
        })
    }
}
