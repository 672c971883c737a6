//! Events of a session as short texts: the kind and what happened.

use palimpsest_proto::context::v1::session_event::Event;
use palimpsest_proto::context::v1::{
    CompactionState, CompactionStrategy, ForkOrigin, MemorySource, MicrocompactMode,
    SessionCreated, ViewServed,
};

use super::output::{bytes, count, number, words};

/// Returns the level and the text of an action of a level, or `None` for all other events.
pub(super) fn level_action(event: &Event) -> Option<(u8, String)> {
    Some(match event {
        Event::ResultsPersisted(persisted) => {
            let all = &persisted.results;
            let size: u64 = all.iter().map(|one| one.original_bytes).sum();
            let tools = names(all.iter().map(|one| one.tool_name.as_str()));
            (1, format!("{} of {tools} stored", bytes(size)))
        }
        Event::ContentSnipped(snipped) => {
            let turns = count(snipped.turn_ids.len(), "turn");
            let messages = count(snipped.message_ids.len(), "message");
            (2, format!("{turns}, {messages} snipped"))
        }
        Event::ResultsCleared(cleared) => {
            let why = match cleared.mode() {
                MicrocompactMode::Time => ": cold cache",
                _ => "",
            };
            let results = count(cleared.calls.len(), "result");
            (3, format!("{results} cleared{why}"))
        }
        Event::SpansCollapsed(collapsed) => {
            let spans = count(collapsed.spans.len(), "span");
            (4, format!("{spans} collapsed"))
        }
        // Only a compaction that succeeded has changed the view.
        Event::Compacted(done) if done.state() == CompactionState::Succeeded => {
            let from = match done.strategy() {
                CompactionStrategy::SessionMemory => "summary.md",
                CompactionStrategy::Extractive => "extractive summary",
                _ => "summary",
            };
            let boundary = done.boundary.as_ref();
            let messages = boundary.map_or(0, |one| one.summarized_messages);
            let messages = count(messages as usize, "message");
            (5, format!("{messages} → {from}"))
        }
        _ => return None,
    })
}

fn names<'a>(tools: impl Iterator<Item = &'a str>) -> String {
    let mut tools: Vec<&str> = tools.collect();
    // Several results of one tool would repeat its name. `dedup` removes neighbors only.
    tools.sort_unstable();
    tools.dedup();
    tools.join(" and ")
}

/// Returns the kind of an event and what happened.
pub(super) fn describe(event: &Event) -> (&'static str, String) {
    let action = || level_action(event).map_or_else(String::new, |(_, text)| text);
    match event {
        Event::SessionCreated(created) => ("session_created", origin(created)),
        Event::SessionUpdated(updated) => ("session_updated", updated.paths.join(", ")),
        Event::PolicyChanged(changed) => ("policy_changed", changed.paths.join(", ")),
        Event::MessagesAppended(appended) => (
            "messages_appended",
            format!(
                "{} from {}, {} tokens",
                count(appended.message_ids.len(), "message"),
                number(appended.first_ordinal),
                number(appended.tokens.into())
            ),
        ),
        Event::CallsInterrupted(interrupted) => (
            "calls_interrupted",
            format!(
                "{} closed without a result",
                count(interrupted.calls.len(), "call")
            ),
        ),
        Event::ViewServed(view) => ("view_served", served(view)),
        Event::LevelStarted(_) => ("level_started", "a compaction started".to_owned()),
        Event::LevelFailed(failed) => {
            let failure = failed.failure.clone().unwrap_or_default();
            let reason = failure.reason().as_str_name();
            let reason = words(reason, "COMPACTION_FAILURE_REASON_");
            ("level_failed", format!("{reason}: {}", failure.detail))
        }
        Event::ResultsPersisted(_) => ("results_persisted", action()),
        Event::ContentSnipped(_) => ("content_snipped", action()),
        Event::ResultsCleared(_) => ("results_cleared", action()),
        Event::SpansStaged(staged) => (
            "spans_staged",
            format!("{} staged", count(staged.spans.len(), "span")),
        ),
        Event::SpansCollapsed(_) => ("spans_collapsed", action()),
        Event::Compacted(_) => ("compacted", action()),
        Event::ContextRestored(restored) => (
            "context_restored",
            format!(
                "the view of revision {}, {} undone",
                restored.to_revision,
                count(restored.undone.len(), "event")
            ),
        ),
        Event::SessionRewound(rewound) => (
            "session_rewound",
            format!(
                "{} left the view",
                count(rewound.message_ids.len(), "message")
            ),
        ),
        Event::MemoryUpdateStarted(started) => (
            "memory_update_started",
            format!("version {}", started.version),
        ),
        Event::MemoryUpdated(updated) => (
            "memory_updated",
            format!(
                "version {} {}, {} tokens, {} changed",
                updated.version,
                author(updated.source()),
                number(updated.tokens.into()),
                count(updated.changed_sections.len(), "section")
            ),
        ),
        Event::MemoryUpdateFailed(failed) => {
            let failure = failed.failure.clone().unwrap_or_default();
            (
                "memory_update_failed",
                format!("attempt {}: {}", failure.attempts, failure.detail),
            )
        }
        Event::WorkingStateUpdated(updated) => ("working_state_updated", updated.paths.join(", ")),
        Event::HookCalled(called) => {
            let outcome = called.outcome.clone().unwrap_or_default();
            let hook = words(outcome.hook().as_str_name(), "HOOK_KIND_");
            let result = words(outcome.result().as_str_name(), "HOOK_RESULT_");
            ("hook_called", format!("{hook}: {result}"))
        }
        Event::CacheEditsIssued(issued) => (
            "cache_edits_issued",
            format!("edits for {}", count(issued.calls.len(), "result")),
        ),
        Event::SummaryPrepared(prepared) => (
            "summary_prepared",
            summary_source(prepared.strategy(), &prepared.model),
        ),
    }
}

fn served(view: &ViewServed) -> String {
    let tokens = number(view.tokens.into());
    match view.target.as_ref().map(|target| target.model.as_str()) {
        None | Some("") => format!("{tokens} tokens"),
        Some(model) => format!("{tokens} tokens for {model}"),
    }
}

fn origin(created: &SessionCreated) -> String {
    let mut text = if created.implicit {
        "by a first write"
    } else {
        "by a call"
    }
    .to_owned();
    if let Some(ForkOrigin { session, .. }) = &created.forked_from {
        text = format!("{text}, forked from {session}");
    }
    if !created.parent_session.is_empty() {
        text = format!("{text}, subagent of {}", created.parent_session);
    }
    text
}

/// Returns the author of a version of session memory, as in `version 3 by a model`.
pub(super) fn author(source: MemorySource) -> &'static str {
    match source {
        MemorySource::Unspecified => "by an unknown author",
        MemorySource::Template => "from the template",
        MemorySource::Model => "by a model",
        MemorySource::Extractive => "without a model",
        MemorySource::Edited => "by a person",
    }
}

/// Returns the source of a summary. `model` is empty if no model wrote it.
pub(super) fn summary_source(strategy: CompactionStrategy, model: &str) -> String {
    match strategy {
        CompactionStrategy::SessionMemory => "session memory".to_owned(),
        CompactionStrategy::Extractive => "extracted from the messages, without a model".to_owned(),
        CompactionStrategy::Model if model.is_empty() => "a model".to_owned(),
        CompactionStrategy::Model => format!("the model {model}"),
        CompactionStrategy::Delegated => "the caller".to_owned(),
        CompactionStrategy::DropOldest => "no summary, the oldest rounds leave the view".to_owned(),
        CompactionStrategy::Unspecified => "not recorded".to_owned(),
    }
}
