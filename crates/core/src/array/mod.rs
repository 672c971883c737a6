//! Whole arrays: the caller sends its complete conversation, and a plan states the difference to the session.
//!
//! [`CallerArray`] is the array as the caller has it, one [`Link`] per element. It is compared with the next array, and
//! neither the view nor the transcript is. [`plan`] is a pure function, and nothing changes until its steps are carried
//! out as commands.

mod align;
mod call_order;
mod change;
mod compacted;
mod hints;
mod joined;
mod known_order;
mod lane;
mod links;
mod plan;
mod recorded;
mod response;
mod returned;
mod shown;
mod shrunk;
mod state;
mod summary;
mod tips;
mod unchanged;

pub use change::{
    Adoption, ArrayOutcome, LinkSource, NewLink, PlacedMessages, PlannedChange, SyncPlan,
};
pub use compacted::{OwnCompaction, ShownMessage};
pub use hints::{Hints, KnownContent};
pub use joined::with_joined;
pub use known_order::in_known_order;
pub use lane::lane;
pub use links::{
    CallerArray, ChainHead, Element, Incoming, Link, LinkKind, MAX_ABANDONED, MAX_RESPONSES,
    RecordedItem,
};
pub use plan::{Identity, plan};
pub use recorded::recorded;
pub use response::{ResponseUse, add_response};
pub use returned::ReturnedSummary;
pub(crate) use shown::items as shown_items;
pub use tips::{ArrayTips, MAX_BEGINNINGS, MAX_TIPS, own_summary_tip, summary_tip};
pub use unchanged::is_unchanged;
