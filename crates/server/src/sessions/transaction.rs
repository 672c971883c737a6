//! Commands on one session, decided and applied one after another, to be committed together.

use std::num::NonZeroU32;
use std::sync::Arc;

use bytes::Bytes;
use palimpsest_core::command::{
    Command, Context, Create, Decision, Rejection, Skip, create, decide,
};
use palimpsest_core::event::{Event, Recorded};
use palimpsest_core::ids::{Revision, SessionKey, Timestamp};
use palimpsest_core::levels::results::{Stored, file_content, is_json};
use palimpsest_core::limits::Limits;
use palimpsest_core::message::{Message, ToolResult};
use palimpsest_core::session::{NotHeld, Session};
use palimpsest_store::blobs::BlobKind;
use palimpsest_store::encoding::encode_frame;

use super::handle::Loaded;

/// What came of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It happened; the last event that it made, if it made any.
    Done(Option<Revision>),
    /// The request was answered before, by the event with this revision.
    Answered(Revision),
    /// A level has nothing to do, for this reason.
    Skipped(Skip),
}

/// A result that must be stored before the event that names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NewBlob {
    /// The call, or the offer, that its file is named after.
    pub owner: String,
    /// How its bytes are to be read.
    pub kind: BlobKind,
    /// The SHA-256 of all of it.
    pub sha256: [u8; 32],
    /// All of it.
    pub bytes: Bytes,
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
    can_store: bool,
    blobs: Vec<NewBlob>,
}

impl<'a> Transaction<'a> {
    pub(super) fn new(
        key: &'a SessionKey,
        loaded: Option<Loaded>,
        now: Timestamp,
        limits: &'a Limits,
        can_store: bool,
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
            blobs: Vec::new(),
        }
    }

    /// The session as the commands so far leave it.
    pub fn session(&self) -> Option<&Session> {
        self.loaded.as_ref().map(|loaded| &loaded.session)
    }

    /// The same, to put contents in.
    pub(super) fn loaded_mut(&mut self) -> Option<&mut Loaded> {
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
    pub fn events(&self) -> &[Recorded] {
        &self.events
    }

    /// Puts in contents of messages that the commands so far have brought back into the view.
    pub fn fill(&mut self, contents: impl IntoIterator<Item = Arc<Message>>) {
        if let Some(loaded) = &mut self.loaded {
            loaded.session.fill(contents);
        }
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

    /// Decides a command and applies what comes of it. What comes in is kept within its limits at
    /// once.
    pub fn run(&mut self, command: Command) -> Result<Outcome, Rejection> {
        let from = self.session().map(|session| session.transcript().next());
        let appends = matches!(command, Command::Append(_));
        let outcome = self.decide(command)?;
        if let (true, Some(from), Outcome::Done(Some(_))) = (appends, from, outcome) {
            self.decide(Command::KeepResults { from })?;
        }
        Ok(outcome)
    }

    /// Whether results can be stored.
    pub fn can_store(&self) -> bool {
        self.can_store
    }

    /// What must be stored before the events are committed.
    pub(super) fn blobs(&self) -> &[NewBlob] {
        &self.blobs
    }

    /// How many bytes those are.
    pub(super) fn blob_bytes(&self) -> u64 {
        self.blobs.iter().map(|blob| blob.bytes.len() as u64).sum()
    }

    fn decide(&mut self, command: Command) -> Result<Outcome, Rejection> {
        let context = self.context();
        // Of an offer the event has no content, and the session none yet.
        let offered = match &command {
            Command::Offer(offering) => Some(Arc::clone(&offering.result)),
            _ => None,
        };
        let Some(loaded) = &mut self.loaded else {
            // Only a session that is there can be asked; the caller has seen to that.
            return Ok(Outcome::Done(None));
        };
        match decide(&loaded.session, command, context)? {
            Decision::Answered(revision) => Ok(Outcome::Answered(revision)),
            Decision::Skipped(skip) => Ok(Outcome::Skipped(skip)),
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
                    let new = blobs(&loaded.session, &recorded.event, offered.as_deref())?;
                    self.blobs.extend(new);
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
            can_store: self.can_store,
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

/// The results that an event names and that must be stored first. What an offer stored is there.
fn blobs(
    session: &Session,
    event: &Event,
    offered: Option<&ToolResult>,
) -> Result<Vec<NewBlob>, NotHeld> {
    let named = match event {
        Event::ResultsPersisted(event) => event.results.as_slice(),
        Event::ResultsCleared(event) => event.saved.as_slice(),
        Event::ResultOffered(event) => {
            let kept = event.offer.kept.as_ref().zip(offered);
            let blob = kept.map(|(kept, result)| blob(&kept.file, kept.sha256, result));
            return Ok(blob.into_iter().collect());
        }
        _ => &[],
    };
    let is_there = |stored: &Stored| session.offers().in_file(&stored.file).is_some();
    let new = named.iter().filter(|stored| !is_there(stored));
    new.map(|stored| {
        let result = session.result(stored.call)?;
        Ok(blob(&stored.file, stored.sha256, result))
    })
    .collect()
}

fn blob(file: &str, sha256: [u8; 32], result: &ToolResult) -> NewBlob {
    // The store puts the digest behind the name itself.
    let owner = file.split_once('-').map_or(file, |(owner, _)| owner);
    NewBlob {
        owner: owner.to_owned(),
        kind: if is_json(result) {
            BlobKind::Json
        } else {
            BlobKind::Text
        },
        sha256,
        bytes: Bytes::from(file_content(result).into_owned()),
    }
}
