//! The machine: its phases and the order in which they follow.

use super::choosing::{Choosing, Chosen, Comparing};
use super::finishing::{Finishing, Stamps};
use super::request::{CompactionRequest, Purpose};
use super::started::{NextOfStarted, Started};
use super::step::{
    CompactionContext, CompactionOutcome, StartedCompaction, Step, StepResult, SummaryFailure,
};
use crate::command::{AdvanceCompaction, CompactionInput, Rejection, SkipReason, WrittenSummary};
use crate::event::{CompactionFailureReason, RequestStamp, Strategy};
use crate::ids::{CompactionKey, Timestamp};
use crate::session::{RunningCompaction, Session};

/// One run of a compaction.
#[derive(Debug, Clone)]
pub struct CompactionMachine {
    request: CompactionRequest,
    phase: Phase,
}

/// The progress of a run. Every phase leads to a later one, so a run ends.
#[derive(Debug, Clone)]
enum Phase {
    New,
    Comparing(Comparing),
    Choosing(Choosing),
    Started(Box<Started>),
    Finishing(Box<Finishing>),
    Ended(CompactionOutcome),
}

impl CompactionMachine {
    /// Creates the machine of a request.
    pub fn new(request: CompactionRequest) -> Self {
        let phase = Phase::New;
        Self { request, phase }
    }

    /// Creates the machine of a compaction that has started, up to the point where its summary has to be written.
    pub fn resume(started: StartedCompaction) -> Self {
        Self {
            request: request_of(&started.running),
            phase: Phase::Started(Box::new(Started::new(started, None))),
        }
    }

    /// Creates the machine that ends a delegated compaction with the summary of the caller's model, or with its
    /// failure. The stamps identify a repeat of the call and of the answer.
    pub fn deliver(
        started: StartedCompaction,
        summary: Result<WrittenSummary, SummaryFailure>,
        request: Option<RequestStamp>,
        commit: Option<RequestStamp>,
    ) -> Self {
        let (began, stamps) = (started.running.started_at, Stamps { request, commit });
        Self {
            request: request_of(&started.running),
            phase: Phase::Finishing(Box::new(Finishing::new(started, summary, began, stamps))),
        }
    }

    /// The request.
    pub fn request(&self) -> &CompactionRequest {
        &self.request
    }

    /// The outcome, if the run has ended.
    pub fn outcome(&self) -> Option<&CompactionOutcome> {
        match &self.phase {
            Phase::Ended(outcome) => Some(outcome),
            _ => None,
        }
    }

    /// Returns the key of the compaction if it has started and the server writes its summary. The remaining steps need
    /// no caller then.
    pub fn needs_no_caller(&self) -> Option<CompactionKey> {
        match &self.phase {
            Phase::Started(started) => started.key_of_server(),
            _ => None,
        }
    }

    /// Returns the next step. Nothing changes if the caller repeats the call before it reports a result.
    ///
    /// # Errors
    ///
    /// Returns `CompactionNotFound` if the compaction ended elsewhere.
    pub fn next(
        &mut self,
        session: &Session,
        context: &CompactionContext,
    ) -> Result<Step, Rejection> {
        let request = &self.request;
        loop {
            // A phase can end without a step. The loop then continues with the next phase.
            self.phase = match &mut self.phase {
                Phase::New => match begin(request, session, context) {
                    Begin::Step(step) => return Ok(*step),
                    Begin::Phase(phase) => phase,
                },
                Phase::Comparing(comparing) => return Ok(comparing.next(request, session, context)),
                Phase::Choosing(choosing) => return Ok(choosing.next(request, session, context)),
                Phase::Started(started) => match started.next(request, session, context)? {
                    NextOfStarted::Step(step) => return Ok(*step),
                    NextOfStarted::Finish(finishing) => Phase::Finishing(finishing),
                    NextOfStarted::Delegated(key) => Phase::Ended(CompactionOutcome::Running(key)),
                },
                Phase::Finishing(finishing) => return Ok(finishing.next(request, context)),
                Phase::Ended(outcome) => return Ok(Step::End(outcome.clone())),
            };
        }
    }

    /// Records the result of the last step. A result of another kind changes nothing.
    pub fn happened(&mut self, result: StepResult) {
        let next = match &mut self.phase {
            // An orphaned compaction was ended. The request begins again.
            Phase::New | Phase::Ended(_) => None,
            Phase::Comparing(comparing) => comparing.happened(result).map(Phase::Choosing),
            Phase::Choosing(choosing) => choosing.happened(result).map(|chosen| match chosen {
                Chosen::Started(started) => Phase::Started(started),
                Chosen::Ended(outcome) => Phase::Ended(outcome),
            }),
            Phase::Started(started) => started.happened(result).map(Phase::Ended),
            Phase::Finishing(finishing) => finishing.happened(result).map(Phase::Ended),
        };
        if let Some(next) = next {
            self.phase = next;
        }
    }
}

/// The first step, or the phase that follows.
enum Begin {
    Step(Box<Step>),
    Phase(Phase),
}

fn begin(request: &CompactionRequest, session: &Session, context: &CompactionContext) -> Begin {
    if let Purpose::DropOldest(rule) = request.purpose {
        return Begin::Phase(match rule.tokens(session) {
            Some(_) => Phase::Choosing(Choosing::new(request, session, context)),
            None => Phase::Ended(CompactionOutcome::Skipped(SkipReason::UnderThreshold)),
        });
    }
    // An orphaned compaction would block this one until its deadline.
    if let Some(orphan) = orphaned(session, context).filter(|_| !request.is_dry_run) {
        return Begin::Step(Box::new(Step::Advance(expire(orphan, context.now))));
    }
    let choosing = Choosing::new(request, session, context);
    Begin::Phase(if choosing.has_choice(request, session) {
        Phase::Comparing(Comparing::new(choosing, request, session))
    } else {
        Phase::Choosing(choosing)
    })
}

/// Returns the running compaction if its process has stopped. A delegated compaction survives a restart, because the
/// caller's model writes its summary.
fn orphaned<'s>(
    session: &'s Session,
    context: &CompactionContext,
) -> Option<&'s RunningCompaction> {
    let before = context.orphaned_before?;
    let running = session.compactions().running.as_ref();
    running.filter(|running| running.started_at < before && !running.is_delegated())
}

fn expire(orphan: &RunningCompaction, now: Timestamp) -> AdvanceCompaction {
    let failed = CompactionInput::Failed {
        why: CompactionFailureReason::Expired,
        detail: "the server that ran the compaction stopped".into(),
    };
    AdvanceCompaction {
        attempt: orphan.attempt,
        duration_ms: now.millis_since(orphan.started_at),
        ..AdvanceCompaction::new(orphan.key, failed)
    }
}

fn request_of(running: &RunningCompaction) -> CompactionRequest {
    CompactionRequest {
        strategy: Some(Strategy::Delegated),
        ..CompactionRequest::new(running.trigger)
    }
}
