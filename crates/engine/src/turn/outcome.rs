//! The outcome of a turn: the append, the actions of the levels, and a compaction that the call waited for.

use palimpsest_core::command::SkipReason;
use palimpsest_core::compaction::CompactionOutcome;
use palimpsest_core::event::{Event, RecordedEvent};
use palimpsest_core::ids::Revision;

use super::AppendStatus;
use crate::compaction::{DropOutcome, ViewCompaction};

/// The outcome of a turn, from which the reply is built.
#[derive(Debug, Clone)]
pub struct TurnOutcome {
    /// The outcome of the append.
    pub appended: AppendStatus,
    /// The events of levels with their revisions, including the earlier parts of a compaction.
    pub levels: Vec<(Revision, Event)>,
    /// The reason for which level 3 did nothing.
    pub clear_skip: Option<SkipReason>,
    /// The reason for which level 4 did nothing.
    pub collapse_skip: Option<SkipReason>,
    /// The outcome of a compaction that was due.
    pub compacted: Option<CompactionOutcome>,
    /// The event that removed the oldest rounds, if nothing else freed enough.
    pub dropped: Option<(Revision, Event)>,
    /// The tokens of the view before the turn.
    pub(super) before_tokens: u64,
}

impl TurnOutcome {
    /// Creates the outcome of a turn in which no level has run yet.
    pub(super) fn new(appended: AppendStatus, before_tokens: u64) -> Self {
        Self {
            appended,
            levels: Vec::new(),
            clear_skip: None,
            collapse_skip: None,
            compacted: None,
            dropped: None,
            before_tokens,
        }
    }

    /// Adds the compaction that the call waited for.
    pub(super) fn with(self, mut made: ViewCompaction) -> Self {
        let compacted = made.rounds.pop();
        let earlier = made.rounds.iter().filter_map(CompactionOutcome::event);
        let earlier = earlier.map(|(revision, event)| (revision, event.clone()));
        Self {
            levels: self.levels.into_iter().chain(earlier).collect(),
            compacted,
            dropped: match made.dropped {
                DropOutcome::Dropped(revision, event) => Some((revision, *event)),
                DropOutcome::NotNeeded | DropOutcome::NothingLeft => None,
            },
            ..self
        }
    }

    /// Returns the events that changed the view, in order.
    pub fn changes(&self) -> impl Iterator<Item = (Revision, &Event)> {
        let compacted = self.compacted.iter();
        let compacted = compacted.filter_map(CompactionOutcome::event);
        let levels = self.levels.iter().map(by_reference);
        let dropped = self.dropped.iter().map(by_reference);
        levels.chain(compacted).chain(dropped)
    }
}

const fn by_reference((revision, event): &(Revision, Event)) -> (Revision, &Event) {
    (*revision, event)
}

/// Returns the events of levels among the events of a transaction. `before` is the revision before the transaction.
pub(super) fn of_levels(before: Revision, events: &[RecordedEvent]) -> Vec<(Revision, Event)> {
    let events = (before.get() + 1..).zip(events);
    events
        .filter(|(_, recorded)| is_of_a_level(&recorded.event))
        .map(|(revision, recorded)| (Revision::new(revision), recorded.event.clone()))
        .collect()
}

const fn is_of_a_level(event: &Event) -> bool {
    matches!(
        event,
        Event::ResultsPersisted(_)
            | Event::ResultsCleared(_)
            | Event::CacheEditsIssued(_)
            | Event::SpansCollapsed(_)
    )
}
