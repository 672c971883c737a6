//! Data types that events carry and that the session, the levels and the view also use.
//!
//! These types import identifiers, messages and the pieces of a view. They import no code that applies events.

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
mod visibility;

pub use attachments::{AttachmentKind, AttachmentRecord};
pub use cache_edits::ArrayPosition;
pub use calls::{CallState, Pairing};
pub use compaction::{DroppedContent, Strategy};
pub use hooks::{CompactionHooks, Hook, HookCall, HookResult};
pub use memory::{Author, TextDigest};
pub use pending::PendingMessage;
pub(crate) use pending::remove_sealed;
pub use requests::{RequestMethod, RequestStamp};
pub use results::{PersistDecision, StoredResult, UnboundResult, Verdict, only_text};
pub use spans::{Placeholder, Span};
pub use visibility::Visibility;
