//! `CommitSummary`: the caller's own model wrote the summary of a delegated compaction, or could not.

use palimpsest_core::event::{Event, WhyFailed};
use palimpsest_core::ids::SessionKey;
use palimpsest_core::message::{Digest, Usage};
use palimpsest_core::session::{Method, NotHeld, Session};
use palimpsest_proto::context::v1::{
    self, CommitSummaryRequest, CommitSummaryResponse, PromptTooLong, commit_summary_request,
};

use super::Service;
use super::append::{budget, tokens};
use super::compaction::{self, Answer, Body, Brought, Delegated, Ended};
use super::ledger::ledger;
use crate::convert;
use crate::errors::ServiceError;

/// The most bytes of a model's name.
const MAX_MODEL_BYTES: usize = 256;
/// The most characters of a reason that is written down.
const MAX_DETAIL_CHARS: usize = 500;

pub(super) async fn commit(
    service: &Service,
    request: CommitSummaryRequest,
) -> Result<CommitSummaryResponse, ServiceError> {
    let key = convert::session_key(&request.session, "session")?;
    let brought = brought(service, request)?;
    let (ended, wish) = Box::pin(compaction::commit(service, &key, brought)).await?;
    let ended = refuse(service, &key, ended).await?;
    let delegated = match &ended {
        Ended::Running(which) => {
            let again = Box::pin(compaction::request(service, &key, *which, wish)).await?;
            let gone = ServiceError::DelegationNotFound { key: Some(*which) };
            Some(again.ok_or(gone)?)
        }
        _ => None,
    };
    let tell = |session: &Session, ended: &Ended| told(service, session, ended);
    let response = Box::pin(compaction::tell_now(service, &key, &ended, tell)).await?;
    Ok(CommitSummaryResponse {
        delegated_request: delegated.map(export),
        ..response
    })
}

/// Reads a request.
fn brought(service: &Service, request: CommitSummaryRequest) -> Result<Brought, ServiceError> {
    if request.delegation_token.is_empty() {
        return Err(ServiceError::invalid(
            "delegation_token",
            "must be set: it is in the request that Compact returned",
        ));
    }
    if request.model.len() > MAX_MODEL_BYTES {
        let what = format!("must have at most {MAX_MODEL_BYTES} bytes");
        return Err(ServiceError::invalid("model", what));
    }
    let body = || convert::body_digest(&request);
    let stamp =
        convert::request_stamp(&request.request_id, Method::Commit, body, service.limits())?;
    let Some(outcome) = request.outcome else {
        let what = "must have a summary, prompt_too_long or failure_detail";
        return Err(ServiceError::invalid("outcome", what));
    };
    let (outcome, digest) = answer(outcome, request.truncated);
    Ok(Brought {
        token: request.delegation_token.into(),
        outcome,
        digest,
        model: request.model,
        usage: request.usage.map_or_else(Usage::default, convert::usage),
        request: stamp,
    })
}

/// What the model did, and a digest of it.
fn answer(outcome: commit_summary_request::Outcome, truncated: bool) -> (Answer, Digest) {
    use commit_summary_request::Outcome;
    match outcome {
        Outcome::Summary(text) => {
            let digest = Digest::of_bytes(text.as_bytes()).chain(&[1, truncated.into()]);
            (Answer::Summary { text, truncated }, digest)
        }
        Outcome::PromptTooLong(told) => {
            let gap_tokens = gap_tokens(&told);
            (Answer::TooLong { gap_tokens }, Digest::of_bytes(&[2]))
        }
        Outcome::FailureDetail(detail) => {
            let detail = detail.chars().take(MAX_DETAIL_CHARS).collect();
            (Answer::Failed { detail }, Digest::of_bytes(&[3]))
        }
    }
}

/// By how many tokens a prompt is too long, where that is known.
pub(super) fn gap_tokens(told: &PromptTooLong) -> Option<u64> {
    let numbers = told.actual_tokens.zip(told.limit_tokens);
    let gap = numbers.and_then(|(actual, limit)| actual.checked_sub(limit));
    let gap = gap.filter(|gap| *gap > 0).map(u64::from);
    gap.or_else(|| palimpsest_summarize::prompt_too_long(None, &told.error_text)?.gap_tokens)
}

/// The failures that refuse the call.
async fn refuse(service: &Service, key: &SessionKey, ended: Ended) -> Result<Ended, ServiceError> {
    let Ended::Event(event, _) = &ended else {
        return Ok(ended);
    };
    let Event::CompactionFailed(failed) = &**event else {
        return Ok(ended);
    };
    match failed.why {
        WhyFailed::RangeChanged => Err(ServiceError::CompactionRangeChanged {
            key: failed.key,
            current: service.sessions.read(key, Session::revision).await?,
        }),
        WhyFailed::Expired => Err(ServiceError::DelegationNotFound {
            key: Some(failed.key),
        }),
        WhyFailed::HookVetoed | WhyFailed::HookFailed => {
            compaction::refusal(&failed.hooks).map_or(Ok(ended.clone()), Err)
        }
        _ => Ok(ended),
    }
}

fn told(
    service: &Service,
    session: &Session,
    ended: &Ended,
) -> Result<CommitSummaryResponse, NotHeld> {
    let compaction = match ended {
        Ended::Event(event, _) => convert::compaction(event, session),
        Ended::Running(_) => convert::running_compaction(session),
        Ended::Skipped(_) | Ended::Before(_) => None,
    };
    Ok(CommitSummaryResponse {
        compaction,
        revision: session.revision().get(),
        epoch: session.sealed().epoch().get().into(),
        tokens: Some(tokens(session, None)),
        budget: Some(budget(session, None)),
        cache_ledger: Some(ledger(service, session, None)?),
        ..CommitSummaryResponse::default()
    })
}

/// The request for the caller's model.
pub(super) fn export(delegated: Delegated) -> v1::DelegatedRequest {
    let mut out = v1::DelegatedRequest {
        delegation_token: delegated.token.into(),
        expire_time: Some(convert::export_timestamp(delegated.expires)),
        input_tokens: u32::try_from(delegated.input_tokens).unwrap_or(u32::MAX),
        ..v1::DelegatedRequest::default()
    };
    match delegated.body {
        Body::Json(body) => out.request_json = body,
        Body::Typed {
            system,
            turns,
            max_output_tokens,
        } => {
            out.system_prompt = system;
            out.messages = convert::turns(&turns);
            out.max_output_tokens = max_output_tokens;
        }
    }
    out
}
