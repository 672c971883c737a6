//! What callers ask of a session, and which events that makes: one file for each command.
//!
//! `decide` reads the session and answers with events; it changes nothing. The caller applies them,
//! may decide the next command upon the outcome, and commits all of them as one batch.

mod append;
mod clear;
mod collapse;
mod compact;
mod create;
mod decision;
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
    AdvanceCompaction, CompactionInput, ExternalSummary, Made, Scope, StartCompaction,
    SummarySource, SummarySpec, WrittenSummary, is_compaction_due, prepares_ahead,
};
pub use create::{Create, create};
pub use decision::{Context, Decision, Skip};
pub use memory::{
    FailMemory, FileMemory, StartMemory, UpdateMemory, memory_due, memory_runs, memory_update_due,
    wants_memory,
};
pub use offer::{CallName, Offering, Told, told};
pub use reject::{Conflict, Rejection, SnipRefused, SnipTarget};
pub use restore::Restore;
pub use rewind::Rewind;
pub use serve::Serve;
pub use snip::Snip;
pub use update::Update;
pub use working::UpdateWorkingState;

use crate::ids::Ordinal;
use crate::session::Session;

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
    /// Start a compaction.
    StartCompaction(StartCompaction),
    /// Advance or end a started compaction.
    AdvanceCompaction(AdvanceCompaction),
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

/// Decides a command. A command that changes the session first ends a compaction that is over its deadline.
pub fn decide(
    session: &Session,
    command: Command,
    context: Context<'_>,
) -> Result<Decision, Rejection> {
    let over = match &command {
        // It decides by itself about a compaction that is over its deadline.
        Command::AdvanceCompaction(_) => None,
        _ => compact::expired(session, context.now),
    };
    let mut decided = decide_alone(session, command, context)?;
    if let (Decision::Events(events), Some(over)) = (&mut decided, over)
        && !events.is_empty()
        && !events.contains(&over)
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
        Command::StartCompaction(start) => start.decide(session, context),
        Command::AdvanceCompaction(advance) => advance.decide(session, context),
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
