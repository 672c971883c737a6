//! The parts of a message or an output in OpenAI's Responses API, in both directions.

use serde_json::value::RawValue;

use super::reader::CodecError;
use crate::json::{ObjectFields, RawJson, UnknownFields, write_str};
use crate::message::{Block, Media, MediaKind, MediaSource};
use crate::view::{WireBlock, WireRole, is_part_type};

/// Reads one part. Returns `None` for a part of an unknown type.
pub(super) fn read(raw: &RawValue) -> Result<Option<Block>, CodecError> {
    let mut fields = ObjectFields::read(raw)?;
    let kind = fields.require_string("type")?;
    Ok(Some(match &*kind {
        "input_text" | "output_text" | "text" => Block::Text {
            text: fields.require_string("text")?,
            extra: fields.rest(),
        },
        "refusal" => {
            // The field `type` stays, and the writer recognizes the refusal by it.
            let mut fields = ObjectFields::read(raw)?;
            Block::Text {
                text: fields.require_string("refusal")?,
                extra: fields.rest(),
            }
        }
        kind if is_part_type(kind) => media(kind, fields)?.map_or_else(
            || Block::Opaque {
                kind: kind.into(),
                json: RawJson::of(raw),
            },
            Block::Media,
        ),
        _ => return Ok(None),
    }))
}

/// Reads one part of an output. A part of an unknown type is kept verbatim.
pub(super) fn read_any(raw: &RawValue) -> Result<Block, CodecError> {
    if let Some(block) = read(raw)? {
        return Ok(block);
    }
    Ok(Block::Opaque {
        kind: ObjectFields::read(raw)?.require_string("type")?,
        json: RawJson::of(raw),
    })
}

/// Reads an image or a document. Returns `None` for a source of another kind, such as a file id.
fn media(part: &str, mut fields: ObjectFields<'_>) -> Result<Option<Media>, CodecError> {
    let found = match part {
        "input_image" => fields
            .string("image_url")?
            .map(|url| (MediaKind::Image, source(url))),
        "input_file" => {
            let file_url = fields.string("file_url")?.map(MediaSource::Url);
            let data = fields.string("file_data")?.map(source);
            let embedded = data.filter(|source| matches!(source, MediaSource::Base64 { .. }));
            // A file with both sources, or with neither, is kept verbatim.
            file_url.xor(embedded).map(|it| (MediaKind::Document, it))
        }
        _ => None,
    };
    let extra = fields.rest();
    // A file id is another source of the same part.
    let found = found.filter(|_| extra.get("file_id").is_none_or(|id| id.as_str() == "null"));
    Ok(found.map(|(kind, source)| Media {
        kind,
        source,
        extra,
    }))
}

fn source(url: Box<str>) -> MediaSource {
    let embedded = url
        .strip_prefix("data:")
        .and_then(|rest| rest.split_once(";base64,"));
    match embedded {
        Some((media_type, data)) => MediaSource::Base64 {
            media_type: media_type.into(),
            data: data.into(),
        },
        None => MediaSource::Url(url),
    }
}

/// Writes a list of parts.
pub(super) fn write_all(role: WireRole, blocks: &[WireBlock<'_>], out: &mut Vec<u8>) {
    out.push(b'[');
    for (index, block) in blocks.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write(role, block, out);
    }
    out.push(b']');
}

/// Writes one part. The model's text has another type than all other texts.
pub(super) fn write(role: WireRole, block: &WireBlock<'_>, out: &mut Vec<u8>) {
    match block {
        WireBlock::Text { text, extra } => {
            let is_refusal = extra
                .and_then(|extra| extra.get("type"))
                .is_some_and(|kind| kind.as_str() == "\"refusal\"");
            let (kind, name) = match role {
                WireRole::Assistant if is_refusal => ("refusal", "refusal"),
                WireRole::Assistant => ("output_text", "text"),
                _ => ("input_text", "text"),
            };
            out.extend_from_slice(b"{\"type\":");
            write_str(out, kind);
            out.push(b',');
            write_str(out, name);
            out.push(b':');
            write_str(out, text);
            write_end(*extra, &["type", name], out);
        }
        WireBlock::Media { media, extra } => write_media(media, *extra, out),
        WireBlock::Opaque(json) => out.extend_from_slice(json.as_str().as_bytes()),
        // These blocks are items of their own.
        WireBlock::Call { .. } | WireBlock::Result { .. } | WireBlock::Thinking { .. } => {
            out.extend_from_slice(b"{\"type\":\"input_text\",\"text\":\"\"}");
        }
    }
}

fn write_media(media: &Media, extra: Option<&UnknownFields>, out: &mut Vec<u8>) {
    let url = match &media.source {
        MediaSource::Base64 { media_type, data } => format!("data:{media_type};base64,{data}"),
        MediaSource::Url(url) => url.to_string(),
        // The view passes no other source.
        MediaSource::Other(_) => String::new(),
    };
    let is_named = extra.is_some_and(|extra| extra.get("filename").is_some());
    out.extend_from_slice(match (media.kind, &media.source) {
        (MediaKind::Image, _) => b"{\"type\":\"input_image\",\"image_url\":".as_slice(),
        (MediaKind::Document, MediaSource::Url(_)) => b"{\"type\":\"input_file\",\"file_url\":",
        (MediaKind::Document, _) if is_named => b"{\"type\":\"input_file\",\"file_data\":",
        // The provider requires a name for embedded content.
        (MediaKind::Document, _) => {
            b"{\"type\":\"input_file\",\"filename\":\"document.pdf\",\"file_data\":"
        }
    });
    write_str(out, &url);
    let known = ["type", "image_url", "file_url", "file_data"];
    write_end(extra, &known, out);
}

/// Writes the unknown fields of a part without the ones in `known`, and the closing brace.
fn write_end(extra: Option<&UnknownFields>, known: &[&str], out: &mut Vec<u8>) {
    for (name, value) in extra.into_iter().flat_map(UnknownFields::iter) {
        if !known.contains(&name) {
            out.push(b',');
            write_str(out, name);
            out.push(b':');
            out.extend_from_slice(value.as_str().as_bytes());
        }
    }
    out.push(b'}');
}
