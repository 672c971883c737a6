//! What callers ask of a session, and which events that makes: one file for each command.
//!
//! `decide` reads the session and answers with events; it changes nothing. The caller applies them,
//! may decide the next command upon the outcome, and commits all of them as one batch.

mod append;
mod create;
mod intake;
mod reject;
mod rewind;
mod serve;
mod update;

pub use append::{Append, Receipt, Warning, receipts, warnings};
pub use create::{Create, create};
pub use reject::{Conflict, Rejection};
pub use rewind::Rewind;
pub use serve::Serve;
pub use update::Update;

use crate::event::Event;
use crate::ids::{Revision, Timestamp};
use crate::limits::Limits;
use crate::session::{RequestStamp, Session};

/// What a decision may know of the world.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The server's clock.
    pub now: Timestamp,
    /// The server's limits.
    pub limits: &'a Limits,
}

/// What a caller asks of a session that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Add messages.
    Append(Append),
    /// Serve the view.
    Serve(Serve),
    /// Take later messages out of the view.
    Rewind(Rewind),
    /// Change title or attributes.
    Update(Update),
}

/// What comes of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// These events; none when nothing needs to change.
    Events(Vec<Event>),
    /// The request was answered before, by the event with this revision.
    Answered(Revision),
}

/// Decides a command.
pub fn decide(
    session: &Session,
    command: Command,
    context: Context<'_>,
) -> Result<Decision, Rejection> {
    match command {
        Command::Append(append) => append.decide(session, context),
        Command::Serve(serve) => serve.decide(session),
        Command::Rewind(rewind) => rewind.decide(session, context),
        Command::Update(update) => update.decide(session, context),
    }
}

/// Whether a request was answered before.
fn answered(
    session: &Session,
    request: Option<&RequestStamp>,
    context: Context<'_>,
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
fn check_revision(session: &Session, expected: Option<Revision>) -> Result<(), Rejection> {
    match expected {
        Some(expected) if expected != session.revision() => Err(Rejection::RevisionMoved {
            expected,
            current: session.revision(),
        }),
        _ => Ok(()),
    }
}
