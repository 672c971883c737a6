//! Encoding of messages.

use palimpsest_core::event::Attributes;
use palimpsest_core::ids::{MessageId, Ordinal, Timestamp};
use palimpsest_core::json::{RawJson, UnknownFields};
use palimpsest_core::message::{
    Block, Media, MediaKind, MediaSource, Message, MessageKind, MessageOrigin, ResultContent, Role,
    Thinking, ToolInput, ToolResult, ToolUse, Usage,
};
use palimpsest_core::session::Visibility;
use uuid::Uuid;

use super::error::{DecodeError, sixteen};
use super::v1;

pub(super) fn write(message: &Message) -> v1::Message {
    v1::Message {
        id: id(message.id),
        parent: message.parent.map(id).unwrap_or_default(),
        role: write_role(message.role).into(),
        blocks: message.blocks.iter().map(write_block).collect(),
        at_ms: message.at.map(Timestamp::as_millis),
        provider_message_id: message.provider_message_id.as_deref().map(str::to_owned),
        model: message.model.as_deref().map(str::to_owned),
        usage: message.usage.as_ref().map(write_usage),
        kind: write_kind(message.kind).into(),
        meta: message.machine_generated,
        transcript_only: message.transcript_only,
        origin: match message.origin {
            MessageOrigin::Typed => v1::Origin::Typed,
            MessageOrigin::Anthropic => v1::Origin::Anthropic,
            MessageOrigin::OpenAi => v1::Origin::Openai,
        }
        .into(),
        extra: write_extra(&message.extra),
        attributes: write_attributes(&message.attributes),
    }
}

pub(super) fn read(stored: v1::Message) -> Result<Message, DecodeError> {
    let kind = read_kind(stored.kind());
    let origin = match stored.origin() {
        // Proto enums default to `Unspecified`, so it must have a meaning here.
        v1::Origin::Unspecified | v1::Origin::Typed => MessageOrigin::Typed,
        v1::Origin::Anthropic => MessageOrigin::Anthropic,
        v1::Origin::Openai => MessageOrigin::OpenAi,
    };
    let parent = match stored.parent.len() {
        0 => None,
        _ => Some(message_id(&stored.parent)?),
    };
    Ok(Message {
        id: message_id(&stored.id)?,
        parent,
        role: read_role(stored.role())?,
        blocks: stored
            .blocks
            .into_iter()
            .map(read_block)
            .collect::<Result<_, _>>()?,
        at: stored.at_ms.map(Timestamp::from_millis),
        provider_message_id: stored.provider_message_id.map(String::into_boxed_str),
        model: stored.model.map(String::into_boxed_str),
        usage: stored.usage.as_ref().map(read_usage),
        kind,
        machine_generated: stored.meta,
        transcript_only: stored.transcript_only,
        origin,
        extra: read_extra(&stored.extra)?,
        attributes: read_attributes(stored.attributes),
    })
}

pub(super) fn write_kind(kind: MessageKind) -> v1::Kind {
    match kind {
        MessageKind::Ordinary => v1::Kind::Ordinary,
        MessageKind::Summary => v1::Kind::Summary,
        MessageKind::Boundary => v1::Kind::Boundary,
        MessageKind::Attachment => v1::Kind::Attachment,
        MessageKind::Hook => v1::Kind::Hook,
        MessageKind::Synthetic => v1::Kind::Synthetic,
    }
}

pub(super) fn read_kind(stored: v1::Kind) -> MessageKind {
    match stored {
        v1::Kind::Unspecified | v1::Kind::Ordinary => MessageKind::Ordinary,
        v1::Kind::Summary => MessageKind::Summary,
        v1::Kind::Boundary => MessageKind::Boundary,
        v1::Kind::Attachment => MessageKind::Attachment,
        v1::Kind::Hook => MessageKind::Hook,
        v1::Kind::Synthetic => MessageKind::Synthetic,
    }
}

pub(super) fn id(id: MessageId) -> bytes::Bytes {
    bytes::Bytes::copy_from_slice(id.get().as_bytes())
}

pub(super) fn message_id(bytes: &[u8]) -> Result<MessageId, DecodeError> {
    Ok(MessageId::new(Uuid::from_bytes(sixteen(bytes)?)))
}

pub(super) fn write_role(role: Role) -> v1::Role {
    match role {
        Role::User => v1::Role::User,
        Role::Assistant => v1::Role::Assistant,
        Role::System => v1::Role::System,
        Role::Developer => v1::Role::Developer,
    }
}

pub(super) fn read_role(role: v1::Role) -> Result<Role, DecodeError> {
    Ok(match role {
        v1::Role::User => Role::User,
        v1::Role::Assistant => Role::Assistant,
        v1::Role::System => Role::System,
        v1::Role::Developer => Role::Developer,
        v1::Role::Unspecified => return Err(DecodeError::Damaged("a message without a role")),
    })
}

pub(super) fn write_visibility(standing: Visibility) -> (v1::Standing, u32) {
    match standing {
        Visibility::Visible => (v1::Standing::Visible, 0),
        Visibility::TranscriptOnly => (v1::Standing::TranscriptOnly, 0),
        Visibility::Reemission(of) => (v1::Standing::Reemission, of.get()),
        Visibility::Rewound => (v1::Standing::Rewound, 0),
        Visibility::Snipped => (v1::Standing::Snipped, 0),
        Visibility::Collapsed => (v1::Standing::Collapsed, 0),
        Visibility::Compacted => (v1::Standing::Compacted, 0),
        Visibility::Withdrawn => (v1::Standing::Withdrawn, 0),
    }
}

pub(super) fn read_visibility(standing: v1::Standing, of: u32) -> Result<Visibility, DecodeError> {
    Ok(match standing {
        v1::Standing::Visible => Visibility::Visible,
        v1::Standing::TranscriptOnly => Visibility::TranscriptOnly,
        v1::Standing::Reemission => Visibility::Reemission(Ordinal::new(of)),
        v1::Standing::Rewound => Visibility::Rewound,
        v1::Standing::Snipped => Visibility::Snipped,
        v1::Standing::Collapsed => Visibility::Collapsed,
        v1::Standing::Compacted => Visibility::Compacted,
        v1::Standing::Withdrawn => Visibility::Withdrawn,
        v1::Standing::Unspecified => return Err(DecodeError::Damaged("an unknown standing")),
    })
}

pub(super) fn write_usage(usage: &Usage) -> v1::Usage {
    v1::Usage {
        input_tokens: usage.input_tokens,
        cache_read_tokens: usage.cache_read_tokens,
        cache_write_tokens: usage.cache_write_tokens,
        output_tokens: usage.output_tokens,
    }
}

pub(super) fn read_usage(stored: &v1::Usage) -> Usage {
    Usage {
        input_tokens: stored.input_tokens,
        cache_read_tokens: stored.cache_read_tokens,
        cache_write_tokens: stored.cache_write_tokens,
        output_tokens: stored.output_tokens,
    }
}

pub(super) fn write_attributes(attributes: &Attributes) -> Vec<v1::Attribute> {
    attributes
        .iter()
        .map(|(name, value)| v1::Attribute {
            name: name.to_string(),
            value: value.to_string(),
        })
        .collect()
}

pub(super) fn read_attributes(stored: Vec<v1::Attribute>) -> Attributes {
    stored
        .into_iter()
        .map(|attribute| (attribute.name.into(), attribute.value.into()))
        .collect()
}

fn write_extra(extra: &UnknownFields) -> String {
    extra.to_object().unwrap_or_default()
}

fn read_extra(text: &str) -> Result<UnknownFields, DecodeError> {
    if text.is_empty() {
        return Ok(UnknownFields::default());
    }
    UnknownFields::from_object(text)
        .map_err(|_| DecodeError::Damaged("unknown fields are not an object"))
}

fn raw(text: &str) -> Result<RawJson, DecodeError> {
    RawJson::parse(text).map_err(|_| DecodeError::Damaged("a value is not JSON"))
}

fn write_block(block: &Block) -> v1::Block {
    use v1::block::Block as Stored;
    // Unknown fields are stored beside the block, so that a provider's JSON can be restored byte for byte.
    // An opaque block is stored as a whole and has none.
    let (stored, extra) = match block {
        Block::Text { text, extra } => {
            let text = text.to_string();
            (Stored::Text(v1::Text { text }), write_extra(extra))
        }
        Block::Media(media) => (Stored::Media(write_media(media)), write_extra(&media.extra)),
        Block::ToolUse(call) => {
            let input = match &call.input {
                ToolInput::Object(json) => v1::tool_use::Input::Object(json.as_str().to_owned()),
                ToolInput::Text(text) => v1::tool_use::Input::Text(text.to_string()),
            };
            let stored = v1::ToolUse {
                id: call.id.to_string(),
                name: call.name.to_string(),
                input: Some(input),
            };
            (Stored::ToolUse(stored), write_extra(&call.extra))
        }
        Block::ToolResult(result) => {
            use v1::tool_result::Content;
            let content = match &result.content {
                ResultContent::None => None,
                ResultContent::Text(text) => Some(Content::Text(text.to_string())),
                ResultContent::Blocks(blocks) => Some(Content::Blocks(v1::Blocks {
                    items: blocks.iter().map(write_block).collect(),
                })),
            };
            let stored = v1::ToolResult {
                tool_use_id: result.tool_use_id.to_string(),
                content,
                is_error: result.is_error,
            };
            (Stored::ToolResult(stored), write_extra(&result.extra))
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
            (Stored::Thinking(stored), write_extra(extra))
        }
        Block::Thinking(Thinking::Redacted { data, extra }) => {
            let data = data.to_string();
            (Stored::Redacted(v1::Redacted { data }), write_extra(extra))
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

fn read_block(stored: v1::Block) -> Result<Block, DecodeError> {
    use v1::block::Block as Stored;
    let extra = read_extra(&stored.extra)?;
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
                Some(Content::Blocks(blocks)) => ResultContent::Blocks(
                    blocks
                        .items
                        .into_iter()
                        .map(read_block)
                        .collect::<Result<_, _>>()?,
                ),
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
