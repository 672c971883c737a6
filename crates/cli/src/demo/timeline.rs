//! Events of the service as lines of text.

use palimpsest_proto::context::v1::session_event::Event;
use palimpsest_proto::context::v1::{
    CompactionState, CompactionStrategy, MicrocompactMode, SessionEvent,
};

use crate::output::{bytes, number};

/// The cause of a timeline entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Actor {
    /// One of the five levels.
    Level(u8),
    /// A call of the model to a tool of the service.
    Model,
    /// A pause of the user.
    Time,
}

#[derive(Debug, Clone)]
pub(super) struct TimelineEntry {
    /// The request during which the entry was recorded, from 1.
    pub(super) request: usize,
    pub(super) actor: Actor,
    pub(super) text: String,
    /// The tokens that the event freed, as the service reported.
    pub(super) freed: Option<u32>,
}

impl TimelineEntry {
    /// Creates an entry for an action of a level. Returns `None` for all other events.
    pub(super) fn of(request: usize, event: &SessionEvent) -> Option<Self> {
        let freed = event.effect.as_ref().map(|effect| effect.freed_tokens);
        let (actor, text) = match event.event.as_ref()? {
            Event::ResultsPersisted(persisted) => {
                let all = &persisted.results;
                let size: u64 = all.iter().map(|one| one.original_bytes).sum();
                let tools = names(all.iter().map(|one| one.tool_name.as_str()));
                (
                    Actor::Level(1),
                    format!("{} of {tools} stored", bytes(size)),
                )
            }
            Event::ContentSnipped(snipped) => {
                let turns = count(snipped.turn_ids.len(), "turn");
                let messages = count(snipped.message_ids.len(), "message");
                (Actor::Level(2), format!("{turns}, {messages} snipped"))
            }
            Event::ResultsCleared(cleared) => {
                let why = match cleared.mode() {
                    MicrocompactMode::Time => ": cold cache",
                    _ => "",
                };
                let results = count(cleared.calls.len(), "result");
                (Actor::Level(3), format!("{results} cleared{why}"))
            }
            Event::SpansCollapsed(collapsed) => {
                let spans = count(collapsed.spans.len(), "span");
                (Actor::Level(4), format!("{spans} collapsed"))
            }
            Event::Compacted(done) if done.state() == CompactionState::Succeeded => {
                let from = match done.strategy() {
                    CompactionStrategy::SessionMemory => "summary.md",
                    CompactionStrategy::Extractive => "extractive summary",
                    _ => "summary",
                };
                let boundary = done.boundary.as_ref();
                let messages = boundary.map_or(0, |one| one.summarized_messages);
                let messages = count(messages as usize, "message");
                (Actor::Level(5), format!("{messages} → {from}"))
            }
            // Other events, such as appends and served views, are too frequent for the timeline.
            _ => return None,
        };
        Some(Self {
            request,
            actor,
            text,
            freed,
        })
    }

    /// Returns the entry as a line of text without colors.
    pub(super) fn line(&self) -> String {
        let freed = self
            .freed
            .map(|freed| format!(", {} tokens freed", number(freed.into())));
        format!(
            "request {:>3}  {:<7}  {}{}",
            self.request,
            self.actor.name(),
            self.text,
            freed.unwrap_or_default()
        )
    }
}

impl Actor {
    pub(super) fn name(self) -> String {
        match self {
            Self::Level(level) => format!("level {level}"),
            Self::Model => "model".to_owned(),
            Self::Time => "time".to_owned(),
        }
    }
}

/// Formats a count with its noun: `3 turns`, `1 turn`.
pub(super) fn count(n: usize, what: &str) -> String {
    let end = if n == 1 { "" } else { "s" };
    format!("{} {what}{end}", number(n as u64))
}

fn names<'a>(tools: impl Iterator<Item = &'a str>) -> String {
    let mut tools: Vec<&str> = tools.collect();
    tools.sort_unstable();
    tools.dedup();
    tools.join(" and ")
}
