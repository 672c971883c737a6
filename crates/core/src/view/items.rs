//! Items of OpenAI's Responses API: blocks that are no content of a message.

use super::WireBlock;
use super::item_id::is_part_type;
use crate::json::{RawJson, UnknownFields};

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
