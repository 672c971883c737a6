//! The caller's answer to a delegated request: a summary or a failure.

use std::mem;

use crate::sessions::CommandOutcome;
use palimpsest_core::command::{Rejection, SkipReason, WrittenSummary};
use palimpsest_core::compaction::{
    CompactionMachine, CompactionOutcome, StartedCompaction, SummaryFailure,
};
use palimpsest_core::event::{CompactionFailureReason, Event};
use palimpsest_core::ids::{Revision, SessionKey};
use palimpsest_core::message::{Digest, Usage};
use palimpsest_core::session::{RequestMethod, RequestStamp, Session, Strategy};
use palimpsest_core::session_summary::accept_summary;
use palimpsest_summarize::{redact, shorten as oldest};

use super::delegate::{find_delegated, shorten};
use super::model::rejected_answer;
use super::prompt::SummaryPrompt;
use super::run::{DriveUntil, Driver};
use super::token::{DelegationOptions, DelegationToken};
use super::{CompactionError, summarize};
use crate::{Engine, EngineError};

/// The validated content of a `CommitSummary` call.
#[derive(Debug)]
pub struct DelegateResult {
    /// The token of the request.
    pub token: Vec<u8>,
    /// The result of the request.
    pub outcome: DelegateAnswer,
    /// The digest of the answer. An equal digest identifies an idempotent repeat.
    pub digest: Digest,
    /// The name of the model.
    pub model: String,
    /// The usage that the provider reported.
    pub usage: Usage,
    /// The stamp that identifies retries.
    pub request: Option<RequestStamp>,
}

/// The result of the request to the caller's model.
#[derive(Debug)]
pub enum DelegateAnswer {
    /// The model wrote a summary.
    Summary {
        /// The text of the model.
        text: String,
        /// True if the output limit cut the text off.
        truncated: bool,
    },
    /// The provider rejected the prompt as too long.
    TooLong {
        /// The number of tokens above the limit, if known.
        gap_tokens: Option<u64>,
    },
    /// The request failed for another reason.
    Failed {
        /// The reason as text.
        detail: String,
    },
}

/// Ends a delegated compaction or shortens its request. Also returns the target and limits of its request.
pub async fn commit(
    engine: &Engine,
    key: &SessionKey,
    mut result: DelegateResult,
) -> Result<(CompactionOutcome, DelegationOptions), CompactionError> {
    let unknown = CompactionError::DelegationNotFound { key: None };
    let token = DelegationToken::read(&result.token).ok_or(unknown)?;
    // A call without a `request_id` is still idempotent: the token and the digest of the answer form a stamp.
    let stamp = RequestStamp {
        id: token.id(),
        method: RequestMethod::Delegation,
        digest: result.digest,
    };
    let session = engine.sessions.read_full(key, Session::clone).await?;
    // The lookup precedes the check of the token. A repeat gets its result although the end of the compaction
    // invalidated the token.
    if let Some(revision) = earlier_event(engine, &session, &result, &stamp)? {
        return Ok((earlier(engine, key, revision).await?, token.options));
    }
    let gone = || CompactionError::DelegationNotFound {
        key: Some(token.key),
    };
    let found = find_delegated(session, token.key);
    // A shortened request has a new token. Older tokens are rejected.
    let started = found
        .filter(|started| token.names(key, &started.running))
        .ok_or_else(gone)?;
    // The answer moves out because `Delegation` owns the remaining fields. The placeholder value is never read.
    let answer = mem::replace(
        &mut result.outcome,
        DelegateAnswer::TooLong { gap_tokens: None },
    );
    let delegation = Delegation {
        engine,
        key,
        started,
        result,
        stamp,
    };
    let done = match answer {
        DelegateAnswer::Summary { text, truncated } => delegation.finish(&text, truncated).await,
        DelegateAnswer::TooLong { gap_tokens } => delegation.shorten(gap_tokens).await,
        DelegateAnswer::Failed { detail } => {
            let why = CompactionFailureReason::DelegateFailed;
            delegation.fail(why, &detail).await
        }
    };
    let ended = match done {
        // A concurrent call ended the compaction first.
        Err(CompactionError::Engine(EngineError::Rejected(Rejection::CompactionNotFound {
            ..
        }))) => return Err(gone()),
        // Another answer to the same token came first.
        Err(CompactionError::Engine(EngineError::Rejected(Rejection::RequestConflict {
            request_id,
            ..
        }))) if request_id == delegation.stamp.id => {
            return Err(gone());
        }
        done => done?,
    };
    let ended = match ended {
        CompactionOutcome::Answered(revision) => earlier(engine, key, revision).await?,
        ended => ended,
    };
    Ok((ended, token.options))
}

/// Returns the revision of the event that answered an earlier identical call.
fn earlier_event(
    engine: &Engine,
    session: &Session,
    result: &DelegateResult,
    stamp: &RequestStamp,
) -> Result<Option<Revision>, CompactionError> {
    let now = engine.sessions.clock().now();
    let requests = session.requests();
    if let Some(request) = &result.request
        && let Some(found) = requests.find(request, now)
    {
        if found.digest != request.digest {
            let conflict = Rejection::RequestConflict {
                request_id: request.id.clone(),
                stored: found.digest,
                given: request.digest,
            };
            return Err(EngineError::from(conflict).into());
        }
        return Ok(Some(found.revision));
    }
    // Another answer with the same token is not a repeat. It is handled as a new answer below.
    let found = requests.find(stamp, now);
    let same = found.filter(|found| found.digest == stamp.digest);
    Ok(same.map(|found| found.revision))
}

async fn earlier(
    engine: &Engine,
    key: &SessionKey,
    revision: Revision,
) -> Result<CompactionOutcome, CompactionError> {
    let recorded = engine.sessions.event(key, revision).await?;
    match recorded.map(|recorded| recorded.event) {
        Some(Event::CompactionShortened(event)) => Ok(CompactionOutcome::Running(event.key)),
        Some(event) => Ok(CompactionOutcome::Event(Box::new(event), revision)),
        None => Err(CompactionError::content_lost()),
    }
}

/// A running delegated compaction and the caller's answer to it.
struct Delegation<'a> {
    engine: &'a Engine,
    key: &'a SessionKey,
    started: StartedCompaction,
    result: DelegateResult,
    stamp: RequestStamp,
}

impl Delegation<'_> {
    /// Replaces the leaving messages by the summary if the summary is accepted.
    async fn finish(
        &self,
        text: &str,
        truncated: bool,
    ) -> Result<CompactionOutcome, CompactionError> {
        let extracted = summarize::extract_document(self.engine, self.key, &self.started).await?;
        let accepted = accept_summary(text, truncated, &extracted)
            .map_err(|refused| self.summary_rejected(rejected_answer(refused)))?;
        // The caller's model runs outside of the server, so its text is redacted here.
        let text = if self.engine.redacts(&self.started.session) {
            redact(&accepted).text.into_owned()
        } else {
            accepted
        };
        let summary = WrittenSummary {
            text: text.into(),
            strategy: Strategy::Delegated,
            model: self.result.model.as_str().into(),
            usage: self.result.usage,
            dropped: self.started.running.dropped,
        };
        match self.deliver(Ok(summary)).await? {
            CompactionOutcome::Skipped(SkipReason::TooLittleGain) => {
                Err(self.summary_rejected(SummaryFailure {
                    why: CompactionFailureReason::NotSmaller,
                    detail: "with this summary the view would not be smaller: bring a shorter one"
                        .into(),
                }))
            }
            ended => Ok(ended),
        }
    }

    /// Returns the error for a rejected summary. A rejection changes nothing, and the token remains valid.
    fn summary_rejected(&self, failure: SummaryFailure) -> CompactionError {
        CompactionError::NoSummary {
            reason: failure.why,
            detail: failure.detail,
            model: self.result.model.as_str().into(),
        }
    }

    /// Drops the oldest rounds from the request, up to the policy's number of retries. Then the compaction fails.
    async fn shorten(&self, gap_tokens: Option<u64>) -> Result<CompactionOutcome, CompactionError> {
        let StartedCompaction {
            session, running, ..
        } = &self.started;
        let question = SummaryPrompt::of(&self.started)
            .await
            .ok_or_else(CompactionError::content_lost)?;
        let policy = &session.policy().summary;
        let gone = running.dropped.map_or(0, |dropped| dropped.rounds as usize);
        let left = question.rounds.all.get(gone..).unwrap_or_default();
        // The percentage in millipercent: a share of 100,000.
        let share = u32::try_from(policy.retry_drop_percent.of(100_000)).unwrap_or(u32::MAX);
        let more = oldest(left, gap_tokens, share)
            .filter(|_| running.attempt < policy.max_retries)
            .and_then(|more| question.rounds.describe_dropped(gone + more));
        let Some(dropped) = more else {
            let detail = "the model found the conversation too long, even without its oldest \
                          rounds; compact with EXTRACTIVE, or with a model that has a larger window";
            return self
                .fail(CompactionFailureReason::PromptTooLong, detail)
                .await;
        };
        let stamps = (self.result.request.clone(), Some(self.stamp.clone()));
        let done = shorten(self.engine, self.key, (running, dropped), stamps).await?;
        match done {
            CommandOutcome::Done(Some(revision)) => earlier(self.engine, self.key, revision).await,
            CommandOutcome::Answered(revision) => Ok(CompactionOutcome::Answered(revision)),
            CommandOutcome::Done(None) | CommandOutcome::Skipped(_) => {
                Err(CompactionError::content_lost())
            }
        }
    }

    /// Ends the compaction as failed.
    async fn fail(
        &self,
        why: CompactionFailureReason,
        detail: &str,
    ) -> Result<CompactionOutcome, CompactionError> {
        let detail = detail.into();
        match self.deliver(Err(SummaryFailure { why, detail })).await? {
            CompactionOutcome::Skipped(_) => {
                let key = self.started.running.key;
                Err(EngineError::from(Rejection::CompactionNotFound { key }).into())
            }
            ended => Ok(ended),
        }
    }

    /// Ends the compaction, with the stamps that make a repeat idempotent.
    async fn deliver(
        &self,
        summary: Result<WrittenSummary, SummaryFailure>,
    ) -> Result<CompactionOutcome, CompactionError> {
        let (request, commit) = (self.result.request.clone(), Some(self.stamp.clone()));
        let mut machine =
            CompactionMachine::deliver(self.started.clone(), summary, request, commit);
        let mut driver = Driver::new(self.engine, self.key);
        let render = |_: &Session, ended: &CompactionOutcome| Ok(ended.clone());
        let ended = Box::pin(driver.drive(&mut machine, DriveUntil::End, render)).await?;
        ended.ok_or_else(CompactionError::content_lost)
    }
}
