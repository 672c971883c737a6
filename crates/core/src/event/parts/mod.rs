//! Data that events carry and that the session, the levels and the view use too.
//!
//! These types import identifiers, messages and the pieces of a view. They import nothing that applies events.

mod attachments;
mod cache_edits;
mod calls;
mod compaction;
mod hooks;
mod memory;
mod pending;
mod requests;
mod results;
mod spans;
mod standing;

pub use attachments::{Attached, AttachmentKind};
pub use cache_edits::PinPlace;
pub use calls::{CallState, Pairing};
pub use compaction::{Dropped, Strategy};
pub use hooks::{Hook, HookCall, HookResult, Hooks};
pub use memory::{Author, TextDigest};
pub use pending::Pending;
pub(crate) use pending::settle;
pub use requests::{Method, RequestStamp};
pub use results::{Kept, Offer, Stored, Verdict, only_text};
pub use spans::{Placeholder, Span};
pub use standing::Standing;
