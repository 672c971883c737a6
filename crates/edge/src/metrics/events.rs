//! Metrics of committed events: counts, effects of levels, view changes and tokens.

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, Meter};
use palimpsest_core::message::Usage;
use palimpsest_engine::tally::{EventTally, TallyItem, change_kinds};

use super::instruments::{counter, histogram};
use super::names;

#[derive(Debug)]
pub(super) struct EventMetrics {
    events: Counter<u64>,
    levels: Counter<u64>,
    freed: Counter<u64>,
    changes: Counter<u64>,
    prompt: Counter<u64>,
    compactions: Counter<u64>,
    compaction_duration: Histogram<f64>,
}

impl EventMetrics {
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
        // Series start at zero, so that Prometheus can compute the increase of the first event.
        for level in [
            "tool_results", "snip", "microcompact", "collapse", "autocompact",
        ] {
            new.freed.add(0, &[KeyValue::new("level", level)]);
        }
        for kind in change_kinds() {
            new.changes.add(0, &[KeyValue::new("kind", kind)]);
        }
        // Zero tokens create the series of every kind, for the same reason.
        new.used(&Usage::default());
        new
    }

    pub(super) fn count(&self, tally: &EventTally) {
        // One append can commit several events, so one tally can contain several items of each kind.
        for item in tally.items() {
            match item {
                TallyItem::Event(name) => self.events.add(1, &[KeyValue::new("event", *name)]),
                TallyItem::Change(kind) => self.changes.add(1, &[KeyValue::new("kind", *kind)]),
                TallyItem::Usage(usage) => self.used(usage),
                TallyItem::Level {
                    level,
                    trigger,
                    mode,
                    freed_tokens,
                } => {
                    let level = KeyValue::new("level", *level);
                    self.freed.add(*freed_tokens, std::slice::from_ref(&level));
                    let labels = [
                        level,
                        KeyValue::new("trigger", *trigger),
                        KeyValue::new("mode", *mode),
                    ];
                    self.levels.add(1, &labels);
                }
                TallyItem::Compaction {
                    source,
                    outcome,
                    took,
                } => {
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
