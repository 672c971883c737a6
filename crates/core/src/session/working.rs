//! The working state of a session, and what left its capabilities: a model that was told of a tool has to
//! be told when that is gone.

use std::sync::Arc;

use crate::ids::Revision;
use crate::working::{CapabilityKind, StateChange, WorkingState};

/// How many names that left its capabilities a session remembers, the latest.
const MAX_DELISTED: usize = 1_000;

/// A name that left a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelistedName {
    /// The list.
    pub kind: CapabilityKind,
    /// The name.
    pub name: Box<str>,
    /// The event by which it left.
    pub revision: Revision,
}

/// The working state of a session.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionWorkingState {
    /// As it is now.
    pub state: Arc<WorkingState>,
    /// What left its capabilities and has not come back, oldest first.
    pub delisted: Vec<DelistedName>,
    /// The bytes of the state; they are asked for after every command.
    bytes: u64,
}

impl SessionWorkingState {
    /// Puts it together again from what a snapshot holds.
    pub fn restore(state: WorkingState, delisted: Vec<DelistedName>) -> Self {
        Self {
            bytes: state.bytes(),
            state: Arc::new(state),
            delisted,
        }
    }

    /// The bytes of the state.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn updated(&mut self, revision: Revision, change: &StateChange) {
        for kind in CapabilityKind::ALL {
            let gone = change.delisted(kind).map(|name| DelistedName {
                kind,
                name: name.into(),
                revision,
            });
            self.delisted.extend(gone);
        }
        // A job may hold the state as it was when it began; a copy is made then.
        Arc::make_mut(&mut self.state).change(change);
        let state = &self.state;
        self.delisted.retain(|gone| {
            let mut listed = state.capabilities(gone.kind).iter();
            gone.revision == revision || !listed.any(|capability| capability.name == gone.name)
        });
        self.bytes = state.bytes();
        let over = self.delisted.len().saturating_sub(MAX_DELISTED);
        self.delisted.drain(..over);
    }

    /// The tools that the model has found.
    pub(super) fn discovered(&self) -> Vec<Box<str>> {
        let found = self.state.tools.iter().filter(|tool| tool.discovered);
        found.map(|tool| tool.name.clone()).collect()
    }

    /// The names that left a list after an event, and have not come back.
    pub fn delisted_since(&self, kind: CapabilityKind, since: Revision) -> Vec<&str> {
        let gone = self.delisted.iter();
        let gone = gone.filter(|gone| gone.kind == kind && gone.revision > since);
        let mut names: Vec<&str> = gone.map(|gone| &*gone.name).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}
