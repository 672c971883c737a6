//! What callers ask of a session, and which events that makes: one file for each command.
//!
//! `decide` reads the session and answers with events; it changes nothing. The caller applies them,
//! may decide the next command upon the outcome, and commits all of them as one batch.

mod append;
mod clear;
mod collapse;
mod compact;
mod create;
mod intake;
mod memory;
mod offer;
mod persist;
mod reject;
mod restore;
mod rewind;
mod serve;
mod snip;
mod update;
mod working;

pub use append::{Append, Receipt, Warning, receipts, warnings};
pub use clear::{Clear, Clearing};
pub use collapse::{Collapse, Collapsing, Stage};
pub use compact::{
    Adopt, AnswerHook, CompactWithMemory, CompactWithPrepared, DropOldest, FailCompaction,
    FinishCompaction, Made, Scope, ShortenCompaction, StartCompaction, StartReady,
    is_compaction_due, prepares_ahead,
};
pub use create::{Create, create};
pub use memory::{
    FailMemory, FileMemory, StartMemory, UpdateMemory, memory_due, memory_runs, memory_update_due,
    wants_memory,
};
pub use offer::{CallName, Offering, Told, told};
pub use reject::{Conflict, Rejection};
pub use restore::Restore;
pub use rewind::Rewind;
pub use serve::Serve;
pub use snip::{Snip, SnipRefused, SnipTarget};

pub use update::Update;
pub use working::UpdateWorkingState;

use crate::event::{Event, RequestStamp};
use crate::ids::{Ordinal, Revision, Timestamp};
use crate::levels::results::Names;
use crate::limits::Limits;
use crate::session::Session;

/// What a decision may know of the world.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
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

impl Context<'_> {
    fn names<'s>(&self, session: &'s Session) -> Names<'s> {
        Names {
            session: session.key(),
            salt: self.file_salt,
        }
    }
}

/// What a caller asks of a session that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Add messages.
    Append(Append),
    /// Keep the results within their limits that came with the messages from one on.
    KeepResults {
        /// The first of these messages.
        from: Ordinal,
    },
    /// Serve the view.
    Serve(Serve),
    /// Remove turns, messages or blocks.
    Snip(Snip),
    /// Clear old results.
    Clear(Clear),
    /// Put the running summary in the place of what it covers.
    CompactWithMemory(CompactWithMemory),
    /// Put a summary that came from outside in the place of messages.
    Adopt(Adopt),
    /// Put the summary that was written ahead in the place of what it covers.
    CompactWithPrepared(CompactWithPrepared),
    /// Let the oldest rounds leave without a summary.
    DropOldest(DropOldest),
    /// Begin to summarise.
    StartCompaction(StartCompaction),
    /// Begin to put a summary in its place that is there already.
    StartReady(StartReady),
    /// Record what a hook wants of a compaction.
    AnswerHook(AnswerHook),
    /// Put a summary in the place of what it covers.
    FinishCompaction(FinishCompaction),
    /// Record that the input of a summary is made shorter.
    ShortenCompaction(ShortenCompaction),
    /// Record that a compaction came to nothing.
    FailCompaction(FailCompaction),
    /// Say that an update of the running summary begins.
    StartMemory(StartMemory),
    /// Record a version of it.
    UpdateMemory(UpdateMemory),
    /// Record that an update came to nothing.
    FailMemory(FailMemory),
    /// See [`FileMemory`].
    FileMemory(FileMemory),
    /// Stage spans.
    Stage(Stage),
    /// Put summaries in the places of spans.
    Collapse(Collapse),
    /// Take view-changing events back.
    Restore(Restore),
    /// Take later messages out of the view.
    Rewind(Rewind),
    /// Change title or attributes.
    Update(Update),
    /// Change the working state.
    Working(Box<UpdateWorkingState>),
    /// Say what becomes of a result, before its message comes.
    Offer(Offering),
}

/// What comes of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// These events; none when nothing needs to change.
    Events(Vec<Event>),
    /// The request was answered before, by the event with this revision.
    Answered(Revision),
    /// A level has nothing to do, for this reason.
    Skipped(Skip),
}

/// Why a level has nothing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Skip {
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
    Paused,
    /// What cannot leave is itself over the threshold, and that was tried.
    Irreducible,
    /// An undo holds it back until a person speaks.
    Held,
    /// Level 4 is on and comes first.
    CollapseEnabled,
    /// A hook's veto holds it back until a person speaks.
    Vetoed,
}

/// Decides a command. What changes a session first closes a compaction whose time is over.
pub fn decide(
    session: &Session,
    command: Command,
    context: Context<'_>,
) -> Result<Decision, Rejection> {
    let over = match &command {
        // These look at it themselves.
        Command::StartCompaction(_)
        | Command::StartReady(_)
        | Command::AnswerHook(_)
        | Command::FinishCompaction(_)
        | Command::ShortenCompaction(_)
        | Command::FailCompaction(_) => None,
        _ => compact::expired(session, context.now),
    };
    let mut decided = decide_alone(session, command, context)?;
    if let (Decision::Events(events), Some(over)) = (&mut decided, over)
        && !events.is_empty()
    {
        events.insert(0, over);
    }
    Ok(decided)
}

fn decide_alone(
    session: &Session,
    command: Command,
    context: Context<'_>,
) -> Result<Decision, Rejection> {
    match command {
        Command::Append(append) => append.decide(session, context),
        Command::KeepResults { from } => {
            let events = persist::at_intake(session, from, context)?;
            Ok(Decision::Events(events))
        }
        Command::Serve(serve) => serve.decide(session, context),
        Command::Snip(snip) => snip.decide(session, context),
        Command::Clear(clear) => clear.decide(session, context),
        Command::CompactWithMemory(compact) => compact.decide(session, context),
        Command::Adopt(adopt) => adopt.decide(session, context),
        Command::CompactWithPrepared(compact) => compact.decide(session, context),
        Command::DropOldest(drop) => drop.decide(session),
        Command::StartCompaction(start) => start.decide(session, context),
        Command::StartReady(start) => start.decide(session, context),
        Command::AnswerHook(answer) => answer.decide(session, context),
        Command::FinishCompaction(finish) => finish.decide(session, context),
        Command::ShortenCompaction(shorten) => shorten.decide(session, context),
        Command::FailCompaction(fail) => fail.decide(session, context),
        Command::StartMemory(start) => Ok(start.decide(session)),
        Command::UpdateMemory(update) => update.decide(session),
        Command::FailMemory(fail) => Ok(fail.decide(session)),
        Command::FileMemory(file) => Ok(file.decide(session)),
        Command::Stage(stage) => Ok(stage.decide(session)),
        Command::Collapse(collapse) => collapse.decide(session, context),
        Command::Restore(restore) => restore.decide(session, context),
        Command::Rewind(rewind) => rewind.decide(session, context),
        Command::Update(update) => update.decide(session, context),
        Command::Working(update) => update.decide(session, context),
        Command::Offer(offering) => offering.decide(session, context),
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
