//! Views: the pieces of a transcript that the model sees, their order and their forms.
//!
//! A view is a list of [`Piece`]s. Each piece references the transcript and has a form. Served pieces are sealed: only
//! a view-changing event moves them. `layout` decides how new messages continue the list. `wire` groups pieces into a
//! provider's messages. `etag` names a caller's copy. `breakpoints` selects the positions of cache breakpoints.

mod breakpoints;
mod cache_places;
mod digest_text;
mod dress;
mod etag;
mod layout;
mod layout_change;
mod of_session;
mod piece;
mod places;
mod seal;
mod tail;
mod target;
mod tokens;
mod wire;
mod words;

pub use breakpoints::{BreakpointRequest, Breakpoints, MAX_BREAKPOINTS, Spot, breakpoints};
pub use etag::{Etag, Prefix};
pub use layout::{Layout, lay_out};
pub use layout_change::{LayoutChange, Rewriter, Splice};
pub use of_session::{NotSendableReason, View};
pub use piece::{
    DropReason, MarkerReason, Piece, PieceForm, Repair, RepairKind, TextReason, count,
};
pub(crate) use seal::{MARKER_TOKENS, shown_tokens};
pub use seal::{Seal, Sealed};
pub(crate) use tail::side;
pub use tail::{Speaker, Tail};
pub use target::{Provider, Target, TargetOverride, WireRole};
pub use tokens::wire_tokens;
pub use wire::{WireBlock, WireMessage, WireResult, in_array, wire};
pub(crate) use words::{CLEARED, NO_OUTPUT};
