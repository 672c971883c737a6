//! Commands on one session that are decided and applied in order, and committed together.

use std::sync::Arc;

use palimpsest_core::command::{
    Command, ConfirmResponse, CreateSession, Decided, Decision, DecisionContext, Rejection,
    ServeView, SkipReason, create_session, decide,
};
use palimpsest_core::effect::Effect;
use palimpsest_core::event::{Event, RecordedEvent};
use palimpsest_core::ids::{Revision, SessionKey, Timestamp};
use palimpsest_core::limits::Limits;
use palimpsest_core::message::Message;
use palimpsest_core::session::Session;
use palimpsest_core::view::TargetOverride;

use super::change::PendingCommit;
use super::growth::{AllowedEvents, adds_storage};
use super::handle::LoadedSession;
use crate::call::CurrentCall;

/// The outcome of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandOutcome {
    /// The command was applied. Contains the revision of its last event, if it made any.
    Done(Option<Revision>),
    /// The request is an idempotent repeat. The event with this revision contains its result.
    Answered(Revision),
    /// The level had nothing to do, for this reason.
    Skipped(SkipReason),
}

/// The events that a transaction took from another session, after the creation.
#[derive(Debug, Default)]
pub(super) struct CopiedEvents {
    /// The number of events.
    pub(super) events: usize,
    /// The stored files that they name, with their sizes in bytes.
    pub(super) files: Vec<(Box<str>, u64)>,
}

/// A sequence of commands on one session. The state in memory is ahead of the log until the transaction is committed.
#[derive(Debug)]
pub struct Transaction<'a> {
    key: &'a SessionKey,
    loaded: Option<Box<LoadedSession>>,
    events: Vec<RecordedEvent>,
    before: Revision,
    now: Timestamp,
    limits: &'a Limits,
    can_store: bool,
    file_salt: u64,
    effects: Vec<Effect>,
    copied: CopiedEvents,
    allowed: AllowedEvents,
    is_refused: bool,
}

impl<'a> Transaction<'a> {
    pub(super) fn new(
        key: &'a SessionKey,
        loaded: Option<Box<LoadedSession>>,
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
            effects: Vec::new(),
            copied: CopiedEvents::default(),
            allowed: AllowedEvents::All,
            is_refused: false,
        }
    }

    /// Restricts the events that the transaction may make. A disallowed event aborts the transaction before it is
    /// applied.
    #[must_use]
    pub(super) fn with_allowed(mut self, allowed: AllowedEvents) -> Self {
        self.allowed = allowed;
        self
    }

    /// Returns true if a command was about to make a disallowed event.
    pub(super) fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// The session after the commands so far, or `None` if it does not exist.
    pub fn session(&self) -> Option<&Session> {
        self.loaded.as_ref().map(|loaded| &loaded.session)
    }

    /// Mutable access to the session, for loading contents.
    pub(super) fn loaded_mut(&mut self) -> Option<&mut LoadedSession> {
        self.loaded.as_deref_mut()
    }

    /// The session's revision before the first command, or zero if the session did not exist.
    pub fn revision_before(&self) -> Revision {
        self.before
    }

    /// The time of the transaction's events.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// The events so far.
    pub fn events(&self) -> &[RecordedEvent] {
        &self.events
    }

    /// Returns copies of some events with their revisions.
    pub fn events_of(&self, selects: impl Fn(&Event) -> bool) -> Vec<(Revision, Event)> {
        let events = (self.before.get() + 1..).zip(&self.events);
        events
            .filter(|(_, recorded)| selects(&recorded.event))
            .map(|(revision, recorded)| (Revision::new(revision), recorded.event.clone()))
            .collect()
    }

    /// Loads contents of messages that a command has restored to the view.
    pub fn load_content(&mut self, contents: impl IntoIterator<Item = Arc<Message>>) {
        if let Some(loaded) = &mut self.loaded {
            loaded.session.load_content(contents);
        }
    }

    /// Creates the session.
    pub fn create(&mut self, command: CreateSession) -> Result<(), Rejection> {
        let event = create_session(command, self.context())?;
        if let Event::SessionCreated(created) = &event {
            let session = Session::create(self.key.clone(), self.now, created);
            self.loaded = Some(Box::new(LoadedSession::new(session)));
        }
        self.events.push(RecordedEvent {
            at: self.now,
            by: CurrentCall::credential(),
            event,
        });
        Ok(())
    }

    /// Applies the events of another session to a session that this transaction has created. `files` are the files that
    /// they name, with their sizes. The files are stored, and each of them has an intent.
    pub fn copy(
        &mut self,
        events: &[RecordedEvent],
        files: &[(Box<str>, u64)],
    ) -> Result<(), Rejection> {
        if self.allowed != AllowedEvents::All {
            self.is_refused = true;
            // A placeholder, as in `decide`.
            return Err(Rejection::ContentNotLoaded);
        }
        let Some(loaded) = &mut self.loaded else {
            return Ok(());
        };
        for recorded in events {
            loaded
                .session
                .apply(recorded)
                .expect("the events of a log apply to the session with the events before them");
        }
        self.events.extend_from_slice(events);
        self.copied = CopiedEvents {
            events: events.len(),
            files: files.to_vec(),
        };
        Ok(())
    }

    /// Decides a command and applies its events. If it makes an event, the command that must follow is run as well.
    pub fn run(&mut self, mut command: Command) -> Result<CommandOutcome, Rejection> {
        // A session that this transaction creates has revision 0 for the caller, although its creation has advanced it.
        if self.before == Revision::ZERO
            && let Some(expected) = command.expected_revision_mut().and_then(Option::take)
            && expected != Revision::ZERO
        {
            return Err(Rejection::RevisionMismatch {
                expected,
                current: Revision::ZERO,
            });
        }
        // `then` records the next ordinal, so it must be built before the command adds messages.
        let then = self.session().and_then(|session| command.then(session));
        let outcome = self.decide(command)?;
        if let (Some(then), CommandOutcome::Done(Some(_))) = (then, outcome) {
            self.decide(then)?;
        }
        Ok(outcome)
    }

    /// Runs a command on the view that would be served now for the target of the call.
    ///
    /// A command that makes no event leaves the view unserved, because a rejected call must change nothing.
    /// `expected` is the revision on which the caller decided. `command` receives the revision after the serve
    /// instead, if `expected` was given.
    pub fn run_served(
        &mut self,
        target: &TargetOverride,
        expected: Option<Revision>,
        command: impl FnOnce(Option<Revision>) -> Command,
    ) -> Result<CommandOutcome, Rejection> {
        // Without pending content there is nothing to serve.
        let waits = |session: &&Session| !session.pending().is_empty();
        let session = self.session().filter(waits);
        let serve =
            session.map(|session| Command::ServeView(ServeView::for_target(session, target)));
        self.run_after(serve, expected, command)
    }

    /// Runs a command after the confirmation of the newest recorded response, if there is one. `expected` and `command`
    /// are the same as for [`Self::run_served`].
    pub fn run_confirmed(
        &mut self,
        expected: Option<Revision>,
        command: impl FnOnce(Option<Revision>) -> Command,
    ) -> Result<CommandOutcome, Rejection> {
        let waits = |session: &Session| !session.array().responses.is_empty();
        let confirm = self.session().is_some_and(waits);
        let confirm = confirm.then(|| Command::ConfirmResponse(ConfirmResponse::default()));
        self.run_after(confirm, expected, command)
    }

    /// Runs `first` and the command, or neither of them if the command makes no event.
    fn run_after(
        &mut self,
        first: Option<Command>,
        expected: Option<Revision>,
        command: impl FnOnce(Option<Revision>) -> Command,
    ) -> Result<CommandOutcome, Rejection> {
        let moved =
            |session: &&Session| expected.is_some_and(|expected| expected != session.revision());
        // Only with a first command, a copy for a rollback is needed. A wrong `expected` is left to the command: a repeat
        // names the revision of its first call, and the command recognizes a repeat before it compares the revision.
        let before = self.session().filter(|one| !moved(one));
        let Some((first, before)) = first.zip(before) else {
            return self.run(command(expected));
        };
        let before = before.clone();
        let (events, effects) = (self.events.len(), self.effects.len());
        let run = |transaction: &mut Self| {
            transaction.run(first)?;
            let found = transaction.session().map(Session::revision);
            // Serving advanced the revision, so the caller's own value would no longer match.
            transaction.run(command(expected.and(found)))
        };
        let outcome = run(self);
        // The first command is undone together with the command, so that a rejected or skipped command leaves no
        // trace.
        if !matches!(outcome, Ok(CommandOutcome::Done(Some(_)))) {
            self.events.truncate(events);
            self.effects.truncate(effects);
            if let Some(loaded) = &mut self.loaded {
                loaded.session = before;
            }
        }
        outcome
    }

    /// Maximum number of messages of one append.
    pub fn max_messages(&self) -> usize {
        let own = self.session().map(|session| &session.policy().limits);
        own.map_or(self.limits.max_messages, |own| {
            self.limits.narrowed_by(own).max_messages
        })
    }

    /// Keeps results in the view whatever their size.
    pub fn keep_results_inline(&mut self) {
        self.can_store = false;
    }

    /// Returns true if results can be stored in files.
    pub fn can_store(&self) -> bool {
        self.can_store
    }

    fn decide(&mut self, command: Command) -> Result<CommandOutcome, Rejection> {
        let context = self.context();
        let Some(loaded) = &mut self.loaded else {
            // Callers create the session before they run commands, so this case has no command to apply.
            return Ok(CommandOutcome::Done(None));
        };
        match decide(&loaded.session, command, context)? {
            Decided::Answered(revision) => Ok(CommandOutcome::Answered(revision)),
            Decided::Skipped(skip) => Ok(CommandOutcome::Skipped(skip)),
            Decided::Now(Decision { events, effects }) => {
                let made = !events.is_empty();
                let is_allowed = match self.allowed {
                    AllowedEvents::All => true,
                    AllowedEvents::Maintenance => !events.iter().any(adds_storage),
                    AllowedEvents::None => !made,
                };
                if !is_allowed {
                    self.is_refused = true;
                    // The error variant is a placeholder: `Sessions::write` checks `is_refused` before the rejection.
                    return Err(Rejection::ContentNotLoaded);
                }
                for event in events {
                    let recorded = RecordedEvent {
                        at: self.now,
                        by: CurrentCall::credential(),
                        event,
                    };
                    loaded
                        .session
                        .apply(&recorded)
                        // The core guarantees that an event applies to the session that it was decided on.
                        .expect("an event applies to the session that it was decided upon");
                    self.events.push(recorded);
                }
                self.effects.extend(effects);
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

    /// Ends the transaction. Its effects leave it only together with its events. Returns `None` if the session does not
    /// exist.
    pub(super) fn finish(self) -> Option<PendingCommit> {
        let times = (self.before, self.now);
        let loaded = self.loaded?;
        let changes = (self.events, self.copied);
        Some(PendingCommit::new(loaded, times, changes, self.effects))
    }

    /// The session after the commands, without a commit.
    pub(super) fn into_loaded(self) -> Option<Box<LoadedSession>> {
        self.loaded
    }

    /// The session, if no command changed it.
    pub(super) fn into_session_if_unchanged(self) -> Option<Box<LoadedSession>> {
        self.loaded.filter(|_| self.events.is_empty())
    }
}
