//! Encoding of messages.

use palimpsest_core::ids::Ordinal;
use palimpsest_core::json::{RawJson, UnknownFields};
use palimpsest_core::message::{
    Block, Media, MediaKind, MediaSource, Message, MessageKind, MessageOrigin, ResultContent, Role,
    Thinking, ToolInput, ToolResult, ToolUse,
};
use palimpsest_core::session::Visibility;

use super::error::DecodeError;
use super::stored_as::StoredAs;
use super::v1;

stored_enum! {
    Role = Role { User, Assistant, System, Developer }
    or "a message without a role"
}

stored_enum! {
    MessageKind = Kind { Ordinary, Summary, Boundary, Attachment, Hook, Synthetic }
    or Ordinary
}

stored_enum! {
    MessageOrigin = Origin { Typed, Anthropic, OpenAi = Openai, OpenAiResponses = OpenaiResponses }
    or Typed
}

stored_struct! {
    Message = Message {
        id, parent, role, blocks, provider_message_id, model, usage, kind, transcript_only, origin, extra,
        attributes,
    }
    renamed { at = at_ms, machine_generated = meta }
}

/// One attribute of a message or a session.
impl StoredAs<v1::Attribute> for (Box<str>, Box<str>) {
    fn to_proto(&self) -> v1::Attribute {
        v1::Attribute {
            name: self.0.to_proto(),
            value: self.1.to_proto(),
        }
    }

    fn from_proto(stored: v1::Attribute) -> Result<Self, DecodeError> {
        Ok((stored.name.into(), stored.value.into()))
    }
}

/// Encodes a visibility as two numbers: its kind, and the message that a re-emission repeats.
pub(super) fn write_visibility(visibility: Visibility) -> (i32, u32) {
    let (standing, of) = match visibility {
        Visibility::Visible => (v1::Standing::Visible, 0),
        Visibility::TranscriptOnly => (v1::Standing::TranscriptOnly, 0),
        Visibility::Reemission(of) => (v1::Standing::Reemission, of.get()),
        Visibility::Rewound => (v1::Standing::Rewound, 0),
        Visibility::Snipped => (v1::Standing::Snipped, 0),
        Visibility::Collapsed => (v1::Standing::Collapsed, 0),
        Visibility::Compacted => (v1::Standing::Compacted, 0),
        Visibility::Withdrawn => (v1::Standing::Withdrawn, 0),
        Visibility::Unconfirmed => (v1::Standing::Unconfirmed, 0),
    };
    (standing.into(), of)
}

pub(super) fn read_visibility(standing: i32, of: Ordinal) -> Result<Visibility, DecodeError> {
    // A number of a later release becomes unspecified, which is damage here.
    Ok(match v1::Standing::try_from(standing).unwrap_or_default() {
        v1::Standing::Visible => Visibility::Visible,
        v1::Standing::TranscriptOnly => Visibility::TranscriptOnly,
        v1::Standing::Reemission => Visibility::Reemission(of),
        v1::Standing::Rewound => Visibility::Rewound,
        v1::Standing::Snipped => Visibility::Snipped,
        v1::Standing::Collapsed => Visibility::Collapsed,
        v1::Standing::Compacted => Visibility::Compacted,
        v1::Standing::Withdrawn => Visibility::Withdrawn,
        v1::Standing::Unconfirmed => Visibility::Unconfirmed,
        v1::Standing::Unspecified => {
            return Err(DecodeError::Damaged("an unknown visibility"));
        }
    })
}

/// Fields that the service does not interpret, as a JSON object. Stored as an empty text if there are none.
impl StoredAs<String> for UnknownFields {
    fn to_proto(&self) -> String {
        self.to_object().unwrap_or_default()
    }

    fn from_proto(stored: String) -> Result<Self, DecodeError> {
        if stored.is_empty() {
            return Ok(Self::default());
        }
        Self::from_object(&stored)
            .map_err(|_| DecodeError::Damaged("unknown fields are not an object"))
    }
}

fn raw(text: &str) -> Result<RawJson, DecodeError> {
    RawJson::parse(text).map_err(|_| DecodeError::Damaged("a value is not JSON"))
}

impl StoredAs<v1::Block> for Block {
    fn to_proto(&self) -> v1::Block {
        use v1::block::Block as Stored;
        // Unknown fields are stored beside the block, so that a provider's JSON can be restored byte for byte.
        // An opaque block is stored as a whole and has none.
        let (stored, extra) = match self {
            Block::Text { text, extra } => {
                let text = text.to_string();
                (Stored::Text(v1::Text { text }), extra.to_proto())
            }
            Block::Media(media) => (Stored::Media(write_media(media)), media.extra.to_proto()),
            Block::ToolUse(call) => {
                let input = match &call.input {
                    ToolInput::Object(json) => {
                        v1::tool_use::Input::Object(json.as_str().to_owned())
                    }
                    ToolInput::Text(text) => v1::tool_use::Input::Text(text.to_string()),
                };
                let stored = v1::ToolUse {
                    id: call.id.to_string(),
                    name: call.name.to_string(),
                    input: Some(input),
                };
                (Stored::ToolUse(stored), call.extra.to_proto())
            }
            Block::ToolResult(result) => {
                use v1::tool_result::Content;
                let content = match &result.content {
                    ResultContent::None => None,
                    ResultContent::Text(text) => Some(Content::Text(text.to_string())),
                    ResultContent::Blocks(blocks) => Some(Content::Blocks(v1::Blocks {
                        items: blocks.to_proto(),
                    })),
                };
                let stored = v1::ToolResult {
                    tool_use_id: result.tool_use_id.to_string(),
                    content,
                    is_error: result.is_error,
                };
                (Stored::ToolResult(stored), result.extra.to_proto())
            }
            Block::Thinking(Thinking::Plain {
                thinking,
                signature,
                extra,
            }) => {
                let stored = v1::Thinking {
                    thinking: thinking.to_string(),
                    signature: signature.as_deref().map(str::to_owned),
                };
                (Stored::Thinking(stored), extra.to_proto())
            }
            Block::Thinking(Thinking::Redacted { data, extra }) => {
                let data = data.to_string();
                (Stored::Redacted(v1::Redacted { data }), extra.to_proto())
            }
            Block::Opaque { kind, json } => {
                let stored = v1::Opaque {
                    kind: kind.to_string(),
                    json: json.as_str().to_owned(),
                };
                (Stored::Opaque(stored), String::new())
            }
        };
        v1::Block {
            block: Some(stored),
            extra,
        }
    }

    fn from_proto(stored: v1::Block) -> Result<Self, DecodeError> {
        use v1::block::Block as Stored;
        let extra = StoredAs::from_proto(stored.extra)?;
        // A missing block means that this release does not know its kind.
        let Some(block) = stored.block else {
            return Err(DecodeError::Damaged("a block of an unknown kind"));
        };
        Ok(match block {
            Stored::Text(stored) => Block::Text {
                text: stored.text.into(),
                extra,
            },
            Stored::Media(stored) => Block::Media(read_media(stored, extra)?),
            Stored::ToolUse(stored) => Block::ToolUse(ToolUse {
                id: stored.id.into(),
                name: stored.name.into(),
                input: match stored.input {
                    Some(v1::tool_use::Input::Object(json)) => ToolInput::Object(raw(&json)?),
                    Some(v1::tool_use::Input::Text(text)) => ToolInput::Text(text.into()),
                    None => return Err(DecodeError::Damaged("a call without an input")),
                },
                extra,
            }),
            Stored::ToolResult(stored) => {
                use v1::tool_result::Content;
                let content = match stored.content {
                    None => ResultContent::None,
                    Some(Content::Text(text)) => ResultContent::Text(text.into()),
                    Some(Content::Blocks(blocks)) => {
                        ResultContent::Blocks(StoredAs::from_proto(blocks.items)?)
                    }
                };
                Block::ToolResult(ToolResult {
                    tool_use_id: stored.tool_use_id.into(),
                    content,
                    is_error: stored.is_error,
                    extra,
                })
            }
            Stored::Thinking(stored) => Block::Thinking(Thinking::Plain {
                thinking: stored.thinking.into(),
                signature: stored.signature.map(String::into_boxed_str),
                extra,
            }),
            Stored::Redacted(stored) => Block::Thinking(Thinking::Redacted {
                data: stored.data.into(),
                extra,
            }),
            Stored::Opaque(stored) => Block::Opaque {
                kind: stored.kind.into(),
                json: raw(&stored.json)?,
            },
        })
    }
}

fn write_media(media: &Media) -> v1::Media {
    use v1::media::Source;
    let source = match &media.source {
        MediaSource::Base64 { media_type, data } => Source::Base64(v1::Base64 {
            media_type: media_type.to_string(),
            data: data.to_string(),
        }),
        MediaSource::Url(url) => Source::Url(url.to_string()),
        MediaSource::Other(json) => Source::Other(json.as_str().to_owned()),
    };
    v1::Media {
        document: media.kind == MediaKind::Document,
        source: Some(source),
    }
}

fn read_media(stored: v1::Media, extra: UnknownFields) -> Result<Media, DecodeError> {
    use v1::media::Source;
    let kind = if stored.document {
        MediaKind::Document
    } else {
        MediaKind::Image
    };
    let source = match stored.source {
        Some(Source::Base64(file)) => MediaSource::Base64 {
            media_type: file.media_type.into(),
            data: file.data.into(),
        },
        Some(Source::Url(url)) => MediaSource::Url(url.into()),
        Some(Source::Other(json)) => MediaSource::Other(raw(&json)?),
        None => return Err(DecodeError::Damaged("a picture without a source")),
    };
    Ok(Media {
        kind,
        source,
        extra,
    })
}
