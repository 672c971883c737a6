//! Commands on one session, decided and applied one after another, to be committed together.

use std::num::NonZeroU32;
use std::sync::Arc;

use bytes::Bytes;
use palimpsest_core::command::{
    Command, Create, Decision, DecisionContext, Rejection, ServeView, SkipReason, create, decide,
};
use palimpsest_core::event::{Event, RecordedEvent};
use palimpsest_core::ids::{Revision, SessionKey, Timestamp};
use palimpsest_core::levels::results::{StoredResult, file_content};
use palimpsest_core::limits::Limits;
use palimpsest_core::message::{Message, ToolResult};
use palimpsest_core::session::{ContentNotLoaded, Session};
use palimpsest_store::encoding::encode_frame;

use super::growth::{AllowedEvents, grows};
use super::handle::LoadedSession;

/// What came of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandOutcome {
    /// It happened; the last event that it made, if it made any.
    Done(Option<Revision>),
    /// The request was answered before, by the event with this revision.
    Answered(Revision),
    /// A level has nothing to do, for this reason.
    Skipped(SkipReason),
}

/// A result that must be stored before the event that names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NewBlob {
    /// The name of its file, which no other command uses.
    pub file: Box<str>,
    /// All of it.
    pub bytes: Bytes,
}

/// Commands on one session.
#[derive(Debug)]
pub struct Transaction<'a> {
    key: &'a SessionKey,
    loaded: Option<LoadedSession>,
    events: Vec<RecordedEvent>,
    before: Revision,
    now: Timestamp,
    limits: &'a Limits,
    can_store: bool,
    file_salt: u64,
    blobs: Vec<NewBlob>,
    allowed: AllowedEvents,
    is_refused: bool,
}

impl<'a> Transaction<'a> {
    pub(super) fn new(
        key: &'a SessionKey,
        loaded: Option<LoadedSession>,
        now: Timestamp,
        limits: &'a Limits,
        (can_store, file_salt): (bool, u64),
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
            can_store,
            file_salt,
            blobs: Vec::new(),
            allowed: AllowedEvents::All,
            is_refused: false,
        }
    }

    /// The same that may bring only some events. One that is not allowed ends the transaction before it is applied.
    #[must_use]
    pub(super) fn within(mut self, allowed: AllowedEvents) -> Self {
        self.allowed = allowed;
        self
    }

    /// Whether it was about to bring an event that is not allowed.
    pub(super) fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// The session as the commands so far leave it.
    pub fn session(&self) -> Option<&Session> {
        self.loaded.as_ref().map(|loaded| &loaded.session)
    }

    /// The same, to put contents in.
    pub(super) fn loaded_mut(&mut self) -> Option<&mut LoadedSession> {
        self.loaded.as_mut()
    }

    /// The revision that the session had before any command; zero when there was none.
    pub fn revision_before(&self) -> Revision {
        self.before
    }

    /// When its commands happen.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// What happened so far.
    pub fn events(&self) -> &[RecordedEvent] {
        &self.events
    }

    /// Puts in contents of messages that the commands so far have brought back into the view.
    pub fn load_content(&mut self, contents: impl IntoIterator<Item = Arc<Message>>) {
        if let Some(loaded) = &mut self.loaded {
            loaded.session.load_content(contents);
        }
    }

    /// Begins the session.
    pub fn create(&mut self, command: Create) -> Result<(), Rejection> {
        let event = create(command, self.context())?;
        if let Event::SessionCreated(created) = &event {
            let session = Session::create(self.key.clone(), self.now, created);
            self.loaded = Some(LoadedSession::new(session));
        }
        self.events.push(RecordedEvent {
            at: self.now,
            event,
        });
        Ok(())
    }

    /// Decides a command and applies what comes of it. What comes in is kept within its limits at
    /// once.
    pub fn run(&mut self, command: Command) -> Result<CommandOutcome, Rejection> {
        let from = self.session().map(|session| session.transcript().next());
        let appends = matches!(command, Command::Append(_));
        let outcome = self.decide(command)?;
        if let (true, Some(from), CommandOutcome::Done(Some(_))) = (appends, from, outcome) {
            self.decide(Command::PersistAppendedResults { from })?;
        }
        Ok(outcome)
    }

    /// Runs a command upon the view that would be served now. A command that makes no event leaves the
    /// view unserved, because a refused call changes nothing. `expected` is the revision that the caller
    /// decided upon, and the command gets the one that it finds.
    pub fn run_served(
        &mut self,
        serve: ServeView,
        expected: Option<Revision>,
        command: impl FnOnce(Option<Revision>) -> Command,
    ) -> Result<CommandOutcome, Rejection> {
        let waits = |session: &&Session| !session.pending().is_empty();
        let moved =
            |session: &&Session| expected.is_some_and(|expected| expected != session.revision());
        let Some(before) = self
            .session()
            .filter(waits)
            .filter(|one| !moved(one))
            .cloned()
        else {
            return self.run(command(expected));
        };
        let (events, blobs) = (self.events.len(), self.blobs.len());
        let run = |transaction: &mut Self| {
            transaction.run(Command::ServeView(serve))?;
            let found = transaction.session().map(Session::revision);
            transaction.run(command(expected.and(found)))
        };
        let outcome = run(self);
        if !matches!(outcome, Ok(CommandOutcome::Done(Some(_)))) {
            self.events.truncate(events);
            self.blobs.truncate(blobs);
            if let Some(loaded) = &mut self.loaded {
                loaded.session = before;
            }
        }
        outcome
    }

    /// Whether results can be stored.
    pub fn can_store(&self) -> bool {
        self.can_store
    }

    /// What must be stored before the events are committed.
    pub(super) fn blobs(&self) -> &[NewBlob] {
        &self.blobs
    }

    /// The names of their files.
    pub(super) fn files(&self) -> Vec<Box<str>> {
        self.blobs.iter().map(|blob| blob.file.clone()).collect()
    }

    /// How many bytes those are.
    pub(super) fn blob_bytes(&self) -> u64 {
        self.blobs.iter().map(|blob| blob.bytes.len() as u64).sum()
    }

    fn decide(&mut self, command: Command) -> Result<CommandOutcome, Rejection> {
        let context = self.context();
        // Of an offer the event has no content, and the session none yet.
        let offered = match &command {
            Command::DecidePersist(offering) => Some(Arc::clone(&offering.result)),
            _ => None,
        };
        let Some(loaded) = &mut self.loaded else {
            // Only a session that is there can be asked; the caller has seen to that.
            return Ok(CommandOutcome::Done(None));
        };
        match decide(&loaded.session, command, context)? {
            Decision::Answered(revision) => Ok(CommandOutcome::Answered(revision)),
            Decision::Skipped(skip) => Ok(CommandOutcome::Skipped(skip)),
            Decision::Events(events) => {
                let made = !events.is_empty();
                let is_allowed = match self.allowed {
                    AllowedEvents::All => true,
                    AllowedEvents::Upkeep => !events.iter().any(grows),
                    AllowedEvents::None => !made,
                };
                if !is_allowed {
                    self.is_refused = true;
                    // Whoever runs the transaction looks at the refusal first.
                    return Err(Rejection::ContentNotLoaded);
                }
                for event in events {
                    let recorded = RecordedEvent {
                        at: self.now,
                        event,
                    };
                    loaded
                        .session
                        .apply(&recorded)
                        .expect("an event applies to the session that it was decided upon");
                    let new = blobs(&loaded.session, &recorded.event, offered.as_deref())?;
                    self.blobs.extend(new);
                    self.events.push(recorded);
                }
                let last = loaded.session.revision();
                Ok(CommandOutcome::Done(made.then_some(last)))
            }
        }
    }

    fn context(&self) -> DecisionContext<'a> {
        DecisionContext {
            now: self.now,
            limits: self.limits,
            can_store: self.can_store,
            file_salt: self.file_salt,
        }
    }

    /// The session and what is to be appended for it.
    pub(super) fn into_parts(
        self,
    ) -> (Option<LoadedSession>, Revision, Option<(NonZeroU32, Bytes)>) {
        let events = u32::try_from(self.events.len())
            .ok()
            .and_then(NonZeroU32::new);
        let frame = events.map(|events| (events, encode_frame(&self.events)));
        (self.loaded, self.before, frame)
    }

    /// The session, when no command changed it.
    pub(super) fn into_unchanged(self) -> Option<LoadedSession> {
        self.loaded.filter(|_| self.events.is_empty())
    }
}

/// The results that an event names and that must be stored first. What an offer stored is there.
fn blobs(
    session: &Session,
    event: &Event,
    offered: Option<&ToolResult>,
) -> Result<Vec<NewBlob>, ContentNotLoaded> {
    let named = match event {
        Event::ResultsPersisted(event) => event.results.as_slice(),
        Event::ResultsCleared(event) => event.saved.as_slice(),
        Event::PersistDecided(event) => {
            let kept = event.offer.kept.as_ref().zip(offered);
            let blob = kept.map(|(kept, result)| blob(&kept.file, result));
            return Ok(blob.into_iter().collect());
        }
        _ => &[],
    };
    let is_there =
        |stored: &StoredResult| session.persist_decisions().in_file(&stored.file).is_some();
    let new = named.iter().filter(|stored| !is_there(stored));
    new.map(|stored| {
        let result = session.result(stored.call)?;
        Ok(blob(&stored.file, result))
    })
    .collect()
}

fn blob(file: &str, result: &ToolResult) -> NewBlob {
    NewBlob {
        file: file.into(),
        bytes: Bytes::from(file_content(result).into_owned()),
    }
}
