//! The working state of a session, and the names that were removed from its capability lists. A model that knows a
//! removed tool must be informed.

use std::sync::Arc;

use crate::ids::Revision;
use crate::working::{CapabilityKind, WorkingState, WorkingStateChange};

/// Maximum number of removed names that a session keeps. The latest are kept.
const MAX_DELISTED: usize = 1_000;

/// A name that was removed from a capability list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelistedName {
    /// The list.
    pub kind: CapabilityKind,
    /// The name.
    pub name: Box<str>,
    /// The revision of the event that removed the name.
    pub revision: Revision,
}

/// The working state of a session.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionWorkingState {
    /// The current working state.
    pub state: Arc<WorkingState>,
    /// Names that were removed from capability lists and not added again, oldest first.
    pub delisted: Vec<DelistedName>,
    /// Size of the state, in bytes. Cached because it is read after every command.
    bytes: u64,
}

impl SessionWorkingState {
    /// Rebuilds the working state from a snapshot.
    pub fn restore(state: WorkingState, delisted: Vec<DelistedName>) -> Self {
        Self {
            bytes: state.bytes(),
            state: Arc::new(state),
            delisted,
        }
    }

    /// Returns the size of the state, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn updated(&mut self, revision: Revision, change: &WorkingStateChange) {
        for kind in CapabilityKind::ALL {
            let gone = change.delisted(kind).map(|name| DelistedName {
                kind,
                name: name.into(),
                revision,
            });
            self.delisted.extend(gone);
        }
        // A background job may share the state as it was at the job's start. `make_mut` copies the state in that case.
        Arc::make_mut(&mut self.state).change(change);
        // Names that were added again are no longer removed. A removal by this same event is kept.
        let state = &self.state;
        self.delisted.retain(|gone| {
            let mut listed = state.capabilities(gone.kind).iter();
            gone.revision == revision || !listed.any(|capability| capability.name == gone.name)
        });
        self.bytes = state.bytes();
        let over = self.delisted.len().saturating_sub(MAX_DELISTED);
        self.delisted.drain(..over);
    }

    /// Returns the names of the tools that the model has discovered.
    pub(super) fn discovered(&self) -> Vec<Box<str>> {
        let found = self.state.tools.iter().filter(|tool| tool.discovered);
        found.map(|tool| tool.name.clone()).collect()
    }

    /// Returns the names that were removed from a list after `since` and not added again, sorted.
    pub fn delisted_since(&self, kind: CapabilityKind, since: Revision) -> Vec<&str> {
        let gone = self.delisted.iter();
        let gone = gone.filter(|gone| gone.kind == kind && gone.revision > since);
        let mut names: Vec<&str> = gone.map(|gone| &*gone.name).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}
