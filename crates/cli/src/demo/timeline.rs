//! Entries of the timeline: the actions of levels, the calls of the model, and pauses.

use palimpsest_proto::context::v1::SessionEvent;

use crate::event_text::level_action;
use crate::output::number;

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
        // Other events, such as appends and served views, are too frequent for the timeline.
        let (level, text) = level_action(event.event.as_ref()?)?;
        let actor = Actor::Level(level);
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
