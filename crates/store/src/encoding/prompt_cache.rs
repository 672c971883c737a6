//! Encoding of the prompt cache state and of the list of view-changing events.

use palimpsest_core::event::ChangeKind;
use palimpsest_core::session::{
    CacheDivergence, CachedRequest, CostBalance, LastServed, PromptCache, ViewChange,
};

use super::error::DecodeError;
use super::stored_as::{StoredAs, cell};
use super::v1;

stored_enum! {
    ChangeKind = ChangeKind {
        ContentSnipped, ResultsCleared, SpansCollapsed, Compacted, Restored, Rewound, PolicyChanged,
    }
    or "a view change of an unknown kind"
}

pub(super) fn write_changes(changes: &[ViewChange], stored: &mut v1::Snapshot) {
    for change in changes {
        stored.view_changes.push(change.revision.get());
        stored.view_change_kinds.push(change.kind.to_proto());
        stored.view_change_savings.push(change.saving);
    }
}

pub(super) fn read_changes(stored: &v1::Snapshot) -> Result<Vec<ViewChange>, DecodeError> {
    let rows = 0..stored.view_changes.len();
    rows.map(|row| {
        Ok(ViewChange {
            revision: cell(&stored.view_changes, row)?,
            kind: cell(&stored.view_change_kinds, row)?,
            saving: cell(&stored.view_change_savings, row)?,
        })
    })
    .collect()
}

stored_struct! {
    CacheDivergence = CacheDrift { pieces, rewritten, cause }
    renamed { restore_change = back }
}

/// The prompt cache state. Its target has the form of a serving without a window.
impl StoredAs<v1::PromptCache> for PromptCache {
    fn to_proto(&self) -> v1::PromptCache {
        let served = LastServed {
            target: self.last_request.target.clone(),
            ..LastServed::default()
        };
        v1::PromptCache {
            since_ms: self.since.to_proto(),
            target: served.to_proto(),
            pieces: self.last_request.pieces,
            tokens: self.last_request.tokens,
            held_saving: self.last_request.saving,
            saving: self.saving,
            total_invalidated: self.total_invalidated,
            total_saved: self.total_saved,
            drift: self.divergence.to_proto(),
            sent_cost: self.costs.sent,
            unmanaged_cost: self.costs.unmanaged,
            held_cost: self.costs.held,
            compacted_tokens: self.costs.compacted_tokens,
            freed_tokens: self.costs.freed,
            last_freed_tokens: self.costs.last_freed,
            served_ms: self.served_at.to_proto(),
            open_request_tokens: self.open_request_tokens,
            request_served_ms: self.last_request.served_at.to_proto(),
        }
    }

    fn from_proto(stored: v1::PromptCache) -> Result<Self, DecodeError> {
        Ok(Self {
            since: StoredAs::from_proto(stored.since_ms)?,
            last_request: CachedRequest {
                target: LastServed::from_proto(stored.target)?.target,
                pieces: stored.pieces,
                tokens: stored.tokens,
                saving: stored.held_saving,
                served_at: StoredAs::from_proto(stored.request_served_ms)?,
            },
            served_at: StoredAs::from_proto(stored.served_ms)?,
            open_request_tokens: stored.open_request_tokens,
            divergence: StoredAs::from_proto(stored.drift)?,
            saving: stored.saving,
            total_invalidated: stored.total_invalidated,
            total_saved: stored.total_saved,
            costs: CostBalance {
                sent: stored.sent_cost,
                unmanaged: stored.unmanaged_cost,
                held: stored.held_cost,
                compacted_tokens: stored.compacted_tokens,
                freed: stored.freed_tokens,
                last_freed: stored.last_freed_tokens,
            },
        })
    }
}
