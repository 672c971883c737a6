//! The compactions of a session: the one that is under way, those that left a summary, and whether more
//! may start by themselves.

use crate::event::{Asked, CompactionFailed, CompactionStarted};
use crate::ids::{CompactionKey, Ordinal, Revision, Timestamp};
use crate::levels::attachments::Attached;
use crate::view::LayoutChange;

/// How a summary is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// The running summary stands in.
    SessionMemory,
    /// A model of the service writes it.
    Model,
    /// It is extracted from the structure of the messages.
    Extractive,
    /// The caller's own model writes it.
    Delegated,
    /// There is none: the oldest rounds just leave.
    DropOldest,
}

/// A compaction that is under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    /// Which.
    pub key: CompactionKey,
    /// Who asked for it.
    pub asked: Asked,
    /// How the summary is to be made.
    pub strategy: Strategy,
    /// When it began.
    pub at: Timestamp,
    /// When it counts as failed.
    pub expires: Timestamp,
    /// The messages that it summarises, in order.
    pub leaving: Vec<Ordinal>,
    /// How many pieces the view had then.
    pub pieces: u32,
    /// Whether one of them has changed since: a summary must not bring back what left meanwhile.
    pub touched: bool,
}

/// What a compaction left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Boundary {
    /// The event that made it.
    pub revision: Revision,
    /// The compaction.
    pub key: CompactionKey,
    /// Who asked for it.
    pub asked: Asked,
    /// How the summary was made.
    pub strategy: Strategy,
    /// When.
    pub at: Timestamp,
    /// The message that marks it.
    pub mark: Ordinal,
    /// The message that holds the summary; none where there is none.
    pub summary: Option<Ordinal>,
    /// The messages that stayed word for word, in the order of the view.
    pub kept: Vec<Ordinal>,
    /// How many messages left.
    pub left: u32,
    /// The last of them.
    pub last_left: Option<Ordinal>,
    /// The view before, in tokens.
    pub before_tokens: u64,
    /// The view after.
    pub after_tokens: u64,
    /// What was attached, or found no room.
    pub attached: Vec<Attached>,
    /// The tools that the model had found until then.
    pub discovered: Vec<Box<str>>,
}

/// The compactions of a session.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Compactions {
    /// The one that is under way.
    pub running: Option<Running>,
    /// Those that took effect, oldest first.
    pub boundaries: Vec<Boundary>,
    /// Automatic attempts that failed in a row.
    pub failures: u32,
    /// Whether an undo holds automatic ones back until a person speaks.
    pub held: bool,
    /// What the view had after one that could not bring it under its threshold.
    pub floor: Option<u64>,
    /// The number of the next.
    pub next: u32,
}

impl Compactions {
    /// The key that the next will have.
    pub fn next_key(&self) -> CompactionKey {
        CompactionKey::new(self.next)
    }

    /// The compaction that an event made.
    pub fn made_by(&self, revision: Revision) -> Option<&Boundary> {
        let found = self
            .boundaries
            .binary_search_by_key(&revision, |boundary| boundary.revision);
        found.ok().map(|at| &self.boundaries[at])
    }

    pub(super) fn started(&mut self, at: Timestamp, event: &CompactionStarted, pieces: u32) {
        self.next = self.next.max(event.key.get() + 1);
        self.running = Some(Running {
            key: event.key,
            asked: event.asked,
            strategy: event.strategy,
            at,
            expires: event.expires,
            leaving: event.leaving.clone(),
            pieces,
            touched: false,
        });
    }

    pub(super) fn failed(&mut self, event: &CompactionFailed) {
        self.end(event.key);
        if event.asked != Asked::Manual {
            self.failures = self.failures.saturating_add(1);
        }
    }

    /// One took effect.
    pub(super) fn finished(&mut self, boundary: Boundary, threshold: u64) {
        self.next = self.next.max(boundary.key.get() + 1);
        self.end(boundary.key);
        self.failures = 0;
        self.held = false;
        self.floor = (boundary.after_tokens >= threshold).then_some(boundary.after_tokens);
        self.boundaries.push(boundary);
    }

    fn end(&mut self, key: CompactionKey) {
        if self
            .running
            .as_ref()
            .is_some_and(|running| running.key == key)
        {
            self.running = None;
        }
    }

    /// The view changed in another way.
    pub(super) fn view_changed(&mut self, change: Option<&LayoutChange>) {
        if let (Some(running), Some(change)) = (&mut self.running, change) {
            let first = change.first().map(crate::view::count);
            running.touched |= first.is_some_and(|first| first < running.pieces);
        }
    }

    /// Changes were taken back: automatic compaction waits until a person speaks.
    pub(super) fn restored(&mut self) {
        (self.failures, self.held, self.floor) = (0, true, None);
    }
}
