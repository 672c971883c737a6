//! Items of OpenAI's Responses API: blocks that are no content of a message.

use super::WireBlock;
use super::item_id::is_part_type;
use crate::json::{RawJson, UnknownFields};

/// Returns true if an image or a file refers to nothing. The provider rejects the whole request for such a part.
pub(super) fn lacks_source(kind: &str, json: &RawJson) -> bool {
    let sources: &[&str] = match kind {
        "input_image" => &["image_url", "file_id"],
        "input_file" => &["file_url", "file_data", "file_id"],
        _ => return false,
    };
    let Ok(fields) = UnknownFields::from_object(json.as_str()) else {
        return true;
    };
    let is_source = |name: &&str| {
        let text = fields.get(name).map_or("", |value| value.as_str());
        let text = text.trim_matches('"');
        let is_url = ["https:", "http:", "data:"]
            .iter()
            .any(|start| text.starts_with(start));
        is_url || (*name == "file_id" && !text.is_empty() && text != "null")
    };
    !sources.iter().any(is_source)
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
