//! Writes wire messages as OpenAI Chat Completions JSON.

use super::reader::write_end;
use crate::json::{UnknownFields, write_str};
use crate::message::{Media, MediaKind, MediaSource, ToolInput};
use crate::view::{WireBlock, WireMessage, WireResult, WireRole};

pub(super) fn message(message: &WireMessage<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(match message.role {
        WireRole::System | WireRole::Operator => b"{\"role\":\"system\"".as_slice(),
        WireRole::Developer => b"{\"role\":\"developer\"",
        WireRole::User => b"{\"role\":\"user\"",
        WireRole::Assistant => b"{\"role\":\"assistant\"",
        WireRole::Tool => b"{\"role\":\"tool\"",
    });
    match (message.role, message.blocks.as_slice()) {
        (WireRole::Tool, [WireBlock::Result { id, content, .. }]) => {
            out.extend_from_slice(b",\"tool_call_id\":");
            write_str(out, id);
            out.extend_from_slice(b",\"content\":");
            result(content, out);
        }
        (WireRole::Assistant, blocks) => assistant(blocks, out),
        (_, blocks) => {
            out.extend_from_slice(b",\"content\":");
            parts(blocks, out);
        }
    }
    for (name, value) in message.extra.into_iter().flat_map(UnknownFields::iter) {
        // Responses contain empty fields such as `"annotations":null`. A request with them is rejected.
        if value.as_str() == "null" || value.as_str() == "[]" {
            continue;
        }
        out.push(b',');
        write_str(out, name);
        out.push(b':');
        out.extend_from_slice(value.as_str().as_bytes());
    }
    out.push(b'}');
}

fn assistant(blocks: &[WireBlock<'_>], out: &mut Vec<u8>) {
    let is_call = |block: &&WireBlock<'_>| matches!(block, WireBlock::Call { .. });
    let calls: Vec<_> = blocks.iter().filter(is_call).collect();
    let said: Vec<_> = blocks.iter().filter(|block| !is_call(block)).collect();
    out.extend_from_slice(b",\"content\":");
    // A message that contains only calls has null as its content.
    if said.is_empty() {
        out.extend_from_slice(b"null");
    } else {
        parts(said, out);
    }
    if calls.is_empty() {
        return;
    }
    out.extend_from_slice(b",\"tool_calls\":[");
    for (index, block) in calls.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        call(block, out);
    }
    out.push(b']');
}

fn call(block: &WireBlock<'_>, out: &mut Vec<u8>) {
    let WireBlock::Call {
        id,
        name,
        input,
        extra,
        ..
    } = block
    else {
        return;
    };
    // The reader keeps `type` only for custom calls, which have other field names than function calls.
    let custom = extra.is_some_and(|extra| {
        extra
            .get("type")
            .is_some_and(|kind| kind.as_str() == "\"custom\"")
    });
    out.extend_from_slice(b"{\"id\":");
    write_str(out, id);
    out.extend_from_slice(if custom {
        b",\"type\":\"custom\",\"custom\":{\"name\":".as_slice()
    } else {
        b",\"type\":\"function\",\"function\":{\"name\":"
    });
    write_str(out, name);
    out.extend_from_slice(if custom {
        b",\"input\":".as_slice()
    } else {
        b",\"arguments\":"
    });
    match input {
        ToolInput::Object(json) => write_str(out, json.as_str()),
        ToolInput::Text(text) => write_str(out, text),
    }
    out.push(b'}');
    for (name, value) in extra.iter().flat_map(|extra| extra.iter()) {
        if name != "type" {
            out.push(b',');
            write_str(out, name);
            out.push(b':');
            out.extend_from_slice(value.as_str().as_bytes());
        }
    }
    out.push(b'}');
}

/// Writes the content of a message. A single text is written as a string, which every compatible server accepts.
/// Several parts require an array.
fn parts<'b, 'a: 'b>(blocks: impl IntoIterator<Item = &'b WireBlock<'a>>, out: &mut Vec<u8>) {
    let blocks: Vec<_> = blocks.into_iter().collect();
    if let [WireBlock::Text { text, extra: None }] = blocks.as_slice() {
        write_str(out, text);
        return;
    }
    out.push(b'[');
    for (index, block) in blocks.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        part(block, out);
    }
    out.push(b']');
}

/// Writes one block without its message. Views are compared block by block in this form.
pub(super) fn block(block: &WireBlock<'_>, out: &mut Vec<u8>) {
    match block {
        WireBlock::Result { id, content, .. } => {
            out.extend_from_slice(b"{\"tool_call_id\":");
            write_str(out, id);
            out.extend_from_slice(b",\"content\":");
            result(content, out);
            out.push(b'}');
        }
        _ => part(block, out),
    }
}

fn part(block: &WireBlock<'_>, out: &mut Vec<u8>) {
    match block {
        WireBlock::Text { text, extra } => {
            out.extend_from_slice(b"{\"type\":\"text\",\"text\":");
            write_str(out, text);
            write_end(out, *extra);
        }
        WireBlock::Media { media, extra } if media.kind == MediaKind::Image => {
            image(media, *extra, out);
        }
        WireBlock::Media { media, .. } => file(media, out),
        WireBlock::Opaque(json) => out.extend_from_slice(json.as_str().as_bytes()),
        WireBlock::Call { .. } => call(block, out),
        // The view never places these blocks among parts.
        WireBlock::Result { .. } | WireBlock::Thinking { .. } => {
            out.extend_from_slice(b"{\"type\":\"text\",\"text\":\"\"}");
        }
    }
}

fn image(media: &Media, extra: Option<&UnknownFields>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"type\":\"image_url\",\"image_url\":{\"url\":");
    match &media.source {
        MediaSource::Base64 { media_type, data } => {
            write_str(out, &format!("data:{media_type};base64,{data}"));
        }
        MediaSource::Url(url) => write_str(out, url),
        // The view replaces an image with another source by a text.
        MediaSource::Other(_) => out.extend_from_slice(b"\"\""),
    }
    write_end(out, extra);
    out.push(b'}');
}

/// Writes a document. The view passes only PDFs.
fn file(media: &Media, out: &mut Vec<u8>) {
    let data = match &media.source {
        MediaSource::Base64 { media_type, data } => format!("data:{media_type};base64,{data}"),
        MediaSource::Url(_) | MediaSource::Other(_) => String::new(),
    };
    out.extend_from_slice(
        b"{\"type\":\"file\",\"file\":{\"filename\":\"document.pdf\",\"file_data\":",
    );
    write_str(out, &data);
    out.extend_from_slice(b"}}");
}

fn result(content: &WireResult<'_>, out: &mut Vec<u8>) {
    match content {
        WireResult::None => out.extend_from_slice(b"\"\""),
        WireResult::Text(text) => write_str(out, text),
        WireResult::Blocks(blocks) => parts(blocks, out),
    }
}
