//! Encoding of the prompt cache state and of the list of view-changing events.

use palimpsest_core::event::ChangeKind;
use palimpsest_core::ids::{Revision, Timestamp};
use palimpsest_core::session::{CachedRequest, Drift, LastServed, PromptCache, ViewChange};

use super::error::DecodeError;
use super::{v1, view};

const CUT: DecodeError = DecodeError::Damaged("a list of view changes is cut");

pub(super) fn write_changes(changes: &[ViewChange], stored: &mut v1::Snapshot) {
    for change in changes {
        stored.view_changes.push(change.revision.get());
        stored
            .view_change_kinds
            .push(write_kind(change.kind).into());
        stored.view_change_savings.push(change.saving);
    }
}

pub(super) fn read_changes(stored: &v1::Snapshot) -> Result<Vec<ViewChange>, DecodeError> {
    let read = |(at, revision): (usize, &u64)| {
        Ok(ViewChange {
            revision: Revision::new(*revision),
            kind: read_kind(*stored.view_change_kinds.get(at).ok_or(CUT)?)?,
            saving: *stored.view_change_savings.get(at).ok_or(CUT)?,
        })
    };
    stored.view_changes.iter().enumerate().map(read).collect()
}

const fn write_kind(kind: ChangeKind) -> v1::ChangeKind {
    match kind {
        ChangeKind::ContentSnipped => v1::ChangeKind::ContentSnipped,
        ChangeKind::ResultsCleared => v1::ChangeKind::ResultsCleared,
        ChangeKind::SpansCollapsed => v1::ChangeKind::SpansCollapsed,
        ChangeKind::Compacted => v1::ChangeKind::Compacted,
        ChangeKind::Restored => v1::ChangeKind::Restored,
        ChangeKind::Rewound => v1::ChangeKind::Rewound,
        ChangeKind::PolicyChanged => v1::ChangeKind::PolicyChanged,
    }
}

fn read_kind(kind: i32) -> Result<ChangeKind, DecodeError> {
    Ok(match v1::ChangeKind::try_from(kind).map_err(|_| CUT)? {
        v1::ChangeKind::ContentSnipped => ChangeKind::ContentSnipped,
        v1::ChangeKind::ResultsCleared => ChangeKind::ResultsCleared,
        v1::ChangeKind::SpansCollapsed => ChangeKind::SpansCollapsed,
        v1::ChangeKind::Compacted => ChangeKind::Compacted,
        v1::ChangeKind::Restored => ChangeKind::Restored,
        v1::ChangeKind::Rewound => ChangeKind::Rewound,
        v1::ChangeKind::PolicyChanged => ChangeKind::PolicyChanged,
        v1::ChangeKind::Unspecified => return Err(CUT),
    })
}

pub(super) fn write(cache: &PromptCache) -> v1::PromptCache {
    let target = LastServed {
        target: cache.held.target.clone(),
        ..LastServed::default()
    };
    v1::PromptCache {
        since_ms: cache.since.map(Timestamp::as_millis),
        target: Some(view::write_served(&target)),
        pieces: cache.held.pieces,
        tokens: cache.held.tokens,
        held_saving: cache.held.saving,
        saving: cache.saving,
        total_invalidated: cache.total_invalidated,
        total_saved: cache.total_saved,
        drift: cache.drift.as_ref().map(|drift| v1::CacheDrift {
            pieces: drift.pieces,
            back: Some(view::write_change(&drift.back)),
            rewritten: drift.rewritten,
            cause: drift.cause.get(),
        }),
    }
}

pub(super) fn read(stored: Option<v1::PromptCache>) -> Result<PromptCache, DecodeError> {
    let Some(stored) = stored else {
        return Ok(PromptCache::default());
    };
    let drift = |drift: v1::CacheDrift| {
        Ok::<_, DecodeError>(Drift {
            pieces: drift.pieces,
            back: view::read_change(drift.back)?,
            rewritten: drift.rewritten,
            cause: Revision::new(drift.cause),
        })
    };
    Ok(PromptCache {
        since: stored.since_ms.map(Timestamp::from_millis),
        held: CachedRequest {
            target: view::read_served(stored.target)?.target,
            pieces: stored.pieces,
            tokens: stored.tokens,
            saving: stored.held_saving,
        },
        drift: stored.drift.map(drift).transpose()?,
        saving: stored.saving,
        total_invalidated: stored.total_invalidated,
        total_saved: stored.total_saved,
    })
}
