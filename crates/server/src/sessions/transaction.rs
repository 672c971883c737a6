//! Commands on one session, decided and applied one after another, to be committed together.

use std::num::NonZeroU32;

use bytes::Bytes;
use palimpsest_core::command::{Command, Context, Create, Decision, Rejection, create, decide};
use palimpsest_core::event::{Event, Recorded};
use palimpsest_core::ids::{Revision, SessionKey, Timestamp};
use palimpsest_core::limits::Limits;
use palimpsest_core::session::Session;
use palimpsest_store::encoding::encode_frame;

use super::handle::Loaded;

/// What came of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It happened; the last event that it made, if it made any.
    Done(Option<Revision>),
    /// The request was answered before, by the event with this revision.
    Answered(Revision),
}

/// Commands on one session.
#[derive(Debug)]
pub struct Transaction<'a> {
    key: &'a SessionKey,
    loaded: Option<Loaded>,
    events: Vec<Recorded>,
    before: Revision,
    now: Timestamp,
    limits: &'a Limits,
}

impl<'a> Transaction<'a> {
    pub(super) fn new(
        key: &'a SessionKey,
        loaded: Option<Loaded>,
        now: Timestamp,
        limits: &'a Limits,
    ) -> Self {
        let before = loaded
            .as_ref()
            .map_or(Revision::ZERO, |loaded| loaded.session.revision());
        Self {
            key,
            loaded,
            events: Vec::new(),
            before,
            now,
            limits,
        }
    }

    /// The session as the commands so far leave it.
    pub fn session(&self) -> Option<&Session> {
        self.loaded.as_ref().map(|loaded| &loaded.session)
    }

    /// The revision that the session had before any command; zero when there was none.
    pub fn revision_before(&self) -> Revision {
        self.before
    }

    /// What happened so far.
    pub fn events(&self) -> &[Recorded] {
        &self.events
    }

    /// Begins the session.
    pub fn create(&mut self, command: Create) -> Result<(), Rejection> {
        let event = create(command, self.context())?;
        if let Event::SessionCreated(created) = &event {
            let session = Session::create(self.key.clone(), self.now, created);
            self.loaded = Some(Loaded::new(session));
        }
        self.events.push(Recorded {
            at: self.now,
            event,
        });
        Ok(())
    }

    /// Decides a command and applies what comes of it.
    pub fn run(&mut self, command: Command) -> Result<Outcome, Rejection> {
        let context = self.context();
        let Some(loaded) = &mut self.loaded else {
            // Only a session that is there can be asked; the caller has seen to that.
            return Ok(Outcome::Done(None));
        };
        match decide(&loaded.session, command, context)? {
            Decision::Answered(revision) => Ok(Outcome::Answered(revision)),
            Decision::Events(events) => {
                let made = !events.is_empty();
                for event in events {
                    let recorded = Recorded {
                        at: self.now,
                        event,
                    };
                    loaded
                        .session
                        .apply(&recorded)
                        .expect("an event applies to the session that it was decided upon");
                    self.events.push(recorded);
                }
                let last = loaded.session.revision();
                Ok(Outcome::Done(made.then_some(last)))
            }
        }
    }

    fn context(&self) -> Context<'a> {
        Context {
            now: self.now,
            limits: self.limits,
        }
    }

    /// The session and what is to be appended for it.
    pub(super) fn into_parts(self) -> (Option<Loaded>, Revision, Option<(NonZeroU32, Bytes)>) {
        let events = u32::try_from(self.events.len())
            .ok()
            .and_then(NonZeroU32::new);
        let frame = events.map(|events| (events, encode_frame(&self.events)));
        (self.loaded, self.before, frame)
    }

    /// The session, when no command changed it.
    pub(super) fn into_unchanged(self) -> Option<Loaded> {
        self.loaded.filter(|_| self.events.is_empty())
    }
}
