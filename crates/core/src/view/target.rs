//! For whom a view is made.

use crate::message::{Digest, Message, MessageOrigin};

/// Whose API takes the view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Provider {
    /// Anthropic's Messages API, and whoever speaks it.
    #[default]
    Anthropic,
    /// OpenAI's Chat Completions API, and whoever speaks it.
    OpenAi,
    /// Amazon Bedrock's Converse API with Anthropic's models. The array is Anthropic's, block for block;
    /// only cache breakpoints have a form and rules of their own. Its prompt cache is another one than
    /// Anthropic's, which is why it is a provider of its own here.
    Bedrock,
}

impl Provider {
    /// Whether it takes the array in Anthropic's form.
    pub const fn is_anthropic(self) -> bool {
        matches!(self, Self::Anthropic | Self::Bedrock)
    }

    /// The longest id of a call that it takes.
    pub const fn max_call_id_len(self) -> usize {
        match self {
            Self::Anthropic | Self::Bedrock => 64,
            Self::OpenAi => 40,
        }
    }
}

/// For whom a view is made. Two targets may see different blocks of the same pieces: thinking goes
/// back to the model that wrote it, and to no other.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Target {
    /// Whose API takes the view.
    pub provider: Provider,
    /// The model that will read it; empty when the caller does not say.
    pub model: Box<str>,
    /// Whether the request turns extended thinking on.
    pub thinking: bool,
}

impl Target {
    /// Sixteen bytes that stand for this target.
    pub fn digest(&self) -> Digest {
        let provider = match self.provider {
            Provider::Anthropic => "anthropic",
            Provider::OpenAi => "openai",
            Provider::Bedrock => "bedrock",
        };
        let text = format!("{provider}\0{}\0{}", self.thinking, self.model);
        Digest::of_bytes(text.as_bytes())
    }

    /// Whether a wire message of this role stands apart from the array.
    pub(crate) fn takes_apart(&self, role: WireRole) -> bool {
        self.provider.is_anthropic() && role == WireRole::System
    }

    /// Whether the thinking in a message goes back to this target.
    pub(crate) fn takes_thinking_of(&self, message: &Message) -> bool {
        self.provider.is_anthropic()
            && self.thinking
            && (self.model.is_empty()
                || message.model.is_none()
                || message.model.as_deref() == Some(&*self.model))
    }

    /// Whether this target knows the fields that we do not.
    pub(crate) fn takes_extra_of(&self, origin: MessageOrigin) -> bool {
        match origin {
            MessageOrigin::Typed => true,
            MessageOrigin::Anthropic => self.provider.is_anthropic(),
            MessageOrigin::OpenAi => self.provider == Provider::OpenAi,
        }
    }
}

/// Who speaks in a wire message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireRole {
    /// The operator.
    System,
    /// The operator, in the newer word.
    Developer,
    /// The user.
    User,
    /// The model.
    Assistant,
    /// A tool, where the provider gives tools a role of their own.
    Tool,
}
