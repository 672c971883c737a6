//! The blocks of a message.

use super::{Media, MediaKind, MediaSource};
use crate::json::{RawJson, UnknownFields};

/// One block of a message's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Block {
    /// Words.
    Text {
        /// The words.
        text: Box<str>,
        /// Unknown fields.
        extra: UnknownFields,
    },
    /// A picture or a document.
    Media(Media),
    /// The model calls a tool.
    ToolUse(ToolUse),
    /// A tool has answered.
    ToolResult(ToolResult),
    /// The model's reasoning. It goes back verbatim to the model that wrote it, or not at all.
    Thinking(Thinking),
    /// A type that we do not know, kept byte for byte.
    Opaque {
        /// What its `type` says.
        kind: Box<str>,
        /// The whole block.
        json: RawJson,
    },
}

/// A call of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolUse {
    /// The caller's id. It may repeat in a session.
    pub id: Box<str>,
    /// The tool.
    pub name: Box<str>,
    /// What the model wrote.
    pub input: ToolInput,
    /// Unknown fields.
    pub extra: UnknownFields,
}

/// A call's input, verbatim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolInput {
    /// A JSON object.
    Object(RawJson),
    /// Anything else that a model wrote where an object belongs.
    Text(Box<str>),
}

impl ToolInput {
    /// Sorts a text into one of the two.
    pub fn parse(text: &str) -> Self {
        match RawJson::parse(text) {
            Ok(json) if json.is_object() => Self::Object(json),
            _ => Self::Text(text.into()),
        }
    }

    /// The text, whichever it is.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Object(json) => json.as_str(),
            Self::Text(text) => text,
        }
    }
}

/// A tool's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolResult {
    /// The id of the call that it answers, as the caller wrote it.
    pub tool_use_id: Box<str>,
    /// What the tool said.
    pub content: ResultContent,
    /// Whether the tool failed. Callers leave the field out, and that must stay so.
    pub is_error: Option<bool>,
    /// Unknown fields.
    pub extra: UnknownFields,
}

/// What a tool said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResultContent {
    /// Nothing at all.
    None,
    /// A string.
    Text(Box<str>),
    /// Blocks: text, pictures and what else there may be.
    Blocks(Vec<Block>),
}

/// The model's reasoning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Thinking {
    /// In words, with the provider's signature.
    Plain {
        /// The words.
        thinking: Box<str>,
        /// The signature; without one a provider takes no thinking back.
        signature: Option<Box<str>>,
        /// Unknown fields.
        extra: UnknownFields,
    },
    /// Encrypted by the provider.
    Redacted {
        /// The cipher text.
        data: Box<str>,
        /// Unknown fields.
        extra: UnknownFields,
    },
}

impl Thinking {
    /// Unknown fields.
    pub fn extra(&self) -> &UnknownFields {
        match self {
            Self::Plain { extra, .. } | Self::Redacted { extra, .. } => extra,
        }
    }

    /// Whether a provider takes it back.
    pub fn is_returnable(&self) -> bool {
        match self {
            Self::Plain { signature, .. } => signature.as_deref().is_some_and(|s| !s.is_empty()),
            Self::Redacted { data, .. } => !data.is_empty(),
        }
    }
}

impl Block {
    /// Words without unknown fields.
    pub fn text(text: impl Into<Box<str>>) -> Self {
        Self::Text {
            text: text.into(),
            extra: UnknownFields::default(),
        }
    }

    /// Whether it is text that shows nothing: providers refuse such blocks.
    pub fn is_blank(&self) -> bool {
        matches!(self, Self::Text { text, .. } if text.trim().is_empty())
    }

    /// The size of its content.
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

    /// The size of a result's content.
    pub fn result_bytes(result: &ToolResult) -> usize {
        match &result.content {
            ResultContent::None => 0,
            ResultContent::Text(text) => text.len(),
            ResultContent::Blocks(blocks) => blocks.iter().map(Self::content_bytes).sum(),
        }
    }

    /// How many pictures it holds that a provider takes.
    pub fn pictures(&self) -> u16 {
        match self {
            Self::Media(media) => {
                u16::from(media.kind == MediaKind::Image && media.problem().is_none())
            }
            Self::ToolResult(ToolResult {
                content: ResultContent::Blocks(blocks),
                ..
            }) => blocks
                .iter()
                .map(Self::pictures)
                .fold(0, u16::saturating_add),
            _ => 0,
        }
    }

    /// Whether it is a call of a tool.
    pub const fn is_call(&self) -> bool {
        matches!(self, Self::ToolUse(_))
    }

    /// Whether it is reasoning.
    pub fn is_thinking(&self) -> bool {
        matches!(self, Self::Thinking(_))
    }
}
