//! The input and the result of a decision, and the checks that most commands share.

use super::reject::Rejection;
use crate::effect::{Effect, StoreFile};
use crate::event::{Event, RequestStamp, Visibility};
use crate::ids::{MessageId, Ordinal, Revision, Timestamp};
use crate::levels::results::FileNamer;
use crate::limits::Limits;
use crate::session::Session;

/// The environment of a decision: time, limits and file names.
#[derive(Debug, Clone, Copy)]
pub struct DecisionContext<'a> {
    /// The server's current time.
    pub now: Timestamp,
    /// The server's limits.
    pub limits: &'a Limits,
    /// True if results can be stored. If the blob store fails, the command is decided again with `false`.
    pub can_store: bool,
    /// The random salt in the names of this command's files. No other command then uses the same names, so a late
    /// removal cannot delete another command's file.
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

/// The changes that a command makes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decision {
    /// The events to apply. Empty if nothing changes.
    pub events: Vec<Event>,
    /// The work outside the session that the events call for, in the order of the events.
    pub effects: Vec<Effect>,
}

impl Decision {
    /// Iterates over the files that must be stored before the commit.
    pub fn files(&self) -> impl Iterator<Item = &StoreFile> {
        self.effects.iter().filter_map(|effect| match effect {
            Effect::StoreFile(file) => Some(file),
            _ => None,
        })
    }
}

/// The result of deciding a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decided {
    /// The command is carried out now.
    Now(Decision),
    /// The request was answered before, at this revision.
    Answered(Revision),
    /// A level has nothing to do, for this reason.
    Skipped(SkipReason),
}

impl Decided {
    /// Returns a decision that makes these events and has no effects.
    pub const fn events(events: Vec<Event>) -> Self {
        Self::Now(Decision {
            events,
            effects: Vec::new(),
        })
    }
}

/// The reason why a level has nothing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SkipReason {
    /// The policy disables the level.
    Disabled,
    /// The level's threshold is not reached.
    UnderThreshold,
    /// No content is eligible.
    NothingEligible,
    /// The level would free less than its minimum.
    TooLittleGain,
    /// The messages to summarize have fewer tokens than the minimum.
    TooLittleInput,
    /// Another compaction of the session is running.
    AlreadyRunning,
    /// Too many consecutive attempts have failed.
    PausedAfterFailures,
    /// The remaining content alone exceeds the threshold, and a compaction has shown this.
    Irreducible,
    /// An undo suspends the level until the next user input.
    HeldAfterRestore,
    /// Level 4 is enabled and acts first.
    CollapseEnabled,
    /// A veto by a hook suspends the level until the next user input.
    HeldAfterVeto,
}

/// Returns the position of a message of the view.
///
/// # Errors
///
/// Fails if the message does not exist or is not in the view.
pub(super) fn find_visible(session: &Session, id: MessageId) -> Result<Ordinal, Rejection> {
    let transcript = session.transcript();
    let found = transcript
        .find(id)
        .ok_or(Rejection::MessageNotFound { id })?;
    match transcript.get(found).map(|entry| entry.visibility) {
        Some(Visibility::Visible) => Ok(found),
        Some(visibility) => Err(Rejection::MessageNotVisible { id, visibility }),
        None => Err(Rejection::MessageNotFound { id }),
    }
}

/// Returns the revision at which a request was answered before, if it was.
///
/// # Errors
///
/// Fails if the request id is too long or was used with another body.
pub(super) fn answered(
    session: &Session,
    request: Option<&RequestStamp>,
    context: DecisionContext<'_>,
) -> Result<Option<Revision>, Rejection> {
    let Some(stamp) = request else {
        return Ok(None);
    };
    // The id is stored with the session, so its length is limited before anything is decided.
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
        // A caller that reuses an id for another request must not get the answer of the earlier one.
        Some(found) => Err(Rejection::RequestConflict {
            request_id: stamp.id.clone(),
            stored: found.digest,
            given: stamp.digest,
        }),
    }
}

/// Returns the answer to a repeated request. Otherwise checks the revision that the caller expects.
///
/// The order matters: a repeat carries the revision from before its first run, which the session has left.
pub(super) fn answered_or_current(
    session: &Session,
    request: Option<&RequestStamp>,
    expected: Option<Revision>,
    context: DecisionContext<'_>,
) -> Result<Option<Decided>, Rejection> {
    if let Some(revision) = answered(session, request, context)? {
        return Ok(Some(Decided::Answered(revision)));
    }
    check_revision(session, expected)?;
    Ok(None)
}

/// Rejects a command if the session is not at the revision that the caller expects (optimistic locking).
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
