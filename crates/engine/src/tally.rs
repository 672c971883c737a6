//! Counts of committed events, as labels and numbers, and the observer that receives them.
//!
//! Metrics are not part of this module: the observer decides how the counts are used.

use std::time::Duration;

use palimpsest_core::event::{
    ChangeKind, ClearMode, CompactionFailureReason, Event, RecordedEvent, Trigger,
};
use palimpsest_core::levels::results::StoredResult;
use palimpsest_core::message::Usage;
use palimpsest_core::session::Strategy;

/// Receives the tally of every append that was committed.
pub trait Observer: Send + Sync {
    /// Called after the commit, on the task that committed. It must not block.
    fn committed(&self, tally: &EventTally);
}

/// An observer that ignores every tally.
#[derive(Debug)]
pub struct Unobserved;

impl Observer for Unobserved {
    fn committed(&self, _tally: &EventTally) {}
}

/// The counts of some events. They are created before the commit, because the commit consumes the events.
#[derive(Debug, Default)]
pub struct EventTally(Vec<TallyItem>);

/// One count. Strings are label values from a small fixed set.
#[derive(Debug)]
pub enum TallyItem {
    /// An event, by its name.
    Event(&'static str),
    /// An effect of a level.
    Level {
        /// The level.
        level: &'static str,
        /// The trigger.
        trigger: &'static str,
        /// The method that the level used.
        mode: &'static str,
        /// Tokens that left the view.
        freed_tokens: u64,
    },
    /// A change of the view, by its kind.
    Change(&'static str),
    /// Tokens of a response, as its provider reported them.
    Usage(Usage),
    /// A compaction that ended.
    Compaction {
        /// The source of the summary, or `none`.
        source: &'static str,
        /// `done`, or the reason of the failure.
        outcome: &'static str,
        /// The time that a compaction took, if it was done.
        took: Option<Duration>,
    },
}

impl EventTally {
    /// Counts some events.
    pub fn of<'a>(events: impl IntoIterator<Item = &'a RecordedEvent>) -> Self {
        let mut items = Vec::new();
        for RecordedEvent { event, .. } in events {
            items.push(TallyItem::Event(event_name(event)));
            items.extend(
                event
                    .change_kind()
                    .map(|kind| TallyItem::Change(kind_name(kind))),
            );
            items.extend(level(event));
            items.extend(compaction(event));
            let usages = event.messages().iter().filter_map(|one| one.message.usage);
            items.extend(usages.map(TallyItem::Usage));
        }
        Self(items)
    }

    /// The counts, in the order of their events.
    pub fn items(&self) -> &[TallyItem] {
        &self.0
    }
}

/// The kinds of view changes that [`TallyItem::Change`] names.
pub fn change_kinds() -> impl Iterator<Item = &'static str> {
    KINDS.into_iter().map(kind_name)
}

/// Returns the name of the level whose effect an event records, and the tokens that left the view.
pub(crate) fn level_effect(event: &Event) -> Option<(&'static str, u64)> {
    match level(event)? {
        TallyItem::Level {
            level,
            freed_tokens,
            ..
        } => Some((level, freed_tokens)),
        _ => None,
    }
}

/// The effect of a level that an event records.
fn level(event: &Event) -> Option<TallyItem> {
    let (level, trigger, mode, freed_tokens) = match event {
        // The event of level 1 records no trigger.
        Event::ResultsPersisted(event) => (
            "tool_results",
            "auto",
            "stored",
            event.results.iter().map(freed_tokens).sum(),
        ),
        Event::ContentSnipped(event) => (
            "snip",
            trigger(event.trigger),
            "removed",
            event.freed_tokens,
        ),
        Event::ResultsCleared(event) => (
            "microcompact",
            trigger(event.trigger),
            match event.mode {
                ClearMode::Time => "time",
                ClearMode::Size => "size",
                ClearMode::Prune => "prune",
            },
            event.freed_tokens,
        ),
        // Edits of the provider's cache leave the view unchanged, so no tokens are counted.
        Event::CacheEditsIssued(_) => ("microcompact", "auto", "cache_edits", 0),
        Event::SpansCollapsed(event) => (
            "collapse",
            trigger(event.trigger),
            "collapsed",
            event.freed_tokens,
        ),
        Event::CompactionFinished(event) => (
            "autocompact",
            trigger(event.trigger),
            source(event.strategy),
            event.before_tokens.saturating_sub(event.after_tokens),
        ),
        // Undo and rewind change the view too, but they are not levels.
        _ => return None,
    };
    Some(TallyItem::Level {
        level,
        trigger,
        mode,
        freed_tokens,
    })
}

fn freed_tokens(stored: &StoredResult) -> u64 {
    // The replacement text stays in the view, so only the difference is freed.
    u64::from(stored.tokens.saturating_sub(stored.replacement_tokens))
}

fn compaction(event: &Event) -> Option<TallyItem> {
    match event {
        Event::CompactionFinished(event) => {
            let took = Duration::from_millis(event.duration_ms);
            Some(TallyItem::Compaction {
                source: source(event.strategy),
                outcome: "done",
                took: Some(took),
            })
        }
        Event::CompactionFailed(event) => Some(TallyItem::Compaction {
            // A failed compaction has no summary, and therefore no source.
            source: "none",
            outcome: failure_reason(event.reason),
            took: None,
        }),
        _ => None,
    }
}

pub(crate) const fn trigger(asked: Trigger) -> &'static str {
    match asked {
        Trigger::Auto => "auto",
        Trigger::Manual => "manual",
        Trigger::Model => "model",
        Trigger::PromptTooLong => "prompt_too_long",
    }
}

pub(crate) const fn source(strategy: Strategy) -> &'static str {
    match strategy {
        Strategy::SessionMemory => "session_memory",
        Strategy::Model => "model",
        Strategy::Extractive => "extractive",
        Strategy::Delegated => "delegated",
        Strategy::DropOldest => "drop_oldest",
    }
}

pub(crate) const fn failure_reason(why: CompactionFailureReason) -> &'static str {
    match why {
        CompactionFailureReason::ModelUnavailable => "model_unavailable",
        CompactionFailureReason::PromptTooLong => "prompt_too_long",
        CompactionFailureReason::Empty => "empty",
        CompactionFailureReason::Refused => "refused",
        CompactionFailureReason::Truncated => "truncated",
        CompactionFailureReason::Incomplete => "incomplete",
        CompactionFailureReason::NotSmaller => "not_smaller",
        CompactionFailureReason::HookVetoed => "hook_vetoed",
        CompactionFailureReason::HookFailed => "hook_failed",
        CompactionFailureReason::RangeChanged => "range_changed",
        CompactionFailureReason::Expired => "expired",
        CompactionFailureReason::DelegateFailed => "delegate_failed",
        CompactionFailureReason::InputUnreadable => "input_unreadable",
    }
}

const KINDS: [ChangeKind; 7] = [
    ChangeKind::ContentSnipped,
    ChangeKind::ResultsCleared,
    ChangeKind::SpansCollapsed,
    ChangeKind::Compacted,
    ChangeKind::Restored,
    ChangeKind::Rewound,
    ChangeKind::PolicyChanged,
];

const fn kind_name(kind: ChangeKind) -> &'static str {
    match kind {
        ChangeKind::ContentSnipped => "content_snipped",
        ChangeKind::ResultsCleared => "results_cleared",
        ChangeKind::SpansCollapsed => "spans_collapsed",
        ChangeKind::Compacted => "compacted",
        ChangeKind::Restored => "restored",
        ChangeKind::Rewound => "rewound",
        ChangeKind::PolicyChanged => "policy_changed",
    }
}

const fn event_name(event: &Event) -> &'static str {
    // These names are labels of a published metric. They stay the same when a variant is renamed.
    match event {
        Event::SessionCreated(_) => "session_created",
        Event::SessionUpdated(_) => "session_updated",
        Event::MessagesAppended(_) => "messages_appended",
        Event::ViewServed(_) => "view_served",
        Event::ResultsPersisted(_) => "results_persisted",
        Event::ContentSnipped(_) => "content_snipped",
        Event::ResultsCleared(_) => "results_cleared",
        Event::CacheEditsIssued(_) => "cache_edits_issued",
        Event::ContextRestored(_) => "context_restored",
        Event::SpansStaged(_) => "spans_staged",
        Event::SpansCollapsed(_) => "spans_collapsed",
        Event::SessionRewound(_) => "session_rewound",
        Event::CompactionStarted(_) => "compaction_started",
        Event::CompactionFailed(_) => "compaction_failed",
        Event::CompactionShortened(_) => "compaction_shortened",
        Event::HookCalled(_) => "hook_called",
        Event::SummaryPrepared(_) => "summary_prepared",
        Event::CompactionFinished(_) => "compacted",
        Event::MemoryUpdateStarted(_) => "memory_update_started",
        Event::MemoryUpdated(_) => "memory_updated",
        Event::MemoryUpdateFailed(_) => "memory_update_failed",
        Event::MemoryFileWritten(_) => "memory_filed",
        Event::WorkingStateUpdated(_) => "working_state_updated",
        Event::PolicyChanged(_) => "policy_changed",
        Event::ArraySynced(_) => "array_synced",
        Event::PersistDecided(_) => "persist_decided",
        Event::PersistDecisionsConsumed(_) => "persist_decisions_consumed",
    }
}
