//! The caller's answer to a delegated request: a summary or a failure.

use std::mem;

use palimpsest_core::command::{
    AdvanceCompaction, Command, CompactionInput, Rejection, SkipReason, WrittenSummary,
};
use palimpsest_core::event::{CompactionFailureReason, Event};
use palimpsest_core::ids::{Revision, SessionKey};
use palimpsest_core::message::{Digest, Usage};
use palimpsest_core::session::{RequestMethod, RequestStamp, RunningCompaction, Session, Strategy};
use palimpsest_core::summary::parse_summary;
use palimpsest_engine::sessions::{MissingSession, Transaction};
use palimpsest_summarize::{redact, shorten as oldest};

use super::delegate::{shorten, under_way};
use super::model::not_taken;
use super::prompt::SummaryPrompt;
use super::token::{DelegationToken, Wish};
use super::{
    CommandOutcome, CompactionJob, CompactionOutcome, compaction_messages, ended, hooks, lost,
    summarise,
};
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
    let found = under_way(session, token.key);
    // A shortened request has a new token. Older tokens are rejected.
    let (running, job) = found
        .filter(|(running, _)| token.names(key, running))
        .ok_or_else(gone)?;
    // The answer moves out because `Delegation` owns the remaining fields. The placeholder value is never read.
    let answer = mem::replace(
        &mut brought.outcome,
        DelegateAnswer::TooLong { gap_tokens: None },
    );
    let delegation = Delegation {
        service,
        key,
        running,
        job,
        brought,
        stamp,
    };
    let done = match answer {
        DelegateAnswer::Summary { text, truncated } => delegation.finish(&text, truncated).await,
        DelegateAnswer::TooLong { gap_tokens } => delegation.shorten(gap_tokens).await,
        DelegateAnswer::Failed { detail } => {
            delegation
                .fail(CompactionFailureReason::DelegateFailed, detail)
                .await
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
        CompactionOutcome::Before(revision) => earlier(service, key, revision).await?,
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
    running: RunningCompaction,
    job: CompactionJob,
    brought: Brought,
    stamp: RequestStamp,
}

impl Delegation<'_> {
    /// Replaces the leaving messages by the summary if the summary is accepted.
    async fn finish(&self, text: &str, truncated: bool) -> Result<CompactionOutcome, ServiceError> {
        let extracted = summarise::extract(self.service, self.key, &self.job).await?;
        let accepted = parse_summary(text, truncated, &extracted)
            .map_err(|refused| self.not_taken(not_taken(refused), refused.to_string()))?;
        // The caller's model runs outside of the server, so its text is redacted here.
        let text = if self.service.redacts(&self.job.session) {
            redact(&accepted.text).text.into_owned()
        } else {
            accepted.text
        };
        let summary = WrittenSummary {
            text: text.into(),
            strategy: Strategy::Delegated,
            model: self.brought.model.as_str().into(),
            usage: self.brought.usage,
            dropped: self.running.dropped,
        };
        let made = compaction_messages(self.service, self.key).await?;
        let finish = self.advance(CompactionInput::Summary { summary, made });
        let end = Box::pin(hooks::end(self.service, self.key, &self.job, finish)).await?;
        match self.run(Command::AdvanceCompaction(end)).await? {
            CompactionOutcome::Skipped(SkipReason::TooLittleGain) => Err(self.not_taken(
                CompactionFailureReason::NotSmaller,
                "with this summary the view would not be smaller: bring a shorter one".to_owned(),
            )),
            ended => Ok(ended),
        }
    }

    /// Returns the error for a rejected summary. A rejection changes nothing, and the token remains valid.
    fn not_taken(&self, why: CompactionFailureReason, detail: String) -> ServiceError {
        ServiceError::NoSummary {
            why: convert::why_failed(why),
            detail,
            model: self.brought.model.clone(),
        }
    }

    /// Drops the oldest rounds from the request, up to the policy's number of retries. Then the compaction fails.
    async fn shorten(&self, gap_tokens: Option<u64>) -> Result<CompactionOutcome, ServiceError> {
        let question = SummaryPrompt::of(&self.job).await.ok_or_else(lost)?;
        let policy = &self.job.session.policy().summary;
        let gone = self
            .running
            .dropped
            .map_or(0, |dropped| dropped.rounds as usize);
        let left = question.rounds.all.get(gone..).unwrap_or_default();
        // The percentage in millipercent: a share of 100,000.
        let share = u32::try_from(policy.retry_drop_percent.of(100_000)).unwrap_or(u32::MAX);
        let more = oldest(left, gap_tokens, share)
            .filter(|_| self.running.attempt < policy.max_retries)
            .and_then(|more| question.rounds.dropped(gone + more));
        let Some(dropped) = more else {
            let detail = "the model found the conversation too long, even without its oldest \
                          rounds; compact with EXTRACTIVE, or with a model that has a larger window";
            return self
                .fail(CompactionFailureReason::PromptTooLong, detail.to_owned())
                .await;
        };
        let stamps = (self.brought.request.clone(), Some(self.stamp.clone()));
        let done = shorten(self.service, self.key, (&self.running, dropped), stamps).await?;
        match done {
            CommandOutcome::Done(Some(revision)) => earlier(self.service, self.key, revision).await,
            CommandOutcome::Answered(revision) => Ok(CompactionOutcome::Before(revision)),
            CommandOutcome::Done(None) | CommandOutcome::Skipped(_) => Err(lost()),
        }
    }

    /// Ends the compaction as failed.
    async fn fail(
        &self,
        why: CompactionFailureReason,
        detail: String,
    ) -> Result<CompactionOutcome, ServiceError> {
        let detail = detail.into();
        let failed = CompactionInput::Failed { why, detail };
        let fail = self.advance(failed);
        match self.run(Command::AdvanceCompaction(fail)).await? {
            CompactionOutcome::Skipped(_) => Err(ServiceError::CompactionNotFound {
                key: self.running.key,
            }),
            ended => Ok(ended),
        }
    }

    /// Returns the command for a step of the compaction, with the stamps that make its repeat idempotent.
    fn advance(&self, input: CompactionInput) -> AdvanceCompaction {
        let now = self.service.sessions.clock().now();
        AdvanceCompaction {
            attempt: self.running.attempt,
            took_ms: now.millis_since(self.running.at),
            request: self.brought.request.clone(),
            commit: Some(self.stamp.clone()),
            ..AdvanceCompaction::new(self.running.key, input)
        }
    }

    async fn run(&self, command: Command) -> Result<CompactionOutcome, ServiceError> {
        let decide = |transaction: &mut Transaction<'_>| -> Result<CompactionOutcome, Rejection> {
            let outcome = transaction.run(command.clone())?;
            Ok(ended(outcome, transaction))
        };
        let (sessions, missing) = (&self.service.sessions, &MissingSession::Refuse);
        let done = sessions.write(self.key, missing, decide, |_, ended| Ok(ended.clone()));
        Ok(done.await?)
    }
}
