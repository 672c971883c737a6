//! What the model sees: which pieces of the transcript, in which order, in which form.
//!
//! A view is a list of [`Piece`]s, each a reference into the transcript and the form that it takes.
//! Pieces that were served are sealed: only a view-changing event moves them. `layout` decides how
//! new messages continue the list, `wire` groups pieces into a provider's messages, `etag` names
//! what a caller already has, and `breakpoints` says where a prompt cache is to be written.

mod breakpoints;
mod change;
mod dress;
mod etag;
mod layout;
mod piece;
mod places;
mod seal;
mod tail;
mod target;
mod tokens;
mod wire;
mod words;

pub use breakpoints::{Breakpoints, MAX_BREAKPOINTS, Spot, Wanted, breakpoints};
pub use change::{LayoutChange, Rewriter, Splice};
pub(crate) use etag::kept_messages;
pub use etag::{Etag, Prefix};
pub use layout::{Layout, lay_out};
pub use piece::{DropReason, Form, MarkerReason, Piece, Repair, RepairKind, TextReason, count};
pub(crate) use places::{at, messages_before, places_of};
pub(crate) use seal::{MARKER_TOKENS, shown_tokens};
pub use seal::{Seal, Sealed};
pub(crate) use tail::side;
pub use tail::{Side, Tail};
pub use target::{Provider, Target, WireRole};
pub use tokens::wire_tokens;
pub use wire::{WireBlock, WireMessage, WireResult, flatten, wire};
pub(crate) use words::{CLEARED, NO_OUTPUT};

/// How many of some wire messages stand in the provider's array: where the operator's words go apart
/// from it, they do not count.
pub fn in_array(messages: &[WireMessage<'_>], target: &Target) -> u32 {
    let inside = |message: &&WireMessage<'_>| !target.takes_apart(message.role);
    count(messages.iter().filter(inside).count())
}
