//! Summaries written by the server's models: the order of models, their time limits, and the acceptance of the
//! answer.

use std::time::Duration;

use crate::call::{CurrentCall, Deadline};
use crate::models::{ModelAttempt, Models};
use palimpsest_core::command::WrittenSummary;
use palimpsest_core::compaction::{SummaryFailure, SummaryTask};
use palimpsest_core::event::CompactionFailureReason;
use palimpsest_core::ids::SessionKey;
use palimpsest_core::message::Usage;
use palimpsest_core::policy::SummaryPolicy;
use palimpsest_core::session::{RunningCompaction, Strategy};
use palimpsest_core::session_summary::accept_summary;
use palimpsest_core::summary::{SYSTEM, SummaryDocument, SummaryRejection};
use palimpsest_summarize::{
    self as summarize, ChunkPosition, ChunkSettings, Error, Purpose, ShortenSettings, StopReason,
    Summarizer, SummaryReply, SummaryRequest, redact, summarize_in_chunks, summarize_with_retries,
};
use tokio::time::Instant;

use super::NO_USAGE;
use super::prompt::SummaryPrompt;
use crate::Engine;

/// The maximum time that is reserved for the steps after the last answer: 5 s.
const FINISH_RESERVE: Duration = Duration::from_secs(5);

/// Queries the models in order until a summary is accepted. The usage of all attempts is summed.
pub(super) async fn summarize_by_model(
    engine: &Engine,
    models: &Models,
    key: &SessionKey,
    task: &SummaryTask,
    extracted: &SummaryDocument,
) -> Result<WrittenSummary, SummaryFailure> {
    let failed = |reason, detail: &str| SummaryFailure {
        why: reason,
        detail: detail.into(),
    };
    let unavailable = CompactionFailureReason::ModelUnavailable;
    let Some(question) = SummaryPrompt::of(&task.started).await else {
        let detail = "the messages could not be read; compact again";
        return Err(failed(unavailable, detail));
    };
    let policy = &task.started.session.policy().summary;
    let asking = SummaryQuery {
        key,
        policy,
        redacts: engine.redacts(&task.started.session),
        question: &question,
        window: models.limits().window_tokens,
        max_output_tokens: models.limits().max_output_tokens,
    };
    let model = task.model.as_deref().or(policy.model.as_deref());
    let attempts = models.attempts(model, policy.fallback_model.as_deref());
    // Failed attempts used tokens too, so the usage accumulates over all attempts.
    let mut usage = NO_USAGE;
    let mut outcome = Err(failed(
        unavailable,
        "there is no time left; compact again, with a longer autocompact.timeout",
    ));
    let count = attempts.len();
    for (at, attempt) in attempts.into_iter().enumerate() {
        let left = time_left(engine, &task.started.running);
        if left.is_zero() {
            break;
        }
        // A model that does not answer must leave time for the next one.
        let left = if at + 1 < count { left * 2 / 3 } else { left };
        let name = attempt.model.clone();
        match asking
            .ask_model(attempt, Instant::now() + left, extracted, &mut usage)
            .await
        {
            Ok(taken) => return Ok(WrittenSummary { usage, ..taken }),
            Err(failure) => {
                let SummaryFailure { why, detail } = &failure;
                tracing::warn!(session = %key, model = %name, ?why, %detail, "a model wrote no summary");
                outcome = Err(failure);
            }
        }
    }
    outcome
}

/// Returns the time for the models: the remaining time of the compaction, minus a reserve for its end.
fn time_left(engine: &Engine, running: &RunningCompaction) -> Duration {
    let whole = Duration::from_millis(running.deadline.millis_since(running.started_at));
    let now = engine.sessions.clock().now();
    let left = Duration::from_millis(running.deadline.millis_since(now));
    // The reserve of a short compaction is a tenth, so that it does not use up the time of the models.
    let left = left.saturating_sub(FINISH_RESERVE.min(whole / 10));
    // A waiting caller's deadline also limits the time.
    let caller = Deadline::current().map_or(Duration::MAX, Deadline::remaining);
    left.min(caller.saturating_sub(FINISH_RESERVE.min(caller / 10)))
}

/// The query for a summary and the limits of the models.
struct SummaryQuery<'a> {
    key: &'a SessionKey,
    policy: &'a SummaryPolicy,
    redacts: bool,
    question: &'a SummaryPrompt,
    window: u64,
    /// The maximum output of a model in tokens.
    max_output_tokens: u32,
}

impl SummaryQuery<'_> {
    /// Queries one model and validates its answer. Its usage is added to `usage`.
    async fn ask_model(
        &self,
        attempt: ModelAttempt,
        deadline: Instant,
        extracted: &SummaryDocument,
        usage: &mut Usage,
    ) -> Result<WrittenSummary, SummaryFailure> {
        // The request goes to another system, so secrets are redacted in the prompt and not only in the answer.
        let summarizer = attempt.client(self.redacts);
        // The output may use at most a quarter of the window, so that a small window keeps space for the input.
        let most = u32::try_from(self.window / 4).unwrap_or(u32::MAX);
        let request = SummaryRequest {
            purpose: Purpose::Compaction,
            conversation: Some(self.key.session.to_string()),
            model: Some(attempt.model.into()),
            system: SYSTEM.to_owned(),
            turns: Vec::new(),
            instruction: self.question.instruction.clone(),
            max_output_tokens: self
                .policy
                .max_output_tokens
                .min(self.max_output_tokens)
                .min(most)
                .max(1),
            deadline,
        };
        // A model can take minutes. The call does not count as load while it waits.
        let sent = CurrentCall::pause_while(self.send(summarizer.as_ref(), &request)).await;
        let (reply, dropped) = sent.map_err(|error| SummaryFailure {
            why: failure_reason(&error, deadline),
            detail: error.to_string().into(),
        })?;
        add(usage, reply.usage);
        // A refused answer may contain text, which is no summary.
        if reply.stop == StopReason::Refusal {
            return Err(rejected_answer(SummaryRejection::Refusal));
        }
        let truncated = reply.stop == StopReason::MaxTokens;
        let accepted = accept_summary(&reply.text, truncated, extracted);
        let accepted = accepted.map_err(rejected_answer)?;
        // Missing sections and names come from the extracted summary, so the combined text is redacted.
        let text = if self.redacts {
            redact(&accepted).text.into_owned()
        } else {
            accepted
        };
        Ok(WrittenSummary {
            text: text.into(),
            strategy: Strategy::Model,
            model: reply.model.into(),
            usage: NO_USAGE,
            dropped: self.question.rounds.describe_dropped(dropped),
        })
    }

    /// Sends one request if the conversation fits, otherwise a sequence of chunks. Also returns the number of
    /// oldest rounds that were dropped.
    async fn send(
        &self,
        summarizer: &dyn Summarizer,
        request: &SummaryRequest,
    ) -> Result<(SummaryReply, usize), Error> {
        let output = u64::from(request.max_output_tokens);
        let rounds = &self.question.rounds.all;
        let all: u64 = rounds.iter().map(|round| round.tokens).sum();
        if all <= self.question.max_input_tokens(self.window, output) {
            let settings = ShortenSettings {
                max_retries: self.policy.max_retries,
                // The percentage in millipercent: a share of 100,000.
                drop_millipercent: u32::try_from(self.policy.retry_drop_percent.of(100_000))
                    .unwrap_or(u32::MAX),
            };
            let asked = summarize_with_retries(summarizer, request, rounds, settings).await?;
            return Ok((asked.reply, asked.dropped_rounds));
        }
        // A conversation that exceeds the window is summarized in chunks. Each request contains the summary so far.
        let settings = ChunkSettings::for_window(self.window, output, self.question.overhead());
        let instruct = |place: ChunkPosition| match place {
            ChunkPosition::Only | ChunkPosition::Last => self.question.instruction.clone(),
            ChunkPosition::First | ChunkPosition::Next => format!(
                "More of the conversation follows in later parts; your summary of it so far is \
                 handed on with the next one.\n\n{}",
                self.question.instruction
            ),
        };
        let asked = summarize_in_chunks(summarizer, request, rounds, settings, &instruct).await?;
        Ok((asked.reply, asked.dropped_rounds))
    }
}

fn failure_reason(error: &Error, deadline: Instant) -> CompactionFailureReason {
    match error {
        Error::PromptTooLong(_) => CompactionFailureReason::PromptTooLong,
        Error::Refused { .. } => CompactionFailureReason::Refused,
        Error::Empty => CompactionFailureReason::Empty,
        Error::Timeout { .. } if Instant::now() >= deadline => CompactionFailureReason::Expired,
        Error::Unavailable { .. }
        | Error::Auth { .. }
        | Error::BadRequest { .. }
        | Error::Timeout { .. } => CompactionFailureReason::ModelUnavailable,
    }
}

/// Returns the failure for an answer that is no summary.
pub(super) fn rejected_answer(refused: SummaryRejection) -> SummaryFailure {
    let why = match refused {
        SummaryRejection::Empty => CompactionFailureReason::Empty,
        SummaryRejection::Refusal => CompactionFailureReason::Refused,
        SummaryRejection::Truncated => CompactionFailureReason::Truncated,
        SummaryRejection::Incomplete => CompactionFailureReason::Incomplete,
    };
    SummaryFailure {
        why,
        detail: refused.to_string().into(),
    }
}

fn add(sum: &mut Usage, more: summarize::Usage) {
    sum.input_tokens = sum.input_tokens.saturating_add(more.input);
    sum.output_tokens = sum.output_tokens.saturating_add(more.output);
    sum.cache_read_tokens = sum.cache_read_tokens.saturating_add(more.cache_read);
    sum.cache_write_tokens = sum.cache_write_tokens.saturating_add(more.cache_write);
}
