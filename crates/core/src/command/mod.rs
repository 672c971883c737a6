//! Commands: the requests that change a session, one file per command.
//!
//! `decide` reads a session and returns events and effects. It changes nothing. The caller applies the events, may
//! decide further commands on the result, commits all events as one append, and performs the effects.

mod append;
mod check_thresholds;
mod classifier;
mod clear;
mod clear_by_rule;
mod collapse;
mod compact;
mod create;
mod decide_persist;
mod decision;
mod persist;
mod reject;
mod restore;
mod rewind;
mod serve;
mod session_memory;
mod snip;
mod sync_array;
mod update;
mod working_state;

pub use append::{
    Append, AppendReceipt, AppendSource, ReplacedResponse, Warning, receipts, warnings,
};
pub use check_thresholds::CheckThresholds;
pub use clear::{ClearResults, ClearTrigger, cleared_for_summary};
pub use clear_by_rule::{ClearAbove, ClearByRule};
pub use collapse::{CollapseSpans, CollapseTrigger, SpanSummary, StageSpans, SummarizeSpans};
pub(crate) use compact::render_session_memory;
pub use compact::{
    AdvanceCompaction, CompactionInput, CompactionMessages, CompactionScope, DropRule,
    ExternalSummary, StartCompaction, SummarySource, SummarySpec, WrittenSummary,
    is_compaction_due, is_truncation_due, prepares_ahead,
};
pub use create::{CreateSession, create_session};
pub use decide_persist::{CallRef, DecidePersist, PersistOutcome, current_outcome};
pub use decision::{Decided, Decision, DecisionContext, SkipReason};
pub use reject::{Rejection, SnipRejection, SnipTarget};
pub use restore::RestoreContext;
pub use rewind::Rewind;
pub use serve::ServeView;
pub use session_memory::{
    ConfirmMemoryFile, EditSessionMemory, FailMemoryUpdate, RecordMemoryVersion, StartMemoryUpdate,
    check_memory_size, effects_of_state, is_memory_enabled, is_memory_update_running,
    memory_due_at, memory_update_due_at,
};
pub use snip::Snip;
pub use sync_array::{ConfirmResponse, SyncArray};
pub use update::UpdateSession;
pub use working_state::UpdateWorkingState;

use crate::event::RequestStamp;
use crate::ids::{Ordinal, Revision};
use crate::session::Session;

/// A validated request to change an existing session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Appends messages.
    Append(Append),
    /// Stores the results over their limits in the messages from `from` on.
    PersistAppendedResults {
        /// The first of these messages.
        from: Ordinal,
    },
    /// Records the array as the caller has it.
    SyncArray(SyncArray),
    /// Makes a recorded response visible.
    ConfirmResponse(ConfirmResponse),
    /// Serves the view.
    ServeView(ServeView),
    /// Removes turns, messages or blocks from the view.
    Snip(Snip),
    /// Clears old tool results.
    ClearResults(ClearResults),
    /// Clears tool results by the rule of a caller. See [`ClearByRule`].
    ClearByRule(ClearByRule),
    /// Starts a compaction.
    StartCompaction(StartCompaction),
    /// Advances or ends a started compaction.
    AdvanceCompaction(AdvanceCompaction),
    /// Records the start of an update of session memory.
    StartMemoryUpdate(StartMemoryUpdate),
    /// Records a new version of session memory.
    RecordMemoryVersion(RecordMemoryVersion),
    /// Records a text that a person gave.
    EditSessionMemory(EditSessionMemory),
    /// Records a failed update of session memory.
    FailMemoryUpdate(FailMemoryUpdate),
    /// Records that the file of session memory contains the latest text. See [`ConfirmMemoryFile`].
    ConfirmMemoryFile(ConfirmMemoryFile),
    /// Stages spans.
    StageSpans(StageSpans),
    /// Replaces the summaries of staged spans by those of a model.
    SummarizeSpans(SummarizeSpans),
    /// Replaces spans by placeholders.
    CollapseSpans(CollapseSpans),
    /// Undoes view-changing events.
    Restore(RestoreContext),
    /// Removes later messages from the view.
    Rewind(Rewind),
    /// Changes the metadata or the policy of the session.
    UpdateSession(UpdateSession),
    /// Changes the working state.
    UpdateWorkingState(Box<UpdateWorkingState>),
    /// Decides about a tool result before its message is appended.
    DecidePersist(DecidePersist),
    /// Checks the thresholds of the view. See [`CheckThresholds`].
    CheckThresholds(CheckThresholds),
}

impl Command {
    /// Returns the command that must be decided next in the same transaction, if this one makes an event. `session` is
    /// the state before this command.
    pub fn then(&self, session: &Session) -> Option<Self> {
        match self {
            // Level 1 acts on results as soon as they are appended.
            Self::Append(_) => Some(Self::PersistAppendedResults {
                from: session.transcript().next(),
            }),
            _ => None,
        }
    }

    /// Returns the expected revision of a call. `None` for commands of the service.
    pub fn expected_revision_mut(&mut self) -> Option<&mut Option<Revision>> {
        match self {
            Self::StartCompaction(start) => Some(&mut start.expected_revision),
            _ => self.preconditions().map(|(_, expected)| expected),
        }
    }

    /// Returns the stamp and the expected revision of a call. `None` for commands of the service, and for compactions,
    /// which check both themselves.
    fn preconditions(&mut self) -> Option<(Option<&RequestStamp>, &mut Option<Revision>)> {
        let (request, expected) = match self {
            Self::Append(command) => (&command.request, &mut command.expected_revision),
            Self::Snip(command) => (&command.request, &mut command.expected_revision),
            Self::ClearResults(command) => (&command.request, &mut command.expected_revision),
            Self::CollapseSpans(command) => (&command.request, &mut command.expected_revision),
            Self::Restore(command) => (&command.request, &mut command.expected_revision),
            Self::Rewind(command) => (&command.request, &mut command.expected_revision),
            Self::UpdateSession(command) => (&command.request, &mut command.expected_revision),
            Self::UpdateWorkingState(command) => {
                let command = &mut **command;
                (&command.request, &mut command.expected_revision)
            }
            Self::DecidePersist(command) => (&command.request, &mut command.expected_revision),
            _ => return None,
        };
        Some((request.as_ref(), expected))
    }
}

/// Decides a command. If the command changes the session, a compaction after its deadline is ended first.
///
/// # Errors
///
/// Returns the reason if the command is rejected.
pub fn decide(
    session: &Session,
    command: Command,
    context: DecisionContext<'_>,
) -> Result<Decided, Rejection> {
    let over = match &command {
        // This command handles a compaction after its deadline itself.
        Command::AdvanceCompaction(_) => None,
        _ => compact::expiry_event(session, context.now),
    };
    let mut decided = decide_command(session, command, context)?;
    // A command without events leaves the expired compaction in place, so that a call without effect writes
    // nothing.
    if let (Decided::Now(decision), Some(over)) = (&mut decided, over)
        && !decision.events.is_empty()
        // A start ends the expired compaction itself.
        && !decision.events.contains(&over)
    {
        decision.events.insert(0, over);
    }
    Ok(decided)
}

fn decide_command(
    session: &Session,
    mut command: Command,
    context: DecisionContext<'_>,
) -> Result<Decided, Rejection> {
    // Retries and wrong revisions are answered here, before anything is decided. Compactions check both themselves.
    if let Some((request, expected)) = command.preconditions()
        && let Some(answer) = decision::answered_or_current(session, request, *expected, context)?
    {
        return Ok(answer);
    }
    match command {
        Command::Append(append) => append.decide(session, context),
        Command::PersistAppendedResults { from } => {
            let decision = persist::persist_on_append(session, from, context)?;
            Ok(Decided::Now(decision))
        }
        Command::SyncArray(sync) => Ok(sync.decide(session)),
        Command::ConfirmResponse(confirm) => confirm.decide(session),
        Command::ServeView(serve) => serve.decide(session, context),
        Command::Snip(snip) => snip.decide(session),
        Command::ClearResults(clear) => clear.decide(session, context),
        Command::ClearByRule(clear) => clear.decide(session, context),
        Command::StartCompaction(start) => start.decide(session, context),
        Command::AdvanceCompaction(advance) => advance.decide(session, context),
        Command::StartMemoryUpdate(start) => Ok(start.decide(session)),
        Command::RecordMemoryVersion(update) => update.decide(session),
        Command::EditSessionMemory(edit) => edit.decide(session, context),
        Command::FailMemoryUpdate(fail) => Ok(fail.decide(session)),
        Command::ConfirmMemoryFile(file) => Ok(file.decide(session)),
        Command::StageSpans(stage) => Ok(stage.decide(session)),
        Command::SummarizeSpans(summarize) => Ok(summarize.decide(session)),
        Command::CollapseSpans(collapse) => collapse.decide(session),
        Command::Restore(restore) => restore.decide(session),
        Command::Rewind(rewind) => rewind.decide(session),
        Command::UpdateSession(update) => update.decide(session, context),
        Command::UpdateWorkingState(update) => update.decide(session),
        Command::DecidePersist(offering) => offering.decide(session, context),
        Command::CheckThresholds(check) => Ok(check.decide(session, context)),
    }
}
