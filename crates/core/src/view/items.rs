//! Items of OpenAI's Responses API: blocks that are no content of a message.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};

use super::{PieceForm, WireBlock};
use crate::event::PendingMessage;
use crate::ids::Ordinal;
use crate::json::{RawJson, UnknownFields};
use crate::message::{Block, Digest, Message, MessageOrigin};
use crate::session::{ContentNotLoaded, Session};

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

/// The pending blocks of a session without the items whose ids an earlier item has.
pub(super) struct FreshBlocks<'a> {
    /// The messages that still have blocks.
    pub(super) pending: Cow<'a, [PendingMessage]>,
    /// The blocks that were removed.
    pub(super) repeated: BTreeSet<(Ordinal, u16)>,
}

impl<'a> FreshBlocks<'a> {
    pub(super) fn of(session: &'a Session) -> Result<Self, ContentNotLoaded> {
        let mut seen = HashSet::new();
        let mut repeated = BTreeSet::new();
        for item in session.pending() {
            let message = session.transcript().require_content(item.message)?;
            for (block, _) in &item.blocks {
                let id = item_id(message, &message.blocks[usize::from(*block)]);
                if id.is_some_and(|id| !seen.insert(id) || is_shown(session, id)) {
                    repeated.insert((item.message, *block));
                }
            }
        }
        let mut pending = Cow::Borrowed(session.pending());
        if !repeated.is_empty() {
            let all = pending.to_mut();
            for item in all.iter_mut() {
                let at = item.message;
                (item.blocks).retain(|(block, _)| !repeated.contains(&(at, *block)));
            }
            all.retain(|item| !item.blocks.is_empty());
        }
        Ok(Self { pending, repeated })
    }
}

/// Returns true if the sealed view shows an item with this id. A marker in place of an item has no id.
fn is_shown(session: &Session, id: Digest) -> bool {
    let with_id = session.transcript().item_ids();
    let places = with_id.filter(|(.., other)| *other == id);
    let places: HashSet<_> = places.map(|(at, block, _)| (at, block)).collect();
    let mut sealed = session.sealed().pieces().iter();
    // Almost every id is new, and then the view is not searched.
    !places.is_empty()
        && sealed.any(|piece| {
            piece.form == PieceForm::Block && places.contains(&(piece.message, piece.block))
        })
}

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
