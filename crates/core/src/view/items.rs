//! Items of OpenAI's Responses API: blocks that are no content of a message.

use super::WireBlock;
use crate::json::{RawJson, UnknownFields};

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

impl WireBlock<'_> {
    /// Returns true if the block is content of a message, and false if the block is an item.
    pub fn is_content(&self) -> bool {
        match self {
            Self::Text { .. } | Self::Media { .. } => true,
            Self::Opaque(json) => is_part(json),
            Self::Call { .. } | Self::Result { .. } | Self::Thinking { .. } => false,
        }
    }
}

fn is_part(json: &RawJson) -> bool {
    let fields = UnknownFields::from_object(json.as_str());
    let kind = fields.as_ref().ok().and_then(|fields| fields.get("type"));
    kind.is_some_and(|kind| is_part_type(kind.as_str().trim_matches('"')))
}
