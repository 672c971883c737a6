//! The input and the result of a decision, and the checks that most commands begin with.

use super::reject::{Conflict, Rejection};
use crate::event::{Event, RequestStamp};
use crate::ids::{Revision, Timestamp};
use crate::levels::results::FileNamer;
use crate::limits::Limits;
use crate::session::Session;

/// What a decision may know of the world.
#[derive(Debug, Clone, Copy)]
pub struct DecisionContext<'a> {
    /// The server's clock.
    pub now: Timestamp,
    /// The server's limits.
    pub limits: &'a Limits,
    /// Whether results can be stored; when the store for them fails, they stay in the view.
    pub can_store: bool,
    /// Makes the names of this command's files its own: random where files are stored. No other command then names
    /// the same file, so that one which is removed late is nobody else's.
    pub file_salt: u64,
}

impl DecisionContext<'_> {
    pub(super) fn names<'s>(&self, session: &'s Session) -> FileNamer<'s> {
        FileNamer {
            session: session.key(),
            salt: self.file_salt,
        }
    }
}

/// What comes of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// These events; none when nothing needs to change.
    Events(Vec<Event>),
    /// The request was answered before, by the event with this revision.
    Answered(Revision),
    /// A level has nothing to do, for this reason.
    Skipped(SkipReason),
}

/// Why a level has nothing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SkipReason {
    /// The policy turns it off.
    Disabled,
    /// Its threshold is not reached.
    UnderThreshold,
    /// There is nothing that it could act on.
    NothingEligible,
    /// It would free less than its least.
    TooLittleGain,
    /// There is too little to summarise.
    TooLittleInput,
    /// Another compaction of the session runs.
    AlreadyRunning,
    /// Too many automatic attempts have failed.
    PausedAfterFailures,
    /// What cannot leave is itself over the threshold, and that was tried.
    Irreducible,
    /// An undo holds it back until a person speaks.
    HeldAfterRestore,
    /// Level 4 is on and comes first.
    CollapseEnabled,
    /// A hook's veto holds it back until a person speaks.
    HeldAfterVeto,
}

/// Whether a request was answered before.
pub(super) fn answered(
    session: &Session,
    request: Option<&RequestStamp>,
    context: DecisionContext<'_>,
) -> Result<Option<Revision>, Rejection> {
    let Some(stamp) = request else {
        return Ok(None);
    };
    if stamp.id.len() > context.limits.max_request_id_bytes {
        return Err(Rejection::TooLarge {
            field: "request_id".into(),
            limit: context.limits.max_request_id_bytes,
            actual: stamp.id.len(),
        });
    }
    match session.requests().find(stamp, context.now) {
        None => Ok(None),
        Some(found) if found.digest == stamp.digest => Ok(Some(found.revision)),
        Some(found) => Err(Rejection::Conflict(Conflict::Request {
            recorded: found.digest,
            given: stamp.digest,
        })),
    }
}

/// Optimistic locking: the caller says which revision it decided upon.
pub(super) fn check_revision(
    session: &Session,
    expected: Option<Revision>,
) -> Result<(), Rejection> {
    match expected {
        Some(expected) if expected != session.revision() => Err(Rejection::RevisionMismatch {
            expected,
            current: session.revision(),
        }),
        _ => Ok(()),
    }
}
