//! Moves the cache markers of a conversation to its view.
//!
//! Agents mark the end of their array. If a level has changed the array, the markers move to the same place of the view:
//! its end, and the end of the last answered request. Their number and their values stay.

use std::collections::BTreeMap;

use palimpsest_core::array::Element;
use palimpsest_core::json::{self, ObjectFields, RawJson, UnknownFields, write_str};
use palimpsest_core::message::{Block, ResultContent};
use palimpsest_core::session::{ContentNotLoaded, Session};
use palimpsest_core::view::{BreakpointRequest, Target, breakpoints};
use serde_json::value::RawValue;

use super::views::RenderedMessages;

const MARKER: &str = "cache_control";

/// Returns the markers of the elements, in order.
pub(super) fn of_elements(elements: &[Element]) -> Vec<RawJson> {
    let mut found = Vec::new();
    for element in elements {
        for block in &element.message.blocks {
            in_block(block, &mut found);
        }
    }
    found
}

fn in_block(block: &Block, found: &mut Vec<RawJson>) {
    match block {
        Block::Text { extra, .. } => add(extra, found),
        Block::Media(media) => add(&media.extra, found),
        Block::ToolUse(call) => add(&call.extra, found),
        Block::ToolResult(result) => {
            // The order is that of the prompt: the parts of a result end before the result.
            if let ResultContent::Blocks(blocks) = &result.content {
                for block in blocks {
                    in_block(block, found);
                }
            }
            add(&result.extra, found);
        }
        // Providers accept no marker on these blocks.
        Block::Thinking(_) | Block::Opaque { .. } => {}
    }
}

fn add(extra: &UnknownFields, found: &mut Vec<RawJson>) {
    let marker = extra.get(MARKER);
    found.extend(marker.filter(|marker| marker.is_object()).cloned());
}

/// Returns the messages of the rendered view to which markers are added.
pub(super) fn place(
    markers: &[RawJson],
    session: &Session,
    target: &Target,
    messages: &RenderedMessages,
) -> Result<BTreeMap<usize, Vec<u8>>, ContentNotLoaded> {
    let mut marked = BTreeMap::new();
    if markers.is_empty() {
        return Ok(marked);
    }
    let request = BreakpointRequest {
        length: u32::try_from(messages.len()).unwrap_or(u32::MAX),
        max_breakpoints: markers.len(),
        caller_system: None,
    };
    let places = breakpoints(session, target, request)?.messages;
    // The last markers belong to the last places. Markers with a longer lifetime must come first, so the order stays.
    // The number of places is at most `max_breakpoints`, so the subtraction cannot underflow.
    let markers = markers.iter().skip(markers.len() - places.len());
    for (place, marker) in places.iter().zip(markers) {
        let (at, block) = (place.message as usize, place.block as usize);
        // A message can have several markers.
        let message = match marked.remove(&at) {
            Some(message) => Some(message),
            None => messages.get(at).map(|message| message.whole().to_vec()),
        };
        if let Some(message) = message {
            let with_marker = with_marker(&message, block, marker);
            marked.insert(at, with_marker.unwrap_or(message));
        }
    }
    Ok(marked)
}

/// Returns a message with a marker on one of its blocks. `None` if the message has no such block.
fn with_marker(message: &[u8], block: usize, marker: &RawJson) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(message).ok()?;
    let raw: &RawValue = serde_json::from_str(text).ok()?;
    let content = ObjectFields::read(raw).ok()?.take("content").ok()??;
    let block = *json::array(content).ok()?.get(block)?;
    let body = block.get().strip_suffix('}')?;
    let end = body.as_ptr().addr() - text.as_ptr().addr() + body.len();
    let mut out = Vec::with_capacity(message.len() + marker.as_str().len() + 20);
    out.extend_from_slice(&message[..end]);
    // A block of a view has a type, so the object is not empty.
    out.push(b',');
    write_str(&mut out, MARKER);
    out.push(b':');
    out.extend_from_slice(marker.as_str().as_bytes());
    out.extend_from_slice(&message[end..]);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_is_the_last_field_of_its_block() {
        let marker = RawJson::parse(r#"{"type":"ephemeral"}"#).unwrap();
        // The brace in the text must not be taken for the end of the block.
        let message =
            r#"{"role":"user","content":[{"type":"text","text":"a}"},{"type":"text","text":"b"}]}"#;
        let written = with_marker(message.as_bytes(), 0, &marker).unwrap();
        assert_eq!(
            String::from_utf8(written).unwrap(),
            r#"{"role":"user","content":[{"type":"text","text":"a}","cache_control":{"type":"ephemeral"}},{"type":"text","text":"b"}]}"#
        );
        assert_eq!(with_marker(message.as_bytes(), 2, &marker), None);
        assert_eq!(with_marker(br#"{"content":"a"}"#, 0, &marker), None);
    }
}
