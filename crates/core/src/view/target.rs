//! The target of a view: the provider, the model and the request options.

use crate::message::{Digest, Message, MessageOrigin};
use crate::models::ModelTable;
use crate::policy::WindowHint;

/// The API for which a view is rendered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Provider {
    /// Anthropic's Messages API, and compatible servers.
    #[default]
    Anthropic,
    /// OpenAI's Chat Completions API, and compatible servers.
    OpenAi,
    /// Amazon Bedrock's Converse API with Anthropic's models. The array equals Anthropic's, block for block. Only cache
    /// breakpoints have their own form and rules. Bedrock has its own prompt cache, so it is a separate provider here.
    Bedrock,
    /// OpenAI's Responses API, and compatible servers. The array consists of items.
    OpenAiResponses,
}

impl Provider {
    /// Returns true if both providers have the same format of messages.
    pub const fn has_format_of(self, other: Self) -> bool {
        match (self, other) {
            (Self::Anthropic | Self::Bedrock, Self::Anthropic | Self::Bedrock)
            | (Self::OpenAi, Self::OpenAi)
            | (Self::OpenAiResponses, Self::OpenAiResponses) => true,
            (Self::Anthropic | Self::Bedrock | Self::OpenAi | Self::OpenAiResponses, _) => false,
        }
    }

    /// Returns true if the provider accepts the array in Anthropic's form.
    pub const fn is_anthropic(self) -> bool {
        matches!(self, Self::Anthropic | Self::Bedrock)
    }

    /// Returns the origin of messages in the provider's format.
    pub const fn origin(self) -> MessageOrigin {
        match self {
            Self::Anthropic | Self::Bedrock => MessageOrigin::Anthropic,
            Self::OpenAi => MessageOrigin::OpenAi,
            Self::OpenAiResponses => MessageOrigin::OpenAiResponses,
        }
    }

    /// Returns true if the provider defines the unknown fields and the unknown blocks of messages with this origin.
    pub(crate) fn accepts_unknown_fields_of(self, origin: MessageOrigin) -> bool {
        origin == MessageOrigin::Typed || origin == self.origin()
    }

    /// Returns the maximum length of a call id, in characters.
    pub const fn max_call_id_len(self) -> usize {
        match self {
            Self::Anthropic | Self::Bedrock | Self::OpenAiResponses => 64,
            // Chat Completions rejects a `tool_calls[].id` with more than 40 characters.
            Self::OpenAi => 40,
        }
    }

    /// Returns the maximum length of a tool name, in characters.
    pub const fn max_tool_name_len(self) -> usize {
        match self {
            Self::Anthropic | Self::Bedrock | Self::OpenAiResponses => 128,
            Self::OpenAi => 64,
        }
    }
}

/// The provider, model and options for which a view is rendered. Two targets may see different blocks of the same
/// pieces: thinking is returned only to the model that wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Target {
    /// The API that receives the view.
    pub provider: Provider,
    /// The model that receives the view. Empty if the caller does not name it.
    pub model: Box<str>,
    /// True if the request enables extended thinking.
    pub thinking: bool,
    /// True if the provider accepts messages with the role `system` inside the array. Only Anthropic's Messages API has
    /// such messages.
    pub system_messages: bool,
}

/// The parts of a target that a call states. The other parts are those of the last served view.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TargetOverride {
    /// The provider.
    pub provider: Option<Provider>,
    /// The format of the messages that the call brings. It replaces the provider of the last serving if that has another
    /// format, so that callers get the format that they send.
    pub format: Option<Provider>,
    /// The model.
    pub model: Option<Box<str>>,
    /// True if the request enables extended thinking.
    pub thinking: Option<bool>,
    /// True if the provider accepts messages with the role `system` inside the array.
    pub system_messages: Option<bool>,
    /// The caller's statement about the model's context window.
    pub window: Option<WindowHint>,
    /// The sizes of the stated model from the table of models. `None` if the call states no model, or an unknown one.
    pub known: Option<WindowHint>,
}

impl TargetOverride {
    /// Looks up the stated model in the table of models. The result applies if neither the call nor the policy states a
    /// window.
    #[must_use]
    pub fn with_models(mut self, models: &ModelTable) -> Self {
        let spec = self.model.as_deref().and_then(|model| models.find(model));
        self.known = spec.map(|spec| spec.window());
        self
    }
}

impl Target {
    /// Returns a 16-byte digest that identifies this target.
    pub fn digest(&self) -> Digest {
        // The names are part of etags that callers hold, so they must not change.
        let provider = match self.provider {
            Provider::Anthropic => "anthropic",
            Provider::OpenAi => "openai",
            Provider::Bedrock => "bedrock",
            Provider::OpenAiResponses => "openai-responses",
        };
        let system = if self.system_messages { "+system" } else { "" };
        let text = format!("{provider}{system}\0{}\0{}", self.thinking, self.model);
        Digest::of_bytes(text.as_bytes())
    }

    /// Returns true if operator messages keep their role inside the array.
    pub(crate) fn takes_system_messages(&self) -> bool {
        self.provider == Provider::Anthropic && self.system_messages
    }

    /// Returns true if messages of this role are sent outside the array.
    pub(crate) fn sends_separately(&self, role: WireRole) -> bool {
        self.provider.is_anthropic() && role == WireRole::System
    }

    /// Returns true if the thinking in a message is returned to this target. An unknown model on either side matches.
    pub(crate) fn accepts_thinking_of(&self, message: &Message) -> bool {
        let is_accepted = match (self.provider, message.origin) {
            // Anthropic's APIs define neither form of the other.
            (Provider::OpenAiResponses, origin) => origin == MessageOrigin::OpenAiResponses,
            (_, MessageOrigin::OpenAiResponses) => false,
            (provider, _) => provider.is_anthropic() && self.thinking,
        };
        // A signature is valid only for the model that wrote the thinking.
        is_accepted
            && (self.model.is_empty()
                || message.model.is_none()
                || message.model.as_deref() == Some(&*self.model))
    }

    /// Returns true if this target defines the unknown fields of messages with this origin.
    pub(crate) fn accepts_unknown_fields_of(&self, origin: MessageOrigin) -> bool {
        self.provider.accepts_unknown_fields_of(origin)
    }
}

/// The role of a wire message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireRole {
    /// The operator's system prompt.
    System,
    /// The operator, under OpenAI's newer role name.
    Developer,
    /// The operator, inside the array of Anthropic's Messages API. The name of the role is `system` there too.
    Operator,
    /// The user, and the tools where the provider has no role for them.
    User,
    /// The model.
    Assistant,
    /// A tool, if the provider has a separate role for tools.
    Tool,
}
