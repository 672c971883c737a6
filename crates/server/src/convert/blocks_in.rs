//! Typed blocks from the API to the domain.

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use palimpsest_core::codec::{self, CodecError};
use palimpsest_core::json::{self, JsonError, RawJson, UnknownFields};
use palimpsest_core::message::{
    Block, Media, MediaKind, MediaSource, MessageOrigin, ResultContent, Thinking, ToolInput,
    ToolResult, ToolUse,
};
use palimpsest_proto::context::v1;
use v1::block::Block as Typed;
use v1::media_source::Source;
use v1::tool_result_content::Content;

use super::own_fields::{self, OwnBlock, OwnFields};
use super::{FieldError, FieldProblem, WithFieldPath, required};

/// The block types that have a message of their own in the contract.
pub(super) const KNOWN_TYPES: [&str; 7] = [
    "text", "image", "document", "tool_use", "tool_result", "thinking", "redacted_thinking",
];

/// Validates and converts one typed block. `origin` is the format of its unknown fields.
pub(super) fn block(block: v1::Block, origin: MessageOrigin) -> Result<Block, FieldError> {
    let json = &block.extra_json;
    let extra = |block| extra(json, &own_fields::of_block(block, origin));
    let Some(typed) = block.block else {
        return Err(FieldError::missing("block"));
    };
    // Fields with a typed counterpart must not be repeated in `extra_json`, or the two values could differ.
    Ok(match typed {
        Typed::Text(text) => Block::Text {
            text: text.text.into(),
            extra: extra(OwnBlock::Text)?,
        },
        Typed::Image(image) => Block::Media(Media {
            kind: MediaKind::Image,
            source: source(image.source, MediaKind::Image).under("image.source")?,
            extra: extra(OwnBlock::Image)?,
        }),
        Typed::Document(document) => Block::Media(Media {
            kind: MediaKind::Document,
            source: source(document.source, MediaKind::Document).under("document.source")?,
            extra: with_fields(
                &[("title", &document.title), ("context", &document.context)],
                extra(OwnBlock::Document)?,
            )?,
        }),
        Typed::ToolUse(call) => Block::ToolUse(ToolUse {
            id: required(&call.tool_use_id, "tool_use.tool_use_id")?.into(),
            name: required(&call.tool_name, "tool_use.tool_name")?.into(),
            input: input(&call.input_json).under("tool_use.input_json")?,
            extra: extra(OwnBlock::ToolUse)?,
        }),
        Typed::ToolResult(result) => Block::ToolResult(ToolResult {
            tool_use_id: required(&result.tool_use_id, "tool_result.tool_use_id")?.into(),
            content: content(result.content, origin).under("tool_result.content")?,
            // The contract cannot distinguish an absent value from false.
            is_error: result.is_error.then_some(true),
            extra: extra(OwnBlock::ToolResult)?,
        }),
        Typed::Thinking(thinking) => Block::Thinking(Thinking::Plain {
            thinking: thinking.thinking.into(),
            // An empty signature counts as absent, because proto3 strings have no other absent value.
            signature: (!thinking.signature.is_empty()).then(|| thinking.signature.into()),
            extra: extra(OwnBlock::Thinking)?,
        }),
        Typed::RedactedThinking(redacted) => Block::Thinking(Thinking::Redacted {
            data: match origin {
                // OpenAI can store the reasoning itself, and then returns no data.
                MessageOrigin::OpenAiResponses => redacted.data.into(),
                _ => required(&redacted.data, "redacted_thinking.data")?.into(),
            },
            extra: extra(OwnBlock::RedactedThinking)?,
        }),
        Typed::Opaque(_) if !json.is_empty() => {
            return Err(FieldError::invalid(
                "extra_json",
                "must be empty: `opaque.json` contains the whole block",
            ));
        }
        Typed::Opaque(block) => opaque(&block).under("opaque")?,
    })
}

/// Parses unknown fields: a JSON object with unique names, none of which has a typed field.
pub(super) fn extra(bytes: &[u8], own: &OwnFields) -> Result<UnknownFields, FieldError> {
    if bytes.is_empty() {
        return Ok(UnknownFields::default());
    }
    let given = object(bytes).under("extra_json")?;
    let mut names = HashSet::new();
    for (name, value) in given.iter() {
        if own.includes(name, value) {
            let what = format!(
                "must not contain the field `{name}`, which has its own place in the message"
            );
            return Err(FieldError::invalid("extra_json", what));
        }
        if !names.insert(name) {
            return Err(FieldError::invalid("extra_json", "names a field twice"));
        }
    }
    Ok(given)
}

/// Adds fields that the contract has and the domain stores as unknown fields. They come before the others.
fn with_fields(
    more: &[(&str, &str)],
    mut extra: UnknownFields,
) -> Result<UnknownFields, FieldError> {
    // Each field is put in front, so the reverse order keeps `title` before `context`.
    for (name, text) in more.iter().rev().filter(|(_, text)| !text.is_empty()) {
        let value = RawJson::parse(&quoted(text)).map_err(payload_error)?;
        extra = extra.with_first(name, value);
    }
    Ok(extra)
}

fn object(bytes: &[u8]) -> Result<UnknownFields, FieldError> {
    let text = json::document(bytes).map_err(payload_error)?;
    UnknownFields::from_object(&text).map_err(payload_error)
}

/// Returns the JSON string literal of a text.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

pub(super) fn payload_error(error: JsonError) -> FieldError {
    FieldError::new(
        "",
        FieldProblem::Payload {
            path: String::new(),
            error,
        },
    )
}

fn source(source: Option<v1::MediaSource>, kind: MediaKind) -> Result<MediaSource, FieldError> {
    let source = source.ok_or_else(|| FieldError::missing(""))?;
    let media_type = source.media_type;
    let raw = |json: &str| RawJson::parse(json).map_err(payload_error);
    Ok(match source.source {
        None => return Err(FieldError::missing("source")),
        Some(Source::Data(data)) if data.is_empty() => return Err(FieldError::missing("data")),
        // The domain stores binary data as base64, as providers take it.
        Some(Source::Data(data)) => MediaSource::Base64 {
            media_type: required(&media_type, "media_type")?.into(),
            data: STANDARD.encode(data).into(),
        },
        Some(Source::Url(url)) => MediaSource::Url(required(&url, "url")?.into()),
        // The domain has no type for files, so the source is kept in Anthropic's JSON.
        Some(Source::FileId(id)) => MediaSource::Other(raw(&format!(
            "{{\"type\":\"file\",\"file_id\":{}}}",
            quoted(required(&id, "file_id")?)
        ))?),
        Some(Source::Text(_)) if kind == MediaKind::Image => {
            return Err(FieldError::invalid("text", "is for documents only"));
        }
        Some(Source::Text(text)) => MediaSource::Other(raw(&format!(
            "{{\"type\":\"text\",\"media_type\":{},\"data\":{}}}",
            quoted(if media_type.is_empty() {
                "text/plain"
            } else {
                &media_type
            }),
            quoted(required(&text, "text")?)
        ))?),
    })
}

/// Converts the input of a tool call. Models may write invalid JSON, which is stored as text.
fn input(bytes: &[u8]) -> Result<ToolInput, FieldError> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        payload_error(JsonError::Utf8 {
            at: error.valid_up_to(),
        })
    })?;
    required(text, "")?;
    // `document` replaces half of a surrogate pair, for which providers reject the whole request.
    let parsed = json::document(bytes).map(|mended| ToolInput::parse(&mended));
    Ok(match parsed {
        Ok(ToolInput::Object(json)) => ToolInput::Object(json),
        _ => ToolInput::Text(text.into()),
    })
}

/// Converts a tool result without its call.
pub(super) fn result_content(content: v1::ToolResultContent) -> Result<ResultContent, FieldError> {
    if content.content.is_none() {
        return Err(FieldError::missing(""));
    }
    self::content(Some(content), MessageOrigin::Typed)
}

fn content(
    content: Option<v1::ToolResultContent>,
    origin: MessageOrigin,
) -> Result<ResultContent, FieldError> {
    let Some(content) = content else {
        return Ok(ResultContent::None);
    };
    match content.content {
        None => Err(FieldError::missing("content")),
        Some(Content::Text(text)) => Ok(ResultContent::Text(text.into())),
        Some(Content::Blocks(list)) => list
            .blocks
            .into_iter()
            .enumerate()
            .map(|(index, block)| nested(block, origin).at("blocks.blocks", index))
            .collect::<Result<_, _>>()
            .map(ResultContent::Blocks),
        Some(Content::Json(json)) => from_json(&json).under("json"),
    }
}

/// Converts a block inside a tool result. Only text, media and opaque blocks are valid there.
fn nested(typed: v1::Block, origin: MessageOrigin) -> Result<Block, FieldError> {
    match typed.block {
        Some(
            Typed::ToolUse(_)
            | Typed::ToolResult(_)
            | Typed::Thinking(_)
            | Typed::RedactedThinking(_),
        ) => Err(FieldError::invalid(
            "block",
            "must be a text, an image, a document or an opaque block: a result cannot contain another block",
        )),
        _ => block(typed, origin),
    }
}

/// Parses result blocks in the provider's schema. The codec reads whole messages, so the blocks are wrapped in one,
/// and the wrapper's path is removed from errors.
fn from_json(bytes: &[u8]) -> Result<ResultContent, FieldError> {
    codec::read_result_content(bytes).map_err(|CodecError { path, error }| {
        FieldError::new("", FieldProblem::Payload { path, error })
    })
}

fn opaque(block: &v1::OpaqueBlock) -> Result<Block, FieldError> {
    let kind = required(&block.r#type, "type")?;
    // A call or a result in an opaque block would not be paired with its counterpart.
    if KNOWN_TYPES.contains(&kind) {
        return Err(FieldError::invalid(
            "type",
            "names a type that has its own block type",
        ));
    }
    if block.json.is_empty() {
        return Err(FieldError::missing("json"));
    }
    let fields = object(&block.json).under("json")?;
    // JSON permits repeated names, and readers differ in which one they use.
    let mut types = fields.iter().filter(|(name, _)| *name == "type");
    let (first, second) = (types.next(), types.next());
    let named = first.and_then(|(_, raw)| serde_json::from_str::<String>(raw.as_str()).ok());
    if second.is_some() || named.as_deref() != Some(kind) {
        return Err(FieldError::invalid(
            "json",
            "must have the field `type` with the value of `opaque.type`",
        ));
    }
    let json = json::document(&block.json)
        .and_then(|text| RawJson::parse(&text))
        .map_err(payload_error)
        .under("json")?;
    Ok(Block::Opaque {
        kind: kind.into(),
        json,
    })
}
