//! The summaries of staged spans by a model. They are written after a pass of level 4, and no call waits for them.

use std::collections::BTreeSet;
use std::sync::Arc;

use palimpsest_core::command::{Command, SpanSummary, SummarizeSpans};
use palimpsest_core::ids::SessionKey;
use palimpsest_core::levels::compaction::summary_input;
use palimpsest_core::session::{Session, Span};
use palimpsest_core::summary::{SYSTEM, parse_span_summary, span_request};
use palimpsest_facts::fit_span_summary;
use palimpsest_store::error_chain;
use palimpsest_summarize::{
    Purpose, Round, StopReason, SummaryReply, SummaryRequest, redact, turns,
};
use tokio::time::Instant;

use crate::compaction::InputRounds;
use crate::models::Models;
use crate::sessions::{MissingSession, Transaction};
use crate::{Engine, EngineError};

/// The maximum number of summaries after one pass. Later passes write the others.
const MAX_SUMMARIES: usize = 16;
/// The maximum output of the model in tokens. A longer answer is cut off and therefore rejected.
const MAX_OUTPUT_TOKENS: u32 = 600;

/// Writes the missing summaries of staged spans, lowest risk first, because these spans are collapsed first.
pub(crate) async fn write(engine: &Engine, key: &SessionKey) {
    // Models are slow, so they have a limit of their own and never hold back a pass.
    let (Some(models), Some(running)) = (&engine.models, engine.span_summaries.begin(key)) else {
        return;
    };
    if let Err(error) = summarize_spans(engine, models, key).await {
        let error = error_chain(&error);
        tracing::warn!(session = %key, error, "failed to summarize spans; the next pass tries again");
    }
    drop(running);
}

async fn summarize_spans(
    engine: &Engine,
    models: &Models,
    key: &SessionKey,
) -> Result<(), EngineError> {
    let is_wanted = |session: &Session| {
        let policy = &session.policy().collapse;
        policy.enabled && policy.summarize_with_model && !unwritten(session).is_empty()
    };
    // Most sessions need no summary, so the whole session is loaded only if one is missing.
    if !engine.sessions.read(key, is_wanted).await? {
        return Ok(());
    }
    let session = Arc::new(engine.sessions.read_full(key, Session::clone).await?);
    let mut summaries = Vec::new();
    for span in unwritten(&session) {
        // After a failure, the model would probably fail for the other spans too.
        let Some(summary) = summarize(engine, models, &session, span).await else {
            break;
        };
        summaries.push(summary);
        if engine.draining.is_cancelled() {
            break;
        }
    }
    if summaries.is_empty() {
        return Ok(());
    }
    let epoch = session.sealed().epoch();
    let record = |transaction: &mut Transaction<'_>| {
        let summaries = summaries.clone();
        transaction.run(Command::SummarizeSpans(SummarizeSpans { epoch, summaries }))?;
        Ok(())
    };
    let (sessions, missing) = (&engine.sessions, &MissingSession::Reject);
    sessions.write(key, missing, record, |_, ()| Ok(())).await
}

/// Returns the staged spans without a summary of a model, lowest risk first.
fn unwritten(session: &Session) -> Vec<Span> {
    let staged = session.spans().staged().iter();
    let mut spans: Vec<Span> = staged
        .filter(|span| span.model.is_empty())
        .cloned()
        .collect();
    spans.sort_by_key(|span| (span.risk, span.first()));
    spans.truncate(MAX_SUMMARIES);
    spans
}

/// Queries the models in order for the summary of a span. Returns `None` if none has written one.
async fn summarize(
    engine: &Engine,
    models: &Models,
    session: &Arc<Session>,
    span: Span,
) -> Option<SpanSummary> {
    let (key, copy) = (span.key, Arc::clone(session));
    // Rendering a span would block the async runtime.
    let rounds = tokio::task::spawn_blocking(move || {
        let input = summary_input(&copy, &span.messages, &BTreeSet::new());
        input.ok().map(InputRounds::of)
    });
    let rounds: Vec<Round> = rounds.await.ok().flatten()?.all;
    let limits = models.limits();
    let tokens: u64 = rounds.iter().map(|round| round.tokens).sum();
    // A single round can exceed the window of the model. Counts are estimates, so half of the window is the limit.
    if tokens > limits.window_tokens / 2 {
        return None;
    }
    let (policy, redacts) = (&session.policy().summary, engine.redacts(session));
    let attempts = models.attempts(policy.model.as_deref(), policy.fallback_model.as_deref());
    for attempt in attempts {
        let request = SummaryRequest {
            purpose: Purpose::Span,
            conversation: Some(session.key().session.to_string()),
            model: Some(attempt.model.clone().into()),
            system: SYSTEM.to_owned(),
            turns: turns(&rounds, false),
            instruction: span_request(),
            max_output_tokens: MAX_OUTPUT_TOKENS.min(limits.max_output_tokens).max(1),
            // No caller waits, so each attempt has the full time of a request.
            deadline: Instant::now() + limits.timeout,
        };
        let model = &attempt.model;
        let reply = match attempt.client(redacts).summarize(&request).await {
            Ok(reply) => reply,
            Err(error) => {
                let error = error_chain(&error);
                tracing::warn!(session = %session.key(), %model, error, "a model wrote no summary of a span");
                continue;
            }
        };
        if let Some(text) = accepted(&reply, redacts) {
            return Some(SpanSummary {
                key,
                text: text.into(),
                model: reply.model.into(),
            });
        }
        tracing::warn!(session = %session.key(), %model, "the answer of a model is no summary of a span");
    }
    None
}

/// Returns the summary in an answer. `None` if the answer is no summary.
fn accepted(reply: &SummaryReply, redacts: bool) -> Option<String> {
    if reply.stop == StopReason::Refusal {
        return None;
    }
    let truncated = reply.stop == StopReason::MaxTokens;
    let text = fit_span_summary(parse_span_summary(&reply.text, truncated).ok()?);
    Some(if redacts {
        redact(&text).text.into_owned()
    } else {
        text
    })
}
