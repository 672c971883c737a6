//! The outcome of `PrepareContext`, as its reply reports it.

use palimpsest_core::command::SkipReason;
use palimpsest_core::compaction::CompactionOutcome;
use palimpsest_core::event::{Event, RecordedEvent};
use palimpsest_core::ids::Revision;
use palimpsest_core::session::Session;
use palimpsest_engine::compaction::{DropOutcome, MadeRoom};
use palimpsest_proto::context::v1;

use super::super::append::AppendStatus;
use crate::convert;
use crate::errors::ServiceError;

/// The outcome of a call.
#[derive(Clone)]
pub(super) struct PrepareOutcome {
    pub(super) appended: AppendStatus,
    /// The events of levels with their revisions, including the earlier parts of a compaction.
    pub(super) levels: Vec<(Revision, Event)>,
    /// The levels that did nothing, with the reason.
    pub(super) skipped: Vec<(v1::Level, SkipReason)>,
    /// The outcome of a compaction that was due.
    pub(super) compacted: Option<CompactionOutcome>,
    /// The event that removed the oldest rounds, if nothing else freed enough.
    pub(super) dropped: Option<(Revision, Event)>,
    /// The tokens of the view before this call.
    pub(super) before_tokens: u64,
}

impl PrepareOutcome {
    /// Adds the compaction that the call waited for.
    ///
    /// # Errors
    ///
    /// Returns `PROMPT_TOO_LONG` if the provider rejected the view and nothing can be removed.
    pub(super) fn with(
        self,
        mut made: MadeRoom<Box<v1::TokenReport>>,
    ) -> Result<Self, ServiceError> {
        let compacted = made.rounds.pop();
        let earlier = made.rounds.iter().filter_map(CompactionOutcome::event);
        let earlier = earlier.map(|(revision, event)| (revision, event.clone()));
        Ok(Self {
            levels: self.levels.into_iter().chain(earlier).collect(),
            compacted,
            dropped: match made.dropped {
                DropOutcome::Dropped(revision, event) => Some((revision, *event)),
                DropOutcome::NotNeeded => None,
                DropOutcome::NothingLeft(tokens) => {
                    return Err(ServiceError::prompt_too_long(&tokens));
                }
            },
            ..self
        })
    }

    /// Returns the events that changed the view, in order.
    pub(super) fn changes(&self) -> impl Iterator<Item = (Revision, &Event)> {
        let compacted = self.compacted.iter();
        let compacted = compacted.filter_map(CompactionOutcome::event);
        let levels = self.levels.iter().map(told);
        levels.chain(compacted).chain(self.dropped.iter().map(told))
    }

    pub(super) fn level_reports(&self, session: &Session, dry_run: bool) -> Vec<v1::LevelReport> {
        let done = self.levels.iter();
        let done = done.filter_map(|(_, event)| convert::stage(event, session, dry_run));
        let skipped = self.skipped.iter();
        let skipped = skipped.map(|(level, skip)| convert::skipped(*level, *skip));
        let compacted = self.compacted.as_ref().and_then(|ended| match ended {
            CompactionOutcome::Event(event, _) => convert::stage(event, session, dry_run),
            CompactionOutcome::Skipped(skip) => {
                Some(convert::skipped(v1::Level::Compaction, *skip))
            }
            CompactionOutcome::Answered(_) | CompactionOutcome::Running(_) => None,
        });
        let dropped = self.dropped.iter();
        let dropped = dropped.filter_map(|(_, event)| convert::stage(event, session, dry_run));
        done.chain(skipped)
            .chain(compacted)
            .chain(dropped)
            .collect()
    }
}

const fn told((revision, event): &(Revision, Event)) -> (Revision, &Event) {
    (*revision, event)
}

pub(super) const fn is_of_a_level(event: &Event) -> bool {
    matches!(
        event,
        Event::ResultsPersisted(_)
            | Event::ResultsCleared(_)
            | Event::CacheEditsIssued(_)
            | Event::SpansCollapsed(_)
    )
}

pub(super) const fn folds(recorded: &RecordedEvent) -> bool {
    matches!(recorded.event, Event::SpansCollapsed(_))
}
