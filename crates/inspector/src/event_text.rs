//! Events in words.

use std::fmt::Write as _;

use palimpsest_proto::context::v1::session_event::Event;
use palimpsest_proto::context::v1::{Compaction, SessionEvent, Usage};

use crate::format::{number, words};
use crate::text::one_line;

/// The maximum length of a text of the conversation in a description, in characters.
const QUOTE_CHARS: usize = 120;

/// Returns the name and the description of an event.
pub(crate) fn describe(event: &SessionEvent) -> (&'static str, String) {
    let Some(event) = &event.event else {
        return (
            "Other",
            "a kind of event that this page does not know".to_owned(),
        );
    };
    match event {
        Event::SessionCreated(created) => {
            let how = if created.implicit {
                "by its first write"
            } else {
                "by a call"
            };
            ("Created", how.to_owned())
        }
        Event::SessionUpdated(updated) => ("Updated", updated.paths.join(", ")),
        Event::PolicyChanged(changed) => ("Policy changed", changed.paths.join(", ")),
        Event::MessagesAppended(appended) => {
            let count = appended.message_ids.len() as u64;
            let last = (appended.first_ordinal + count).saturating_sub(1);
            let mut text = format!(
                "{} {}, {} tokens",
                if count == 1 { "message" } else { "messages" },
                range(appended.first_ordinal, last),
                number(appended.tokens.into())
            );
            if let Some(usage) = &appended.usage {
                text.push_str("; ");
                text.push_str(&usage_text(usage));
            }
            ("Appended", text)
        }
        Event::CallsInterrupted(interrupted) => (
            "Interrupted",
            count(interrupted.calls.len(), "open tool call"),
        ),
        Event::ViewServed(served) => {
            let model = served.target.as_ref().map_or("", |target| &target.model);
            let model = if model.is_empty() { "a model" } else { model };
            let mut text = format!("{} tokens to {model}", number(served.tokens.into()));
            if served.saved_tokens > 0 {
                let saved = number(served.saved_tokens.into());
                let _ = write!(text, "; {saved} saved");
            }
            ("Request", text)
        }
        Event::ContextRestored(restored) => {
            let text = format!(
                "{} undone, back to revision {}",
                count(restored.undone.len(), "change"),
                number(restored.to_revision)
            );
            ("Undone", text)
        }
        Event::SessionRewound(rewound) => (
            "Rewound",
            format!("{} removed", count(rewound.message_ids.len(), "message")),
        ),
        Event::WorkingStateUpdated(updated) => ("Working state", updated.paths.join(", ")),
        Event::HookCalled(called) => {
            let outcome = called.outcome.as_ref();
            let text = outcome.map(|outcome| words(outcome.hook().as_str_name(), "HOOK_"));
            ("Hook called", text.unwrap_or_default())
        }
        level => of_level(level),
    }
}

/// Returns the name and the description of an event of a level.
fn of_level(event: &Event) -> (&'static str, String) {
    match event {
        Event::LevelStarted(_) => ("Compaction started", String::new()),
        Event::LevelFailed(failed) => {
            let reason = failed.failure.as_ref();
            let text = reason.map_or_else(String::new, |failure| {
                let reason = words(failure.reason().as_str_name(), "COMPACTION_FAILURE_REASON_");
                join(&reason, &failure.detail)
            });
            ("Compaction failed", text)
        }
        Event::ResultsPersisted(persisted) => {
            let tokens = persisted
                .results
                .iter()
                .map(|one| u64::from(one.original_tokens));
            let text = format!(
                "{} of {} tokens",
                count(persisted.results.len(), "large result"),
                number(tokens.sum())
            );
            ("Results stored", text)
        }
        Event::ContentSnipped(snipped) => {
            let what = format!(
                "{}, {}",
                count(snipped.message_ids.len(), "message"),
                count(snipped.blocks.len(), "block")
            );
            (
                "Snipped",
                join(&what, &one_line(&snipped.reason, QUOTE_CHARS)),
            )
        }
        Event::ResultsCleared(cleared) => {
            ("Results cleared", count(cleared.calls.len(), "old result"))
        }
        Event::CacheEditsIssued(edits) => ("Cache edits", count(edits.calls.len(), "old result")),
        Event::SpansStaged(staged) => ("Spans selected", count(staged.spans.len(), "span")),
        Event::SpansCollapsed(collapsed) => {
            let messages = collapsed.spans.iter().map(|span| u64::from(span.messages));
            let text = format!(
                "{} of {} messages",
                count(collapsed.spans.len(), "span"),
                number(messages.sum())
            );
            ("Collapsed", text)
        }
        Event::Compacted(compaction) => ("Compacted", compacted(compaction)),
        Event::SummaryPrepared(_) => ("Summary prepared", "for the next compaction".to_owned()),
        memory => of_memory(memory),
    }
}

/// Returns the name and the description of an event of session memory.
fn of_memory(event: &Event) -> (&'static str, String) {
    match event {
        Event::MemoryUpdateStarted(started) => (
            "Memory update started",
            format!("version {}", number(started.version)),
        ),
        Event::MemoryUpdated(updated) => {
            let text = format!(
                "version {}, {}, {} tokens, {} changed",
                number(updated.version),
                words(updated.source().as_str_name(), "MEMORY_SOURCE_"),
                number(updated.tokens.into()),
                count(updated.changed_sections.len(), "section")
            );
            ("Memory updated", text)
        }
        Event::MemoryUpdateFailed(failed) => {
            let detail = failed
                .failure
                .as_ref()
                .map(|failure| failure.detail.clone());
            ("Memory update failed", detail.unwrap_or_default())
        }
        _ => ("Other", String::new()),
    }
}

fn compacted(compaction: &Compaction) -> String {
    let boundary = compaction.boundary.clone().unwrap_or_default();
    format!(
        "{} by {}, {} → {} tokens",
        count(boundary.summarized_messages as usize, "message"),
        words(compaction.strategy().as_str_name(), "COMPACTION_STRATEGY_"),
        number(boundary.before_tokens.into()),
        number(boundary.after_tokens.into())
    )
}

/// Returns the usage that a provider reported.
pub(crate) fn usage_text(usage: &Usage) -> String {
    format!(
        "reported: {} read from the cache, {} written, {} uncached, {} output",
        number(usage.cache_read_tokens.into()),
        number(usage.cache_write_tokens.into()),
        number(usage.input_tokens.into()),
        number(usage.output_tokens.into())
    )
}

/// Returns true if the event changed the served part of the view.
pub(crate) fn changes_view(event: &SessionEvent) -> bool {
    matches!(
        event.event,
        Some(
            Event::ContentSnipped(_)
                | Event::ResultsCleared(_)
                | Event::SpansCollapsed(_)
                | Event::Compacted(_)
                | Event::ContextRestored(_)
                | Event::SessionRewound(_)
        )
    )
}

/// Returns positions of the transcript in words.
pub(crate) fn range(first: u64, last: u64) -> String {
    if first >= last {
        number(first)
    } else {
        format!("{} to {}", number(first), number(last))
    }
}

fn count(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", number(count as u64))
}

fn join(what: &str, detail: &str) -> String {
    if detail.is_empty() {
        what.to_owned()
    } else {
        format!("{what}: {detail}")
    }
}
