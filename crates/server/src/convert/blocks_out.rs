//! Blocks from the domain to their typed form.

use std::borrow::Cow;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use palimpsest_core::codec;
use palimpsest_core::ids::CallKey;
use palimpsest_core::json::{RawJson, UnknownFields};
use palimpsest_core::message::{Media, MediaKind, MediaSource, Thinking, ToolInput};
use palimpsest_core::session::Calls;
use palimpsest_core::view::{Provider, WireBlock, WireMessage, WireResult, WireRole};
use palimpsest_proto::context::v1;
use v1::block::Block as Typed;
use v1::media_source::Source;
use v1::tool_result_content::Content;

use super::scalars::export_origin;

/// Decodes base64 with or without padding: callers omit it, and providers accept that.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        // Encoders that ignore unused bits of the last character exist too: `AB==` is read like `AA==`.
        .with_decode_allow_trailing_bits(true),
);

/// The reader of converted blocks.
#[derive(Clone, Copy)]
pub(super) enum BlockAudience {
    /// A model: inputs are converted to the provider's format, and `cache_control` is left out.
    Model(Provider),
    /// A reader of the transcript: all fields are unchanged.
    Transcript,
}

/// Converts one message of a view to its typed form, with the ids of the wire and the call keys.
pub fn view_message(message: &WireMessage<'_>, calls: &Calls, provider: Provider) -> v1::Message {
    let reader = BlockAudience::Model(provider);
    let blocks = message
        .blocks
        .iter()
        .map(|block| {
            let key = match block {
                WireBlock::Call { id, .. } | WireBlock::Result { id, .. } => {
                    key_of_wire_id(id, calls)
                }
                _ => None,
            };
            self::block(block, key, reader)
        })
        .collect();
    // The contract has no role for tools: their results are blocks of user messages.
    let role = match message.role {
        WireRole::System | WireRole::Developer | WireRole::Operator => v1::Role::System,
        WireRole::User | WireRole::Tool => v1::Role::User,
        WireRole::Assistant => v1::Role::Assistant,
    };
    v1::Message {
        role: role.into(),
        blocks,
        extra_json: extra(message.extra, reader, &[]),
        extra_format: export_origin(provider.origin()).into(),
    }
}

/// Returns the call for an id in a view. A caller's own id names the first call with it, because later ones are
/// mapped.
fn key_of_wire_id(id: &str, calls: &Calls) -> Option<CallKey> {
    calls
        .find_by_service_id(id)
        .or_else(|| calls.with_id(id).first().copied())
}

pub(super) fn block(
    block: &WireBlock<'_>,
    key: Option<CallKey>,
    reader: BlockAudience,
) -> v1::Block {
    let call_key = key.map(|key| key.to_string()).unwrap_or_default();
    let (typed, extra_json) = match block {
        WireBlock::Text { text, extra } => (
            Typed::Text(v1::TextBlock {
                text: text.to_string(),
            }),
            self::extra(*extra, reader, &[]),
        ),
        // Media without a typed form become an opaque block, which has no `extra_json`.
        WireBlock::Media { media, extra } => return self::media(block, media, *extra, reader),
        WireBlock::Call {
            id,
            name,
            input,
            extra,
            ..
        } => (
            Typed::ToolUse(v1::ToolUseBlock {
                tool_use_id: id.to_string(),
                tool_name: name.to_string(),
                input_json: self::input(input, reader),
                call_key,
            }),
            self::extra(*extra, reader, &[]),
        ),
        WireBlock::Result {
            id,
            content,
            is_error,
            extra,
            ..
        } => (
            Typed::ToolResult(v1::ToolResultBlock {
                tool_use_id: id.to_string(),
                content: self::content(content, reader),
                is_error: is_error.unwrap_or(false),
                call_key,
            }),
            self::extra(*extra, reader, &[]),
        ),
        WireBlock::Thinking { thinking, extra } => {
            (self::thinking(thinking), self::extra(*extra, reader, &[]))
        }
        // An opaque block has all of its fields in its JSON, so it needs no `extra_json`.
        WireBlock::Opaque(json) => return opaque(json.as_str().to_owned()),
    };
    v1::Block {
        extra_json,
        block: Some(typed),
    }
}

/// Returns unknown fields as a JSON object, or no bytes if there are none. `known` contains fields that have a
/// typed counterpart.
fn extra(extra: Option<&UnknownFields>, reader: BlockAudience, known: &[&str]) -> Bytes {
    let mut out = String::new();
    for (name, value) in extra.into_iter().flat_map(UnknownFields::iter) {
        let hidden = matches!(reader, BlockAudience::Model(_)) && name == "cache_control";
        if hidden || known.contains(&name) {
            continue;
        }
        out.push(if out.is_empty() { '{' } else { ',' });
        out.push_str(&super::blocks_in::quoted(name));
        out.push(':');
        out.push_str(value.as_str());
    }
    if !out.is_empty() {
        out.push('}');
    }
    out.into()
}

/// Returns the input of a call. Anthropic's API accepts only objects, so other inputs are wrapped in one.
fn input(input: &ToolInput, reader: BlockAudience) -> Bytes {
    let text: Cow<'_, str> = match (input, reader) {
        (ToolInput::Text(text), BlockAudience::Model(Provider::Anthropic | Provider::Bedrock)) => {
            let quoted = super::blocks_in::quoted(text);
            format!("{{\"raw_arguments\":{quoted}}}").into()
        }
        (input, _) => input.as_str().into(),
    };
    Bytes::copy_from_slice(text.as_bytes())
}

fn content(content: &WireResult<'_>, reader: BlockAudience) -> Option<v1::ToolResultContent> {
    let content = match content {
        WireResult::None => return None,
        WireResult::Text(text) => Content::Text(text.to_string()),
        WireResult::Blocks(blocks) => Content::Blocks(v1::BlockList {
            blocks: blocks
                .iter()
                .map(|block| self::block(block, None, reader))
                .collect(),
        }),
    };
    Some(v1::ToolResultContent {
        content: Some(content),
    })
}

fn thinking(thinking: &Thinking) -> Typed {
    match thinking {
        Thinking::Plain {
            thinking,
            signature,
            ..
        } => Typed::Thinking(v1::ThinkingBlock {
            thinking: thinking.to_string(),
            signature: signature.as_deref().unwrap_or_default().to_owned(),
        }),
        Thinking::Redacted { data, .. } => Typed::RedactedThinking(v1::RedactedThinkingBlock {
            data: data.to_string(),
        }),
    }
}

/// Converts an image or a document. A source that the contract cannot represent becomes an opaque block with its
/// JSON.
fn media(
    block: &WireBlock<'_>,
    media: &Media,
    extra: Option<&UnknownFields>,
    reader: BlockAudience,
) -> v1::Block {
    let Some(source) = source(&media.source) else {
        let mut json = Vec::new();
        codec::write_block(Provider::Anthropic, block, &mut json);
        return opaque(String::from_utf8_lossy(&json).into_owned());
    };
    let source = Some(source);
    let mut known = Vec::new();
    let typed = match media.kind {
        MediaKind::Image => Typed::Image(v1::ImageBlock { source }),
        MediaKind::Document => {
            // Titles that are not strings stay in `extra_json`, so that no value is lost.
            let mut take = |name: &'static str| match extra.and_then(|extra| extra.get(name)) {
                // A null title equals an absent one.
                Some(raw) if raw.as_str() == "null" => {
                    known.push(name);
                    String::new()
                }
                Some(raw) => match serde_json::from_str(raw.as_str()) {
                    Ok(text) => {
                        known.push(name);
                        text
                    }
                    Err(_) => String::new(),
                },
                None => String::new(),
            };
            let (title, context) = (take("title"), take("context"));
            Typed::Document(v1::DocumentBlock {
                source,
                title,
                context,
            })
        }
    };
    v1::Block {
        extra_json: self::extra(extra, reader, &known),
        block: Some(typed),
    }
}

fn source(source: &MediaSource) -> Option<v1::MediaSource> {
    let (source, media_type) = match source {
        MediaSource::Base64 { media_type, data } => {
            let data = LENIENT
                .decode(&**data)
                .ok()
                // The contract rejects empty data, so such a source becomes an opaque block.
                .filter(|data| !data.is_empty())?;
            (Source::Data(data.into()), media_type.to_string())
        }
        MediaSource::Url(url) => (Source::Url(url.to_string()), String::new()),
        MediaSource::Other(json) => other_source(json)?,
    };
    Some(v1::MediaSource {
        media_type,
        source: Some(source),
    })
}

/// Converts the two sources that the contract has and the domain stores as JSON.
fn other_source(json: &RawJson) -> Option<(Source, String)> {
    let fields: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(json.as_str()).ok()?;
    let text = |name: &str| fields.get(name)?.as_str().map(str::to_owned);
    // With further fields, a typed source would lose them.
    match (text("type")?.as_str(), fields.len()) {
        ("file", 2) => Some((Source::FileId(text("file_id")?), String::new())),
        ("text", 3) => Some((Source::Text(text("data")?), text("media_type")?)),
        _ => None,
    }
}

fn opaque(json: String) -> v1::Block {
    let kind = UnknownFields::from_object(&json)
        .ok()
        .and_then(|fields| serde_json::from_str(fields.get("type")?.as_str()).ok())
        .unwrap_or_default();
    v1::Block {
        extra_json: Bytes::new(),
        block: Some(Typed::Opaque(v1::OpaqueBlock {
            r#type: kind,
            json: json.into(),
        })),
    }
}
