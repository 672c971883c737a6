//! Validation of messages and their blocks: roles, empty texts, signatures and images.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::betas::{Betas, extra};
use super::{array, mid_system};
use crate::refusal::Refusal;

const MAX_IMAGES: usize = 100;
const MANY_IMAGES: usize = 20;
const MAX_IMAGE_BYTES: usize = 5 * 1024 * 1024;
const MAX_PIXELS: usize = 8_000;
const MAX_PIXELS_OF_MANY: usize = 2_000;

/// The block types that a role may have.
const OF_USER: [&str; 6] = [
    "text", "image", "document", "tool_result", "search_result", "container_upload",
];
const OF_ASSISTANT: [&str; 16] = [
    "text",
    "tool_use",
    "thinking",
    "redacted_thinking",
    "compaction",
    "container_upload",
    "server_tool_use",
    "advisor_tool_result",
    "bash_code_execution_tool_result",
    "code_execution_tool_result",
    "mcp_tool_result",
    "mcp_tool_use",
    "text_editor_code_execution_tool_result",
    "tool_search_tool_result",
    "web_fetch_tool_result",
    "web_search_tool_result",
];

pub(super) fn check(betas: &Betas, body: &Value) -> Result<(), Refusal> {
    let Some(messages) = body["messages"].as_array() else {
        return Err(Refusal::invalid("messages: Input should be a valid array"));
    };
    if messages.is_empty() {
        return Err(Refusal::invalid(
            "messages: at least one message is required",
        ));
    }
    system(&body["system"])?;
    for (index, message) in messages.iter().enumerate() {
        let last = index + 1 == messages.len();
        check_message(betas, message, index, last)?;
    }
    // A compaction takes the place of the messages before it.
    let is_compacted = messages[0]["content"][0]["type"] == "compaction";
    if messages[0]["role"] != "user" && !is_compacted {
        return Err(Refusal::invalid(
            "messages: first message must use the \"user\" role",
        ));
    }
    images(messages)
}

fn system(system: &Value) -> Result<(), Refusal> {
    match system {
        Value::Null | Value::String(_) => Ok(()),
        Value::Array(blocks) => blocks.iter().enumerate().try_for_each(|(index, block)| {
            if block["type"] != "text" {
                return Err(Refusal::invalid(format!(
                    "system.{index}.type: Input should be 'text'"
                )));
            }
            text(block, &format!("system.{index}"), "system")
        }),
        _ => Err(Refusal::invalid("system: Input should be a valid array")),
    }
}

fn check_message(betas: &Betas, message: &Value, index: usize, last: bool) -> Result<(), Refusal> {
    let at = format!("messages.{index}");
    let role = message["role"].as_str();
    if role == Some("system") {
        return mid_system::check(betas, message, &at);
    }
    if let Some(unknown) = message.as_object().and_then(|object| {
        object
            .keys()
            .find(|name| *name != "role" && *name != "content")
    }) {
        return Err(Refusal::invalid(format!(
            "{at}.{unknown}: Extra inputs are not permitted"
        )));
    }
    let allowed: &[&str] = match role {
        Some("user") => &OF_USER,
        Some("assistant") => &OF_ASSISTANT,
        _ => {
            return Err(Refusal::invalid(format!(
                "{at}.role: Input should be 'user' or 'assistant'"
            )));
        }
    };
    let assistant = role == Some("assistant");
    let role = role.unwrap_or_default();
    let empty = || {
        Refusal::invalid(format!(
            "{at}: all messages must have non-empty content except for the optional final assistant message"
        ))
    };
    let trailing = || {
        Refusal::invalid("messages: final assistant content cannot end with trailing whitespace")
    };
    // A final assistant message is a prefill that the model continues. It may be empty, but whitespace at its end is an
    // error.
    let ends_blank = |text: &str| text.ends_with(char::is_whitespace);
    match &message["content"] {
        Value::String(text) if text.is_empty() && !(assistant && last) => Err(empty()),
        Value::String(text) if assistant && last && ends_blank(text) => Err(trailing()),
        Value::String(text) if !text.is_empty() && text.trim().is_empty() => Err(Refusal::invalid(
            "messages: text content blocks must contain non-whitespace text",
        )),
        Value::String(_) => Ok(()),
        Value::Array(blocks) if blocks.is_empty() && !(assistant && last) => Err(empty()),
        Value::Array(blocks) => {
            for (position, block) in blocks.iter().enumerate() {
                let at = format!("{at}.content.{position}");
                // The type itself is part of the beta. Without the header, the API does not accept the block at all.
                if block["type"] == "compaction" && !betas.has(&["compact-"]) {
                    return Err(extra(&at));
                }
                check_block(block, &at, role, allowed)?;
            }
            let end = blocks.last().and_then(|block| block["text"].as_str());
            if assistant && last && end.is_some_and(ends_blank) {
                return Err(trailing());
            }
            Ok(())
        }
        _ => Err(Refusal::invalid(format!("{at}.content: Field required"))),
    }
}

fn check_block(block: &Value, at: &str, role: &str, allowed: &[&str]) -> Result<(), Refusal> {
    let Some(kind) = block["type"].as_str() else {
        return Err(Refusal::invalid(format!("{at}.type: Field required")));
    };
    if !allowed.contains(&kind) {
        // The API has different errors for a known type in the wrong role and for an unknown type.
        let known = OF_USER.contains(&kind) || OF_ASSISTANT.contains(&kind);
        return Err(Refusal::invalid(if known {
            format!("messages: `{kind}` blocks can not be in `{role}` messages")
        } else {
            format!(
                "{at}: Input tag '{kind}' found using 'type' does not match any of the expected tags"
            )
        }));
    }
    fields(block, kind, at)?;
    match kind {
        "text" => text(block, at, "messages"),
        "thinking" => {
            required(block, at, &["thinking", "signature"])?;
            unchanged(block, at)
        }
        "redacted_thinking" => required(block, at, &["data"]),
        "compaction" => compaction(block, at),
        "image" | "document" => source(block, at, kind),
        // Calls cannot be nested: a result contains content, but no `tool_use` and no other result.
        "tool_result" => {
            for (index, inner) in array(&block["content"]).iter().enumerate() {
                let at = format!("{at}.tool_result.content.{index}");
                check_block(
                    inner,
                    &at,
                    role,
                    &[
                        "text", "image", "document", "search_result", "tool_reference",
                    ],
                )?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

pub(super) fn text(block: &Value, at: &str, whose: &str) -> Result<(), Refusal> {
    let Some(text) = block["text"].as_str() else {
        return Err(Refusal::invalid(format!("{at}.text.text: Field required")));
    };
    if let Some(unknown) = block.as_object().and_then(|object| {
        let known = ["type", "text", "cache_control", "citations"];
        object.keys().find(|name| !known.contains(&name.as_str()))
    }) {
        return Err(Refusal::invalid(format!(
            "{at}.text.{unknown}: Extra inputs are not permitted"
        )));
    }
    if text.is_empty() {
        return Err(Refusal::invalid(if block["cache_control"].is_object() {
            format!("{at}.text: cache_control cannot be set for empty text blocks")
        } else {
            format!("{whose}: text content blocks must be non-empty")
        }));
    }
    if text.trim().is_empty() {
        return Err(Refusal::invalid(format!(
            "{whose}: text content blocks must contain non-whitespace text"
        )));
    }
    Ok(())
}

/// Rejects unknown fields of the blocks that a client writes.
fn fields(block: &Value, kind: &str, at: &str) -> Result<(), Refusal> {
    let known: &[&str] = match kind {
        "tool_use" => &["id", "name", "input", "caller", "toolset_name"],
        "tool_result" => &["tool_use_id", "content", "is_error", "toolset_name"],
        "thinking" => &["thinking", "signature"],
        "image" => &["source"],
        // The other types include blocks of server tools, which clients repeat with all fields that the provider wrote.
        _ => return Ok(()),
    };
    let is_unknown = |name: &&String| {
        let name = name.as_str();
        !known.contains(&name) && name != "type" && name != "cache_control"
    };
    let unknown = block
        .as_object()
        .and_then(|object| object.keys().find(is_unknown));
    unknown.map_or(Ok(()), |unknown| {
        Err(extra(&format!("{at}.{kind}.{unknown}")))
    })
}

/// Rejects an empty summary. A missing one stands for a failed compaction.
fn compaction(block: &Value, at: &str) -> Result<(), Refusal> {
    match &block["content"] {
        Value::Null => Ok(()),
        Value::String(summary) if !summary.is_empty() => Ok(()),
        _ => Err(Refusal::invalid(format!(
            "{at}.compaction.content: Input should be a non-empty string"
        ))),
    }
}

/// The beginning of this provider's signatures. Others, such as those of transcripts, are not verified.
const SIGNED: &str = "ZmFrZS";

/// Returns the signature of a thinking block.
pub(super) fn signature(thinking: &str) -> String {
    let digest = blake3::hash(thinking.as_bytes());
    format!("{SIGNED}{}", STANDARD.encode(digest.as_bytes()))
}

/// Rejects thinking that differs from the signed one.
fn unchanged(block: &Value, at: &str) -> Result<(), Refusal> {
    let text = |name: &str| block[name].as_str().unwrap_or_default();
    let signed = text("signature");
    if !signed.starts_with(SIGNED) || signed == signature(text("thinking")) {
        return Ok(());
    }
    Err(Refusal::invalid(format!(
        "{at}: Invalid `signature` in `thinking` block"
    )))
}

fn required(block: &Value, at: &str, names: &[&str]) -> Result<(), Refusal> {
    let kind = block["type"].as_str().unwrap_or_default();
    match names.iter().find(|name| !block[**name].is_string()) {
        None => Ok(()),
        Some(name) => Err(Refusal::invalid(format!(
            "{at}.{kind}.{name}: Field required"
        ))),
    }
}

fn source(block: &Value, at: &str, kind: &str) -> Result<(), Refusal> {
    let source = &block["source"];
    match source["type"].as_str() {
        Some("base64") => {}
        // Only base64 content has a media type and an encoding to verify.
        Some("url" | "file" | "text" | "content") => return Ok(()),
        _ => {
            return Err(Refusal::invalid(format!(
                "{at}.{kind}.source: Field required"
            )));
        }
    }
    let media: &[&str] = match kind {
        "image" => &["image/jpeg", "image/png", "image/gif", "image/webp"],
        _ => &["application/pdf"],
    };
    if !source["media_type"]
        .as_str()
        .is_some_and(|given| media.contains(&given))
    {
        let expected: Vec<String> = media.iter().map(|media| format!("'{media}'")).collect();
        return Err(Refusal::invalid(format!(
            "{at}.{kind}.source.base64.media_type: Input should be {}",
            expected.join(" or ")
        )));
    }
    let Some(bytes) = source["data"]
        .as_str()
        .and_then(|data| STANDARD.decode(data).ok())
    else {
        return Err(Refusal::invalid(format!(
            "{at}.{kind}.source.base64.data: invalid base64 data"
        )));
    };
    if kind == "image" && bytes.len() > MAX_IMAGE_BYTES {
        return Err(Refusal::invalid(format!(
            "{at}.image.source.base64: image exceeds 5 MB maximum: {} bytes > {MAX_IMAGE_BYTES} bytes",
            bytes.len()
        )));
    }
    Ok(())
}

/// Checks all images of a request, including those in results.
fn images(messages: &[Value]) -> Result<(), Refusal> {
    let mut sizes = Vec::new();
    for message in messages {
        for block in array(&message["content"]) {
            // Screenshots of tools are images inside a `tool_result`, and they count toward the same limits.
            let inner = array(&block["content"]).iter();
            sizes.extend(
                inner
                    .chain([block])
                    .filter(|block| block["type"] == "image")
                    .map(pixels),
            );
        }
    }
    if sizes.len() > MAX_IMAGES {
        return Err(Refusal::invalid(format!(
            "messages: too many images: {} > {MAX_IMAGES}",
            sizes.len()
        )));
    }
    // More than 20 images in one request lower the limit for each of them from 8,000 to 2,000 pixels.
    let (most, what) = if sizes.len() > MANY_IMAGES {
        (MAX_PIXELS_OF_MANY, " for many-image requests")
    } else {
        (MAX_PIXELS, "")
    };
    if sizes.into_iter().any(|size| size > most) {
        return Err(Refusal::invalid(format!(
            "messages: At least one of the image dimensions exceed max allowed size{what}: {most} pixels"
        )));
    }
    Ok(())
}

fn pixels(image: &Value) -> usize {
    let data = image["source"]["data"].as_str().unwrap_or_default();
    let bytes = STANDARD.decode(data).unwrap_or_default();
    // Data without readable dimensions is never above the limit.
    imagesize::blob_size(&bytes).map_or(0, |size| size.width.max(size.height))
}
