//! The cache ledger in the form of the API.

use palimpsest_core::event::ChangeKind;
use palimpsest_core::policy::Prices;
use palimpsest_core::session::{CacheReport, ViewChange};
use palimpsest_proto::context::v1;

use super::saturate_tokens;
use super::scalars::{export_millis, export_timestamp};

/// Converts a cache report. `messages` is the number of messages at the start of the array that are unchanged since
/// they were sent.
pub fn cache_ledger(report: &CacheReport, messages: u32, prices: &Prices) -> v1::CacheLedger {
    let cause = report.cause.map(|cause| change_kind(cause.kind));
    v1::CacheLedger {
        reused_messages: messages,
        reused_tokens: saturate_tokens(report.reused),
        invalidated_tokens: saturate_tokens(report.invalidated),
        saved_tokens: saturate_tokens(report.saved),
        break_even_requests: prices.break_even(report.invalidated, report.saved),
        cause: cause.unwrap_or_default().into(),
        cause_revision: report.cause.map_or(0, |cause| cause.revision.get()),
        idle: report.idle_ms.map(export_millis),
        probably_cold: report.cold,
        total_invalidated_tokens: report.total_invalidated,
        total_saved_tokens: report.total_saved,
        since_time: report.since.map(export_timestamp),
    }
}

/// Converts a view-changing event that an undo reverted.
pub(super) fn undone(change: &ViewChange) -> v1::UndoneEvent {
    v1::UndoneEvent {
        revision: change.revision.get(),
        kind: change_kind(change.kind).into(),
    }
}

convert_enum! {
    /// Converts the kind of a view-changing event.
    pub(super) fn change_kind(ChangeKind) -> v1::EventKind {
        ContentSnipped, ResultsCleared, SpansCollapsed, Compacted, Restored = ContextRestored,
        Rewound = SessionRewound, PolicyChanged,
    }
}
