//! The blocks of a message.

use super::{Media, MediaKind, MediaSource};
use crate::json::{RawJson, UnknownFields};

/// One block of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Block {
    /// Text.
    Text {
        /// The text.
        text: Box<str>,
        /// Fields that the service does not interpret.
        extra: UnknownFields,
    },
    /// An image or a document.
    Media(Media),
    /// A tool call by the model.
    ToolUse(ToolUse),
    /// The result of a tool call.
    ToolResult(ToolResult),
    /// The model's reasoning. It may only be returned verbatim to the model that wrote it.
    Thinking(Thinking),
    /// A block of an unknown type, kept byte for byte.
    Opaque {
        /// The value of the field `type`.
        kind: Box<str>,
        /// The whole block.
        json: RawJson,
    },
}

/// A tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolUse {
    /// The provider's id of the call. It can repeat within a session.
    pub id: Box<str>,
    /// The name of the tool.
    pub name: Box<str>,
    /// The arguments as the model wrote them.
    pub input: ToolInput,
    /// Fields that the service does not interpret.
    pub extra: UnknownFields,
}

impl ToolUse {
    /// Returns the kind of the call.
    pub fn kind(&self) -> CallKind {
        CallKind::of(&self.extra, CallKind::call_type)
    }
}

impl ToolResult {
    /// Returns the kind of the answered call.
    pub fn kind(&self) -> CallKind {
        CallKind::of(&self.extra, CallKind::output_type)
    }
}

/// The kind of a tool call. Only OpenAI's Responses API distinguishes them by the types of items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CallKind {
    /// A call of a function. All other APIs have only this kind.
    #[default]
    Function,
    /// A call of a custom tool, whose input is a text.
    Custom,
    /// A command for the built-in local shell.
    LocalShell,
    /// Commands for the built-in shell.
    Shell,
    /// A patch for the built-in patch tool.
    ApplyPatch,
}

impl CallKind {
    /// All kinds.
    pub const ALL: [Self; 5] = [
        Self::Function,
        Self::Custom,
        Self::LocalShell,
        Self::Shell,
        Self::ApplyPatch,
    ];

    /// Returns the type of a call in the Responses API.
    pub const fn call_type(self) -> &'static str {
        match self {
            Self::Function => "function_call",
            Self::Custom => "custom_tool_call",
            Self::LocalShell => "local_shell_call",
            Self::Shell => "shell_call",
            Self::ApplyPatch => "apply_patch_call",
        }
    }

    /// Returns the type of an output in the Responses API.
    pub const fn output_type(self) -> &'static str {
        match self {
            Self::Function => "function_call_output",
            Self::Custom => "custom_tool_call_output",
            Self::LocalShell => "local_shell_call_output",
            Self::Shell => "shell_call_output",
            Self::ApplyPatch => "apply_patch_call_output",
        }
    }

    /// Returns the kind that the unknown field `type` names. The reader keeps the field for other kinds than functions.
    fn of(extra: &UnknownFields, name: impl Fn(Self) -> &'static str) -> Self {
        let Some(found) = extra.get("type") else {
            return Self::Function;
        };
        // The value is JSON text, so a string still has its quotes.
        let is_named = |kind: &Self| found.as_str().trim_matches('"') == name(*kind);
        Self::ALL.into_iter().find(is_named).unwrap_or_default()
    }
}

/// The input of a tool call, verbatim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolInput {
    /// A JSON object.
    Object(RawJson),
    /// Any other text that a model wrote in place of an object.
    Text(Box<str>),
}

impl ToolInput {
    /// Classifies a text as an object or as other text.
    pub fn parse(text: &str) -> Self {
        match RawJson::parse(text) {
            Ok(json) if json.is_object() => Self::Object(json),
            _ => Self::Text(text.into()),
        }
    }

    /// Returns the text of either variant.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Object(json) => json.as_str(),
            Self::Text(text) => text,
        }
    }
}

/// A tool result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolResult {
    /// The id of the answered call, as the caller sent it.
    pub tool_use_id: Box<str>,
    /// The output of the tool.
    pub content: ResultContent,
    /// True if the tool failed. `None` if the caller omitted the field, which must stay omitted.
    pub is_error: Option<bool>,
    /// Fields that the service does not interpret.
    pub extra: UnknownFields,
}

/// The output of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResultContent {
    /// No content.
    None,
    /// A string.
    Text(Box<str>),
    /// A list of blocks, such as text and images.
    Blocks(Vec<Block>),
}

/// The model's reasoning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Thinking {
    /// Readable reasoning with the provider's signature.
    Plain {
        /// The text of the reasoning.
        thinking: Box<str>,
        /// The signature. Providers reject thinking without a signature.
        signature: Option<Box<str>>,
        /// Fields that the service does not interpret.
        extra: UnknownFields,
    },
    /// Reasoning that the provider encrypted.
    Redacted {
        /// The encrypted data.
        data: Box<str>,
        /// Fields that the service does not interpret.
        extra: UnknownFields,
    },
}

impl Thinking {
    /// Returns the fields that the service does not interpret.
    pub fn extra(&self) -> &UnknownFields {
        match self {
            Self::Plain { extra, .. } | Self::Redacted { extra, .. } => extra,
        }
    }

    /// Returns true if the provider accepts the block in a later request.
    pub fn is_returnable(&self) -> bool {
        match self {
            Self::Plain { signature, .. } => signature.as_deref().is_some_and(|s| !s.is_empty()),
            Self::Redacted { data, .. } => !data.is_empty(),
        }
    }
}

impl Block {
    /// Creates a text block without unknown fields.
    pub fn text(text: impl Into<Box<str>>) -> Self {
        Self::Text {
            text: text.into(),
            extra: UnknownFields::default(),
        }
    }

    /// Returns true for a text block that is empty or only white space. Providers reject such
    /// blocks.
    pub fn is_blank(&self) -> bool {
        matches!(self, Self::Text { text, .. } if text.trim().is_empty())
    }

    /// Returns the size of the content in bytes.
    pub fn content_bytes(&self) -> usize {
        match self {
            Self::Text { text, .. } => text.len(),
            Self::Media(Media { source, .. }) => match source {
                MediaSource::Base64 { data, .. } => data.len(),
                MediaSource::Url(url) => url.len(),
                MediaSource::Other(json) => json.as_str().len(),
            },
            Self::ToolUse(call) => call.input.as_str().len(),
            Self::ToolResult(result) => Self::result_bytes(result),
            Self::Thinking(Thinking::Plain { thinking, .. }) => thinking.len(),
            Self::Thinking(Thinking::Redacted { data, .. }) => data.len(),
            Self::Opaque { json, .. } => json.as_str().len(),
        }
    }

    /// Returns the size of a result's content in bytes.
    pub fn result_bytes(result: &ToolResult) -> usize {
        match &result.content {
            ResultContent::None => 0,
            ResultContent::Text(text) => text.len(),
            ResultContent::Blocks(blocks) => blocks.iter().map(Self::content_bytes).sum(),
        }
    }

    /// Returns the number of images that a provider accepts, including those inside a result.
    pub fn image_count(&self) -> u16 {
        match self {
            Self::Media(media) => {
                u16::from(media.kind == MediaKind::Image && media.problem().is_none())
            }
            Self::ToolResult(ToolResult {
                content: ResultContent::Blocks(blocks),
                ..
            }) => blocks
                .iter()
                .map(Self::image_count)
                .fold(0, u16::saturating_add),
            _ => 0,
        }
    }

    /// Returns true if the block is a tool call.
    pub const fn is_call(&self) -> bool {
        matches!(self, Self::ToolUse(_))
    }

    /// Returns true if the block is thinking.
    pub fn is_thinking(&self) -> bool {
        matches!(self, Self::Thinking(_))
    }
}
