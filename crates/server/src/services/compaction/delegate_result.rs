//! The caller's answer to a delegated request: a summary or a failure.

use std::mem;

use palimpsest_core::command::{SkipReason, WrittenSummary};
use palimpsest_core::compaction::{
    CompactionMachine, CompactionOutcome, StartedCompaction, SummaryFailure,
};
use palimpsest_core::event::{CompactionFailureReason, Event};
use palimpsest_core::ids::{Revision, SessionKey};
use palimpsest_core::message::{Digest, Usage};
use palimpsest_core::session::{RequestMethod, RequestStamp, Session, Strategy};
use palimpsest_core::summary::parse_summary;
use palimpsest_engine::sessions::CommandOutcome;
use palimpsest_summarize::{redact, shorten as oldest};

use super::delegate::{delegated, shorten};
use super::model::not_taken;
use super::prompt::SummaryPrompt;
use super::run::{DriveUntil, Driver};
use super::token::{DelegationToken, Wish};
use super::{lost, summarise};
use crate::convert;
use crate::errors::ServiceError;
use crate::services::Service;

/// The validated content of a `CommitSummary` call.
#[derive(Debug)]
pub(in crate::services) struct Brought {
    pub(in crate::services) token: Vec<u8>,
    pub(in crate::services) outcome: DelegateAnswer,
    /// The digest of the answer. An equal digest identifies an idempotent repeat.
    pub(in crate::services) digest: Digest,
    pub(in crate::services) model: String,
    pub(in crate::services) usage: Usage,
    pub(in crate::services) request: Option<RequestStamp>,
}

/// The result of the request to the caller's model.
#[derive(Debug)]
pub(in crate::services) enum DelegateAnswer {
    /// The model wrote a summary. `truncated` is true if the output limit cut it off.
    Summary { text: String, truncated: bool },
    /// The provider rejected the prompt as too long, by `gap_tokens` if known.
    TooLong { gap_tokens: Option<u64> },
    /// The request failed for another reason.
    Failed { detail: String },
}

/// Ends a delegated compaction or shortens its request. Also returns the target and limits of its request.
pub(in crate::services) async fn commit(
    service: &Service,
    key: &SessionKey,
    mut brought: Brought,
) -> Result<(CompactionOutcome, Wish), ServiceError> {
    let unknown = ServiceError::DelegationNotFound { key: None };
    let token = DelegationToken::read(&brought.token).ok_or(unknown)?;
    // A call without a `request_id` is still idempotent: the token and the digest of the answer form a stamp.
    let stamp = RequestStamp {
        id: token.id(),
        method: RequestMethod::Delegation,
        digest: brought.digest,
    };
    let session = service.sessions.read_whole(key, Session::clone).await?;
    if let Some(revision) = before(service, &session, &brought, &stamp)? {
        return Ok((earlier(service, key, revision).await?, token.wish));
    }
    let gone = || ServiceError::DelegationNotFound {
        key: Some(token.key),
    };
    let found = delegated(session, token.key);
    // A shortened request has a new token. Older tokens are rejected.
    let started = found
        .filter(|started| token.names(key, &started.running))
        .ok_or_else(gone)?;
    // The answer moves out because `Delegation` owns the remaining fields. The placeholder value is never read.
    let answer = mem::replace(
        &mut brought.outcome,
        DelegateAnswer::TooLong { gap_tokens: None },
    );
    let delegation = Delegation {
        service,
        key,
        started,
        brought,
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
        Err(ServiceError::CompactionNotFound { .. }) => return Err(gone()),
        Err(ServiceError::RequestConflict { .. }) if delegation.brought.request.is_none() => {
            return Err(gone());
        }
        done => done?,
    };
    let ended = match ended {
        CompactionOutcome::Answered(revision) => earlier(service, key, revision).await?,
        ended => ended,
    };
    Ok((ended, token.wish))
}

/// Returns the revision of the event that answered an earlier identical call.
fn before(
    service: &Service,
    session: &Session,
    brought: &Brought,
    stamp: &RequestStamp,
) -> Result<Option<Revision>, ServiceError> {
    let now = service.sessions.clock().now();
    let requests = session.requests();
    if let Some(request) = &brought.request
        && let Some(found) = requests.find(request, now)
    {
        if found.digest != request.digest {
            return Err(ServiceError::RequestConflict {
                request_id: Some(request.id.to_string()),
                stored: found.digest,
                given: request.digest,
            });
        }
        return Ok(Some(found.revision));
    }
    // Another answer with the same token is not a repeat. It is handled as a new answer below.
    let found = requests.find(stamp, now);
    let same = found.filter(|found| found.digest == stamp.digest);
    Ok(same.map(|found| found.revision))
}

async fn earlier(
    service: &Service,
    key: &SessionKey,
    revision: Revision,
) -> Result<CompactionOutcome, ServiceError> {
    let recorded = service.sessions.event(key, revision).await?;
    match recorded.map(|recorded| recorded.event) {
        Some(Event::CompactionShortened(event)) => Ok(CompactionOutcome::Running(event.key)),
        Some(event) => Ok(CompactionOutcome::Event(Box::new(event), revision)),
        None => Err(lost()),
    }
}

/// A running delegated compaction and the caller's answer to it.
struct Delegation<'a> {
    service: &'a Service,
    key: &'a SessionKey,
    started: StartedCompaction,
    brought: Brought,
    stamp: RequestStamp,
}

impl Delegation<'_> {
    /// Replaces the leaving messages by the summary if the summary is accepted.
    async fn finish(&self, text: &str, truncated: bool) -> Result<CompactionOutcome, ServiceError> {
        let extracted = summarise::extract(self.service, self.key, &self.started).await?;
        let accepted = parse_summary(text, truncated, &extracted)
            .map_err(|refused| self.not_taken(not_taken(refused)))?;
        // The caller's model runs outside of the server, so its text is redacted here.
        let text = if self.service.redacts(&self.started.session) {
            redact(&accepted.text).text.into_owned()
        } else {
            accepted.text
        };
        let summary = WrittenSummary {
            text: text.into(),
            strategy: Strategy::Delegated,
            model: self.brought.model.as_str().into(),
            usage: self.brought.usage,
            dropped: self.started.running.dropped,
        };
        match self.deliver(Ok(summary)).await? {
            CompactionOutcome::Skipped(SkipReason::TooLittleGain) => {
                Err(self.not_taken(SummaryFailure {
                    why: CompactionFailureReason::NotSmaller,
                    detail: "with this summary the view would not be smaller: bring a shorter one"
                        .into(),
                }))
            }
            ended => Ok(ended),
        }
    }

    /// Returns the error for a rejected summary. A rejection changes nothing, and the token remains valid.
    fn not_taken(&self, failure: SummaryFailure) -> ServiceError {
        ServiceError::NoSummary {
            why: convert::why_failed(failure.why),
            detail: failure.detail.into(),
            model: self.brought.model.clone(),
        }
    }

    /// Drops the oldest rounds from the request, up to the policy's number of retries. Then the compaction fails.
    async fn shorten(&self, gap_tokens: Option<u64>) -> Result<CompactionOutcome, ServiceError> {
        let StartedCompaction {
            session, running, ..
        } = &self.started;
        let question = SummaryPrompt::of(&self.started).await.ok_or_else(lost)?;
        let policy = &session.policy().summary;
        let gone = running.dropped.map_or(0, |dropped| dropped.rounds as usize);
        let left = question.rounds.all.get(gone..).unwrap_or_default();
        // The percentage in millipercent: a share of 100,000.
        let share = u32::try_from(policy.retry_drop_percent.of(100_000)).unwrap_or(u32::MAX);
        let more = oldest(left, gap_tokens, share)
            .filter(|_| running.attempt < policy.max_retries)
            .and_then(|more| question.rounds.dropped(gone + more));
        let Some(dropped) = more else {
            let detail = "the model found the conversation too long, even without its oldest \
                          rounds; compact with EXTRACTIVE, or with a model that has a larger window";
            return self
                .fail(CompactionFailureReason::PromptTooLong, detail)
                .await;
        };
        let stamps = (self.brought.request.clone(), Some(self.stamp.clone()));
        let done = shorten(self.service, self.key, (running, dropped), stamps).await?;
        match done {
            CommandOutcome::Done(Some(revision)) => earlier(self.service, self.key, revision).await,
            CommandOutcome::Answered(revision) => Ok(CompactionOutcome::Answered(revision)),
            CommandOutcome::Done(None) | CommandOutcome::Skipped(_) => Err(lost()),
        }
    }

    /// Ends the compaction as failed.
    async fn fail(
        &self,
        why: CompactionFailureReason,
        detail: &str,
    ) -> Result<CompactionOutcome, ServiceError> {
        let detail = detail.into();
        match self.deliver(Err(SummaryFailure { why, detail })).await? {
            CompactionOutcome::Skipped(_) => Err(ServiceError::CompactionNotFound {
                key: self.started.running.key,
            }),
            ended => Ok(ended),
        }
    }

    /// Ends the compaction, with the stamps that make a repeat idempotent.
    async fn deliver(
        &self,
        summary: Result<WrittenSummary, SummaryFailure>,
    ) -> Result<CompactionOutcome, ServiceError> {
        let (request, commit) = (self.brought.request.clone(), Some(self.stamp.clone()));
        let mut machine =
            CompactionMachine::deliver(self.started.clone(), summary, request, commit);
        let mut driver = Driver::new(self.service, self.key);
        let render = |_: &Session, ended: &CompactionOutcome| Ok(ended.clone());
        let ended = Box::pin(driver.drive(&mut machine, DriveUntil::End, render)).await?;
        ended.ok_or_else(lost)
    }
}
