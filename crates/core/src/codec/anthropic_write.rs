//! Writes wire messages as Anthropic Messages JSON.

use super::reader::{Audience, write_end_for};
use crate::json::{RawJson, UnknownFields, write_str};
use crate::message::{Media, MediaKind, MediaSource, Thinking, ToolInput};
use crate::view::{WireBlock, WireMessage, WireResult, WireRole};

pub(super) fn message(message: &WireMessage<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(match message.role {
        WireRole::Assistant => b"{\"role\":\"assistant\",\"content\":".as_slice(),
        WireRole::System | WireRole::Developer | WireRole::Operator => {
            b"{\"role\":\"system\",\"content\":"
        }
        WireRole::User | WireRole::Tool => b"{\"role\":\"user\",\"content\":",
    });
    list(out, &message.blocks, |b, out| {
        block(b, Audience::Model, out);
    });
    // Only messages of the operator have further fields, such as their lifetime.
    let extra = message.extra.filter(|_| message.role == WireRole::Operator);
    write_end_for(Audience::Model, out, extra);
}

fn list<T>(out: &mut Vec<u8>, items: &[T], mut write: impl FnMut(&T, &mut Vec<u8>)) {
    out.push(b'[');
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write(item, out);
    }
    out.push(b']');
}

/// Writes one block. Views are compared block by block in this form.
pub(super) fn block(block: &WireBlock<'_>, reader: Audience, out: &mut Vec<u8>) {
    // The order of the fields is fixed, because prompt caches and comparisons of views depend on identical bytes.
    match block {
        WireBlock::Text { text, extra } => {
            field(out, b"{\"type\":\"text\",\"text\":", text);
            write_end_for(reader, out, *extra);
        }
        WireBlock::Media { media, extra } => {
            self::media(media, out);
            write_end_for(reader, out, *extra);
        }
        WireBlock::Call {
            id,
            name,
            input,
            extra,
            ..
        } => {
            field(out, b"{\"type\":\"tool_use\",\"id\":", id);
            field(out, b",\"name\":", name);
            out.extend_from_slice(b",\"input\":");
            self::input(input, reader, out);
            write_end_for(reader, out, *extra);
        }
        WireBlock::Result {
            id,
            content,
            is_error,
            extra,
            ..
        } => {
            field(out, b"{\"type\":\"tool_result\",\"tool_use_id\":", id);
            match content {
                WireResult::None => {}
                WireResult::Text(text) => field(out, b",\"content\":", text),
                WireResult::Blocks(blocks) => {
                    out.extend_from_slice(b",\"content\":");
                    list(out, blocks, |b, out| self::block(b, reader, out));
                }
            }
            if let Some(is_error) = is_error {
                out.extend_from_slice(b",\"is_error\":");
                out.extend_from_slice(if *is_error { b"true" } else { b"false" });
            }
            write_end_for(reader, out, *extra);
        }
        WireBlock::Thinking { thinking, extra } => {
            self::thinking(thinking, out);
            write_end_for(reader, out, *extra);
        }
        WireBlock::Opaque(json) => opaque(json, reader, out),
    }
}

/// Writes a block of an unknown type verbatim. Cache markers are removed for a model, as in all other blocks.
fn opaque(json: &RawJson, reader: Audience, out: &mut Vec<u8>) {
    // Most blocks have no marker. The text search avoids parsing them, and their bytes stay unchanged.
    let whole = json.as_str();
    let marked = reader == Audience::Model && whole.contains("\"cache_control\"");
    // A text that is no object has no marker to remove. The error is ignored, and the text is written verbatim.
    let fields = marked
        .then(|| UnknownFields::from_object(whole).ok())
        .flatten();
    let Some(fields) = fields.filter(|fields| fields.get("cache_control").is_some()) else {
        out.extend_from_slice(whole.as_bytes());
        return;
    };
    let others = fields.iter().filter(|(name, _)| *name != "cache_control");
    out.push(b'{');
    for (index, (name, value)) in others.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_str(out, name);
        out.push(b':');
        out.extend_from_slice(value.as_str().as_bytes());
    }
    out.push(b'}');
}

fn input(input: &ToolInput, reader: Audience, out: &mut Vec<u8>) {
    match (input, reader) {
        (ToolInput::Object(json), _) => out.extend_from_slice(json.as_str().as_bytes()),
        // The provider accepts only objects as input, so other text is wrapped in one.
        (ToolInput::Text(text), Audience::Model) => {
            field(out, b"{\"raw_arguments\":", text);
            out.push(b'}');
        }
        (ToolInput::Text(text), Audience::Transcript) => write_str(out, text),
    }
}

fn media(media: &Media, out: &mut Vec<u8>) {
    out.extend_from_slice(match media.kind {
        MediaKind::Image => b"{\"type\":\"image\",\"source\":".as_slice(),
        MediaKind::Document => b"{\"type\":\"document\",\"source\":",
    });
    match &media.source {
        MediaSource::Base64 { media_type, data } => {
            field(out, b"{\"type\":\"base64\",\"media_type\":", media_type);
            field(out, b",\"data\":", data);
            out.push(b'}');
        }
        MediaSource::Url(url) => {
            field(out, b"{\"type\":\"url\",\"url\":", url);
            out.push(b'}');
        }
        MediaSource::Other(json) => out.extend_from_slice(json.as_str().as_bytes()),
    }
}

fn thinking(thinking: &Thinking, out: &mut Vec<u8>) {
    match thinking {
        Thinking::Plain {
            thinking,
            signature,
            ..
        } => {
            field(out, b"{\"type\":\"thinking\",\"thinking\":", thinking);
            if let Some(signature) = signature {
                field(out, b",\"signature\":", signature);
            }
        }
        Thinking::Redacted { data, .. } => {
            field(out, b"{\"type\":\"redacted_thinking\",\"data\":", data);
        }
    }
}

fn field(out: &mut Vec<u8>, before: &[u8], value: &str) {
    out.extend_from_slice(before);
    write_str(out, value);
}
