//! Message sizes in tokens, by kind of content.

use crate::message::{MessageKind, Role};

/// The size of a view by kind of content, in tokens. The overhead of a message counts as part of its
/// kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TokenBreakdown {
    /// Messages of the operator.
    pub system: u64,
    /// Messages of users and models, including tool calls.
    pub messages: u64,
    /// Tool results.
    pub results: u64,
    /// Summaries.
    pub memory: u64,
    /// Attachments and hook output.
    pub attachments: u64,
}

impl TokenBreakdown {
    /// Returns the sum of all kinds.
    pub const fn total(&self) -> u64 {
        self.system + self.messages + self.results + self.memory + self.attachments
    }

    /// Adds a message of this size.
    pub(super) fn add(&mut self, kind: MessageKind, role: Role, size: TokenSize) {
        self.results += u64::from(size.result_tokens);
        *self.of(kind, role) += size.rest();
    }

    /// Subtracts a message of this size. Saturates at 0.
    pub(super) fn subtract(&mut self, kind: MessageKind, role: Role, size: TokenSize) {
        self.results = self.results.saturating_sub(size.result_tokens.into());
        let part = self.of(kind, role);
        *part = part.saturating_sub(size.rest());
    }

    fn of(&mut self, kind: MessageKind, role: Role) -> &mut u64 {
        match kind {
            MessageKind::Summary => &mut self.memory,
            MessageKind::Attachment | MessageKind::Hook => &mut self.attachments,
            _ if role.is_system() => &mut self.system,
            MessageKind::Ordinary | MessageKind::Boundary | MessageKind::Synthetic => {
                &mut self.messages
            }
        }
    }
}

/// The estimated size of a message. The size is stored with the message, so that another estimator
/// version never changes the counts of an existing session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TokenSize {
    /// The size of the whole message, in tokens.
    pub tokens: u32,
    /// The share of tool results, in tokens.
    pub result_tokens: u32,
}

impl TokenSize {
    /// Returns the size without tool results, in tokens.
    const fn rest(self) -> u64 {
        self.tokens.saturating_sub(self.result_tokens) as u64
    }

    /// Returns the size after a tool result changed from `before` to `after` tokens.
    #[must_use]
    pub const fn with_result(self, before: u32, after: u32) -> Self {
        Self {
            tokens: self.tokens.saturating_sub(before).saturating_add(after),
            result_tokens: self
                .result_tokens
                .saturating_sub(before)
                .saturating_add(after),
        }
    }

    /// Returns the size after another block changed from `before` to `after` tokens.
    #[must_use]
    pub const fn with_block(self, before: u32, after: u32) -> Self {
        Self {
            tokens: self.tokens.saturating_sub(before).saturating_add(after),
            ..self
        }
    }
}
