//! What callers ask of a session, and which events that makes: one file for each command.
//!
//! `decide` reads the session and answers with events; it changes nothing. The caller applies them,
//! may decide the next command upon the outcome, and commits all of them as one batch.

mod append;
mod clear;
mod collapse;
mod compact;
mod create;
mod decide_persist;
mod decision;
mod intake;
mod persist;
mod reject;
mod restore;
mod rewind;
mod serve;
mod session_memory;
mod snip;
mod update;
mod working;

pub use append::{Append, Receipt, Warning, receipts, warnings};
pub use clear::{Clear, Clearing};
pub use collapse::{Collapse, Collapsing, StageSpans};
pub use compact::{
    AdvanceCompaction, CompactionInput, CompactionMessages, CompactionScope, ExternalSummary,
    StartCompaction, SummarySource, SummarySpec, WrittenSummary, is_compaction_due, prepares_ahead,
};
pub use create::{Create, create};
pub use decide_persist::{CallRef, Offering, PersistOutcome, told};
pub use decision::{Decision, DecisionContext, SkipReason};
pub use reject::{Conflict, Rejection, SnipRejection, SnipTarget};
pub use restore::RestoreContext;
pub use rewind::Rewind;
pub use serve::ServeView;
pub use session_memory::{
    FailMemory, FileMemory, StartMemory, UpdateMemory, memory_due, memory_runs, memory_update_due,
    wants_memory,
};
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
    PersistAppendedResults {
        /// The first of these messages.
        from: Ordinal,
    },
    /// Serve the view.
    ServeView(ServeView),
    /// Remove turns, messages or blocks.
    Snip(Snip),
    /// Clear old results.
    ClearResults(Clear),
    /// Start a compaction.
    StartCompaction(StartCompaction),
    /// Advance or end a started compaction.
    AdvanceCompaction(AdvanceCompaction),
    /// Say that an update of the running summary begins.
    StartMemoryUpdate(StartMemory),
    /// Record a version of it.
    RecordMemoryVersion(UpdateMemory),
    /// Record that an update came to nothing.
    FailMemoryUpdate(FailMemory),
    /// See [`FileMemory`].
    ConfirmMemoryFile(FileMemory),
    /// Stage spans.
    StageSpans(StageSpans),
    /// Put summaries in the places of spans.
    CollapseSpans(Collapse),
    /// Take view-changing events back.
    Restore(RestoreContext),
    /// Take later messages out of the view.
    Rewind(Rewind),
    /// Change title or attributes.
    UpdateSession(Update),
    /// Change the working state.
    UpdateWorkingState(Box<UpdateWorkingState>),
    /// Say what becomes of a result, before its message comes.
    DecidePersist(Offering),
}

/// Decides a command. A command that changes the session first ends a compaction that is over its deadline.
pub fn decide(
    session: &Session,
    command: Command,
    context: DecisionContext<'_>,
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
    context: DecisionContext<'_>,
) -> Result<Decision, Rejection> {
    match command {
        Command::Append(append) => append.decide(session, context),
        Command::PersistAppendedResults { from } => {
            let events = persist::at_intake(session, from, context)?;
            Ok(Decision::Events(events))
        }
        Command::ServeView(serve) => serve.decide(session, context),
        Command::Snip(snip) => snip.decide(session, context),
        Command::ClearResults(clear) => clear.decide(session, context),
        Command::StartCompaction(start) => start.decide(session, context),
        Command::AdvanceCompaction(advance) => advance.decide(session, context),
        Command::StartMemoryUpdate(start) => Ok(start.decide(session)),
        Command::RecordMemoryVersion(update) => update.decide(session),
        Command::FailMemoryUpdate(fail) => Ok(fail.decide(session)),
        Command::ConfirmMemoryFile(file) => Ok(file.decide(session)),
        Command::StageSpans(stage) => Ok(stage.decide(session)),
        Command::CollapseSpans(collapse) => collapse.decide(session, context),
        Command::Restore(restore) => restore.decide(session, context),
        Command::Rewind(rewind) => rewind.decide(session, context),
        Command::UpdateSession(update) => update.decide(session, context),
        Command::UpdateWorkingState(update) => update.decide(session, context),
        Command::DecidePersist(offering) => offering.decide(session, context),
    }
}
