//! `CommitSummary`: accepts the summary, or the failure, of a delegated compaction.

use palimpsest_core::compaction::CompactionOutcome;
use palimpsest_core::event::{CompactionFailureReason, Event};
use palimpsest_core::ids::SessionKey;
use palimpsest_core::message::{Digest, Usage};
use palimpsest_core::session::{ContentNotLoaded, Session};
use palimpsest_core::view::TargetOverride;
use palimpsest_engine::compaction::{self, DelegateAnswer, DelegateResult};
use palimpsest_proto::context::v1::{
    CommitSummaryRequest, CommitSummaryResponse, PromptTooLong, commit_summary_request,
};

use super::view_report::{budget, budget_warnings, cache_ledger, tokens};
use super::{Service, delegation};
use crate::convert::{self, MAX_MODEL_BYTES};
use crate::errors::ServiceError;

/// The maximum number of characters of a failure detail that is stored.
const MAX_DETAIL_CHARS: usize = 500;

pub(super) async fn commit(
    service: &Service,
    request: CommitSummaryRequest,
) -> Result<CommitSummaryResponse, ServiceError> {
    let key = convert::session_key(&request.session, "session")?;
    let result = delegate_result(service, request)?;
    let (ended, options) = Box::pin(compaction::commit(service, &key, result)).await?;
    let ended = check_failure(service, &key, ended).await?;
    let delegated = match &ended {
        // A compaction that is still running had its request shortened. The reply contains the shorter request.
        CompactionOutcome::Running(which) => {
            let again = Box::pin(compaction::request(service, &key, *which, options)).await?;
            let gone = ServiceError::delegation_not_found(Some(*which));
            Some(again.ok_or(gone)?)
        }
        _ => None,
    };
    let tell =
        |session: &Session, ended: &CompactionOutcome| commit_response(service, session, ended);
    let response = Box::pin(compaction::render_now(service, &key, &ended, tell)).await?;
    Ok(CommitSummaryResponse {
        delegated_request: delegated.map(delegation::export),
        ..response
    })
}

/// Validates a request and converts it.
fn delegate_result(
    service: &Service,
    request: CommitSummaryRequest,
) -> Result<DelegateResult, ServiceError> {
    if request.delegation_token.is_empty() {
        return Err(ServiceError::invalid(
            "delegation_token",
            "must be set: it is in the delegated_request that Compact or PrepareContext returned",
        ));
    }
    // The model name becomes part of an event, so its length is limited.
    if request.model.len() > MAX_MODEL_BYTES {
        let what = format!("must have at most {MAX_MODEL_BYTES} bytes");
        return Err(ServiceError::invalid("model", what));
    }
    let stamp = convert::request_stamp(&request, service.limits())?;
    let Some(outcome) = request.outcome else {
        let what = "must have a summary, prompt_too_long or failure_detail";
        return Err(ServiceError::invalid("outcome", what));
    };
    let (outcome, digest) = answer(outcome, request.truncated);
    Ok(DelegateResult {
        token: request.delegation_token.into(),
        outcome,
        digest,
        model: request.model,
        usage: request.usage.map_or_else(Usage::default, convert::usage),
        request: stamp,
    })
}

/// Converts the outcome, and computes a digest that identifies an idempotent repeat.
fn answer(outcome: commit_summary_request::Outcome, truncated: bool) -> (DelegateAnswer, Digest) {
    use commit_summary_request::Outcome;
    match outcome {
        Outcome::Summary(text) => {
            // The number separates the kinds of answers, so that their digests differ.
            let digest = Digest::of_bytes(text.as_bytes()).chain(&[1, truncated.into()]);
            (DelegateAnswer::Summary { text, truncated }, digest)
        }
        Outcome::PromptTooLong(told) => {
            let gap_tokens = gap_tokens(&told);
            (
                DelegateAnswer::TooLong { gap_tokens },
                Digest::of_bytes(&[2]),
            )
        }
        Outcome::FailureDetail(detail) => {
            // The detail is not part of the digest, so a repeat may contain another detail.
            let detail = detail.chars().take(MAX_DETAIL_CHARS).collect();
            (DelegateAnswer::Failed { detail }, Digest::of_bytes(&[3]))
        }
    }
}

/// Returns the number of tokens by which a prompt exceeds the limit, from the reported counts or from the error
/// text.
pub(super) fn gap_tokens(told: &PromptTooLong) -> Option<u64> {
    let numbers = told.actual_tokens.zip(told.limit_tokens);
    let gap = numbers.and_then(|(actual, limit)| actual.checked_sub(limit));
    let gap = gap.filter(|gap| *gap > 0).map(u64::from);
    // Some providers report the counts only in the text of their error.
    gap.or_else(|| palimpsest_summarize::prompt_too_long(None, &told.error_text)?.gap_tokens)
}

/// Turns failures that the caller must handle into errors. All other outcomes are returned in the reply.
async fn check_failure(
    service: &Service,
    key: &SessionKey,
    ended: CompactionOutcome,
) -> Result<CompactionOutcome, ServiceError> {
    let CompactionOutcome::Event(event, _) = &ended else {
        return Ok(ended);
    };
    let Event::CompactionFailed(failed) = &**event else {
        return Ok(ended);
    };
    match failed.reason {
        CompactionFailureReason::RangeChanged => Err(ServiceError::range_changed(
            failed.key,
            service.sessions.read(key, Session::revision).await?,
        )),
        // An expired compaction has ended, so its token is as unknown as that of any other ended one.
        CompactionFailureReason::Expired => {
            Err(ServiceError::delegation_not_found(Some(failed.key)))
        }
        CompactionFailureReason::HookVetoed | CompactionFailureReason::HookFailed => {
            let refusal = compaction::refusal(&failed.hooks);
            refusal.map_or(Ok(ended.clone()), |error| Err(error.into()))
        }
        _ => Ok(ended),
    }
}

fn commit_response(
    service: &Service,
    session: &Session,
    ended: &CompactionOutcome,
) -> Result<CommitSummaryResponse, ContentNotLoaded> {
    let compaction = match ended {
        CompactionOutcome::Event(event, _) => convert::compaction(event, session),
        CompactionOutcome::Running(_) => convert::running_compaction(session),
        CompactionOutcome::Skipped(_) | CompactionOutcome::Answered(_) => None,
    };
    let target = &TargetOverride::default();
    Ok(CommitSummaryResponse {
        compaction,
        revision: session.revision().get(),
        epoch: session.sealed().epoch().get().into(),
        tokens: Some(tokens(session, None)),
        budget: Some(budget(session, target)),
        cache_ledger: Some(cache_ledger(service, session, target)?),
        // A failure is counted before the reply, so the session reports it.
        warnings: budget_warnings(session, target, convert::CompactionResult::None),
        ..CommitSummaryResponse::default()
    })
}
