//! What was committed, as numbers: events, what levels did, what it cost the prompt cache.
//!
//! It is counted where events are committed, so that nothing is counted twice and nothing that failed.

use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, Meter};
use palimpsest_core::event::{Asked, ChangeKind, ClearMode, Event, Recorded, WhyFailed};
use palimpsest_core::levels::results::Stored;
use palimpsest_core::message::Usage;
use palimpsest_core::session::Strategy;

use super::make::{counter, histogram};
use super::names;

/// What some events are to be counted as. Made before they are committed, counted after.
#[derive(Debug, Default)]
pub(crate) struct Tally(Vec<Item>);

#[derive(Debug)]
enum Item {
    Event(&'static str),
    Level(&'static str, &'static str, &'static str, u64),
    Change(&'static str),
    Usage(Usage),
    Compaction(&'static str, &'static str, Option<Duration>),
}

impl Tally {
    /// The tally of some events.
    pub(crate) fn of(events: &[Recorded]) -> Self {
        let mut items = Vec::with_capacity(2 * events.len());
        for Recorded { event, .. } in events {
            items.push(Item::Event(event_name(event)));
            items.extend(
                event
                    .change_kind()
                    .map(|kind| Item::Change(kind_name(kind))),
            );
            items.extend(level(event));
            items.extend(compaction(event));
            let usages = event.messages().iter().filter_map(|one| one.message.usage);
            items.extend(usages.map(Item::Usage));
        }
        Self(items)
    }
}

#[derive(Debug)]
pub(super) struct Happened {
    events: Counter<u64>,
    levels: Counter<u64>,
    freed: Counter<u64>,
    changes: Counter<u64>,
    prompt: Counter<u64>,
    compactions: Counter<u64>,
    compaction_duration: Histogram<f64>,
}

impl Happened {
    pub(super) fn new(meter: &Meter) -> Self {
        let new = Self {
            events: counter(meter, &names::EVENTS),
            levels: counter(meter, &names::LEVELS),
            freed: counter(meter, &names::TOKENS_FREED),
            changes: counter(meter, &names::VIEW_CHANGES),
            prompt: counter(meter, &names::PROMPT_TOKENS),
            compactions: counter(meter, &names::COMPACTIONS),
            compaction_duration: histogram(meter, &names::COMPACTION_DURATION),
        };
        // From zero on, so that the first of them is seen as an increase.
        for level in [
            "tool_results",
            "snip",
            "microcompact",
            "collapse",
            "autocompact",
        ] {
            new.freed.add(0, &[KeyValue::new("level", level)]);
        }
        for kind in KINDS {
            new.changes
                .add(0, &[KeyValue::new("kind", kind_name(kind))]);
        }
        new.used(&Usage::default());
        new
    }

    pub(super) fn count(&self, tally: &Tally) {
        for item in &tally.0 {
            match item {
                Item::Event(name) => self.events.add(1, &[KeyValue::new("event", *name)]),
                Item::Change(kind) => self.changes.add(1, &[KeyValue::new("kind", *kind)]),
                Item::Usage(usage) => self.used(usage),
                Item::Level(level, asked, how, freed) => {
                    let level = KeyValue::new("level", *level);
                    self.freed.add(*freed, std::slice::from_ref(&level));
                    let labels = [
                        level,
                        KeyValue::new("asked", *asked),
                        KeyValue::new("how", *how),
                    ];
                    self.levels.add(1, &labels);
                }
                Item::Compaction(source, outcome, took) => {
                    let source = KeyValue::new("source", *source);
                    if let Some(took) = took {
                        let labels = std::slice::from_ref(&source);
                        self.compaction_duration.record(took.as_secs_f64(), labels);
                    }
                    self.compactions
                        .add(1, &[source, KeyValue::new("outcome", *outcome)]);
                }
            }
        }
    }

    fn used(&self, usage: &Usage) {
        for (kind, tokens) in [
            ("uncached", usage.input_tokens),
            ("cache_read", usage.cache_read_tokens),
            ("cache_write", usage.cache_write_tokens),
            ("output", usage.output_tokens),
        ] {
            self.prompt.add(tokens, &[KeyValue::new("kind", kind)]);
        }
    }
}

/// What a level did: which, who asked, how, and how many tokens left.
fn level(event: &Event) -> Option<Item> {
    let (level, asked, how, freed) = match event {
        Event::ResultsPersisted(event) => (
            "tool_results",
            "auto",
            "stored",
            event.results.iter().map(freed).sum(),
        ),
        Event::ContentSnipped(event) => ("snip", asked(event.asked), "removed", event.freed_tokens),
        Event::ResultsCleared(event) => (
            "microcompact",
            asked(event.asked),
            match event.mode {
                ClearMode::Time => "time",
                ClearMode::Size => "size",
                ClearMode::Prune => "prune",
            },
            event.freed_tokens,
        ),
        // What leaves the provider's cache stays in the view, so that no tokens are counted.
        Event::CacheEditsIssued(_) => ("microcompact", "auto", "cache_edits", 0),
        Event::SpansCollapsed(event) => {
            ("collapse", asked(event.asked), "folded", event.freed_tokens)
        }
        Event::Compacted(event) => (
            "autocompact",
            asked(event.asked),
            source(event.strategy),
            event.before_tokens.saturating_sub(event.after_tokens),
        ),
        _ => return None,
    };
    Some(Item::Level(level, asked, how, freed))
}

fn freed(stored: &Stored) -> u64 {
    u64::from(stored.tokens.saturating_sub(stored.text_tokens))
}

fn compaction(event: &Event) -> Option<Item> {
    match event {
        Event::Compacted(event) => {
            let took = Duration::from_millis(event.took_ms);
            Some(Item::Compaction(source(event.strategy), "done", Some(took)))
        }
        Event::CompactionFailed(event) => Some(Item::Compaction("none", why(event.why), None)),
        _ => None,
    }
}

const fn asked(asked: Asked) -> &'static str {
    match asked {
        Asked::Auto => "auto",
        Asked::Manual => "manual",
        Asked::Model => "model",
        Asked::Provider => "provider",
    }
}

const fn source(strategy: Strategy) -> &'static str {
    match strategy {
        Strategy::SessionMemory => "session_memory",
        Strategy::Model => "model",
        Strategy::Extractive => "extractive",
        Strategy::Delegated => "delegated",
        Strategy::DropOldest => "drop_oldest",
    }
}

const fn why(why: WhyFailed) -> &'static str {
    match why {
        WhyFailed::ModelUnavailable => "model_unavailable",
        WhyFailed::PromptTooLong => "prompt_too_long",
        WhyFailed::Empty => "empty",
        WhyFailed::Refused => "refused",
        WhyFailed::Truncated => "truncated",
        WhyFailed::Incomplete => "incomplete",
        WhyFailed::NotSmaller => "not_smaller",
        WhyFailed::HookVetoed => "hook_vetoed",
        WhyFailed::HookFailed => "hook_failed",
        WhyFailed::RangeChanged => "range_changed",
        WhyFailed::Expired => "expired",
        WhyFailed::DelegateFailed => "delegate_failed",
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
    match event {
        Event::SessionCreated(_) => "session_created",
        Event::SessionUpdated(_) => "session_updated",
        Event::MessagesAppended(_) => "messages_appended",
        Event::ViewServed(_) => "view_served",
        Event::ResultsPersisted(_) => "results_persisted",
        Event::ContentSnipped(_) => "content_snipped",
        Event::ResultsCleared(_) => "results_cleared",
        Event::CacheEditsIssued(_) => "cache_edits_issued",
        Event::Restored(_) => "restored",
        Event::SpansStaged(_) => "spans_staged",
        Event::SpansCollapsed(_) => "spans_collapsed",
        Event::Rewound(_) => "rewound",
        Event::CompactionStarted(_) => "compaction_started",
        Event::CompactionFailed(_) => "compaction_failed",
        Event::CompactionShortened(_) => "compaction_shortened",
        Event::HookCalled(_) => "hook_called",
        Event::SummaryPrepared(_) => "summary_prepared",
        Event::Compacted(_) => "compacted",
        Event::MemoryStarted(_) => "memory_started",
        Event::MemoryUpdated(_) => "memory_updated",
        Event::MemoryFailed(_) => "memory_failed",
        Event::MemoryFiled(_) => "memory_filed",
        Event::WorkingStateUpdated(_) => "working_state_updated",
        Event::PolicyChanged(_) => "policy_changed",
        Event::ResultOffered(_) => "result_offered",
        Event::OffersSettled(_) => "offers_settled",
    }
}
