//! The types and the ids of items of OpenAI's Responses API.

use crate::json::UnknownFields;
use crate::message::{Block, Digest, Message, MessageOrigin};

/// Types of parts that are kept verbatim. All other blocks of unknown types are items.
const PART_TYPES: [&str; 4] = [
    "computer_screenshot",
    "input_audio",
    "input_file",
    "input_image",
];

/// Returns true if a block of this type is a part of a message and not an item.
pub(crate) fn is_part_type(kind: &str) -> bool {
    PART_TYPES.contains(&kind)
}

/// Returns the digest of the id of an item that is sent as received. All other items are sent without an id.
///
/// The provider rejects an array with two items of one id. A reference repeats the id of another item.
pub(crate) fn item_id(message: &Message, block: &Block) -> Option<Digest> {
    let Block::Opaque { kind, json } = block else {
        return None;
    };
    let is_item = message.origin == MessageOrigin::OpenAiResponses
        && !is_part_type(kind)
        && &**kind != "item_reference";
    let fields = is_item.then(|| UnknownFields::from_object(json.as_str()).ok())??;
    let id: String = serde_json::from_str(fields.get("id")?.as_str()).ok()?;
    Some(Digest::of_bytes(id.as_bytes()))
}
