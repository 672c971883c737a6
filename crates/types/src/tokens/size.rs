//! How large messages are, by kind of content.

use crate::message::{MessageKind, Role};

/// A message's size by kind of content; what a message costs beside its content counts as said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TokenBreakdown {
    /// What the operator says.
    pub system: u64,
    /// What users and models say, and calls.
    pub messages: u64,
    /// What tools say.
    pub results: u64,
    /// Summaries.
    pub memory: u64,
    /// Attachments, and what hooks say.
    pub attachments: u64,
}

impl TokenBreakdown {
    /// The sum.
    pub const fn total(&self) -> u64 {
        self.system + self.messages + self.results + self.memory + self.attachments
    }

    /// Counts a message of this size in.
    pub(super) fn add(&mut self, kind: MessageKind, role: Role, size: Size) {
        self.results += u64::from(size.result_tokens);
        *self.of(kind, role) += size.rest();
    }

    /// Counts a message of this size out.
    pub(super) fn subtract(&mut self, kind: MessageKind, role: Role, size: Size) {
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

/// A message's estimated size. It is written down with the message, so that a better estimator never
/// changes what an old session counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Size {
    /// All of it.
    pub tokens: u32,
    /// The part that is results of tools.
    pub result_tokens: u32,
}

impl Size {
    /// The part that is not results of tools.
    const fn rest(self) -> u64 {
        self.tokens.saturating_sub(self.result_tokens) as u64
    }

    /// The same with a result of another size.
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

    /// The same with another block that is no result.
    #[must_use]
    pub const fn with_block(self, before: u32, after: u32) -> Self {
        Self {
            tokens: self.tokens.saturating_sub(before).saturating_add(after),
            ..self
        }
    }
}
