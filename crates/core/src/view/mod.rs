//! Views: the pieces of a transcript that the model sees, their order and their forms.
//!
//! A view is a list of [`Piece`]s. Each piece references the transcript and has a form. Served pieces are sealed: only
//! a view-changing event moves them. `layout` decides how new messages continue the list. `wire` groups pieces into a
//! provider's messages. `etag` names a caller's copy. `breakpoints` selects the positions of cache breakpoints.

mod annotate;
mod blocks;
mod breakpoints;
mod cache_positions;
mod digest_text;
mod etag;
mod fixed_texts;
mod item_id;
mod items;
mod layout;
mod layout_change;
mod of_session;
mod piece;
mod positions;
mod repeated_items;
mod replacements;
mod seal;
mod system_messages;
mod tail;
mod target;
mod thinking;
mod tokens;
mod wire;

pub(crate) use annotate::{last_input_has_id, shows_turn_ids};
pub use blocks::{HiddenMessages, ShownBlock, ViewBlock};
pub use breakpoints::{
    BreakpointRequest, Breakpoints, MAX_BREAKPOINTS, WireBlockPosition, breakpoints,
};
pub use etag::{Etag, Prefix};
pub(crate) use fixed_texts::{CLEARED, NO_OUTPUT};
pub(crate) use item_id::{is_part_type, item_id};
pub use layout::{Layout, extend_layout};
pub use layout_change::{LayoutChange, LayoutChangeBuilder, Splice};
pub use of_session::{NotSendableReason, View};
pub use piece::{
    DropReason, MarkerReason, Piece, PieceForm, Repair, RepairKind, TextReason, count,
};
pub use positions::ViewPosition;
pub(crate) use seal::{MARKER_TOKENS, shown_tokens};
pub use seal::{Seal, Sealed};
pub(crate) use tail::speaker;
pub use tail::{Speaker, ViewTail};
pub use target::{Provider, Target, TargetOverride, WireRole};
pub(crate) use thinking::LaterBlocks;
pub use tokens::wire_tokens;
pub use wire::{WireBlock, WireMessage, WireResult, array_length, wire};
