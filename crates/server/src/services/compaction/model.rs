//! A summary by a model: what it is told, who is asked, and whether its answer is taken.

use std::sync::Arc;
use std::time::Duration;

use palimpsest_core::command::WrittenSummary;
use palimpsest_core::event::WhyFailed;
use palimpsest_core::ids::SessionKey;
use palimpsest_core::message::Usage;
use palimpsest_core::policy::SummaryPolicy;
use palimpsest_core::session::Strategy;
use palimpsest_core::summary::{Document, Refused, SYSTEM, accept};
use palimpsest_engine::call::{Deadline, Turn};
use palimpsest_engine::models::{Attempt, Models};
use palimpsest_summarize::{
    self as summarize, ChunkSettings, Error, Place, Purpose, Redacting, Reply, Request,
    ShortenSettings, Stop, Summarizer, redact, summarize_in_chunks, summarize_with_retries,
};
use tokio::time::Instant;

use super::super::Service;
use super::question::Question;
use super::{Job, NO_USAGE, Wanted};

/// So much of the time that a compaction has is kept for what follows the last answer, at most.
const TO_FINISH: Duration = Duration::from_secs(5);

/// Why there is no summary, and the same for a person.
type Failure = (WhyFailed, String);

/// Asks the models one after the other until a summary is taken. What they cost is told together.
pub(super) async fn ask(
    service: &Service,
    models: &Models,
    (key, job): (&SessionKey, &Job),
    wanted: &Wanted,
    extracted: &Document,
) -> Result<WrittenSummary, Failure> {
    let Some(question) = Question::of(job).await else {
        let detail = "the messages could not be read; compact again";
        return Err((WhyFailed::ModelUnavailable, detail.to_owned()));
    };
    let policy = &job.session.policy().summary;
    let asking = Asking {
        policy,
        redacts: service.redacts(&job.session),
        question: &question,
        window: models.limits().window_tokens,
        most: models.limits().max_output_tokens,
    };
    let model = wanted.model.as_deref().or(policy.model.as_deref());
    let attempts = models.attempts(model, policy.fallback_model.as_deref());
    let mut usage = NO_USAGE;
    let mut outcome = Err((
        WhyFailed::ModelUnavailable,
        "there is no time left; compact again, with a longer autocompact.timeout".to_owned(),
    ));
    let count = attempts.len();
    for (at, attempt) in attempts.into_iter().enumerate() {
        let left = time_left(service, job);
        if left.is_zero() {
            break;
        }
        // A model that hangs must leave some time to the next one.
        let left = if at + 1 < count { left * 2 / 3 } else { left };
        let name = attempt.model.clone();
        match asking
            .put(attempt, Instant::now() + left, extracted, &mut usage)
            .await
        {
            Ok(taken) => return Ok(WrittenSummary { usage, ..taken }),
            Err((why, detail)) => {
                tracing::warn!(session = %key, model = %name, ?why, detail, "a model wrote no summary");
                outcome = Err((why, detail));
            }
        }
    }
    outcome
}

/// How long the models have: the compaction's time, less what its end takes.
fn time_left(service: &Service, job: &Job) -> Duration {
    let Some(running) = &job.session.compactions().running else {
        return Duration::ZERO;
    };
    let whole = Duration::from_millis(running.expires.millis_since(running.at));
    let now = service.sessions.clock().now();
    let left = Duration::from_millis(running.expires.millis_since(now));
    let left = left.saturating_sub(TO_FINISH.min(whole / 10));
    // Where the caller waits, there is no more time than the caller has.
    let caller = Deadline::current().map_or(Duration::MAX, Deadline::remaining);
    left.min(caller.saturating_sub(TO_FINISH.min(caller / 10)))
}

/// Who is asked what.
struct Asking<'a> {
    policy: &'a SummaryPolicy,
    redacts: bool,
    question: &'a Question,
    window: u64,
    /// What a model can write at most.
    most: u32,
}

impl Asking<'_> {
    /// Asks one model, and reads its answer. What it cost is added to the usage.
    async fn put(
        &self,
        attempt: Attempt,
        deadline: Instant,
        extracted: &Document,
        usage: &mut Usage,
    ) -> Result<WrittenSummary, Failure> {
        let summarizer: Arc<dyn Summarizer> = if self.redacts {
            Arc::new(Redacting(attempt.summarizer))
        } else {
            attempt.summarizer
        };
        // A model with a small window must not spend all of it on the answer.
        let most = u32::try_from(self.window / 4).unwrap_or(u32::MAX);
        let request = Request {
            purpose: Purpose::Compaction,
            model: Some(attempt.model.into()),
            system: SYSTEM.to_owned(),
            turns: Vec::new(),
            instruction: self.question.instruction.clone(),
            max_output_tokens: self
                .policy
                .max_output_tokens
                .min(self.most)
                .min(most)
                .max(1),
            deadline,
        };
        let sent = Turn::wait(self.send(summarizer.as_ref(), &request)).await;
        let (reply, dropped) = sent.map_err(|error| (why(&error, deadline), error.to_string()))?;
        add(usage, reply.usage);
        if reply.stop == Stop::Refused {
            return Err((WhyFailed::Refused, Refused::Refusal.to_string()));
        }
        let truncated = reply.stop == Stop::CutAtCap;
        let accepted = accept(&reply.text, truncated, extracted);
        let accepted = accepted.map_err(|refused| (not_taken(refused), refused.to_string()))?;
        // What filled the gaps has not been looked through yet.
        let text = if self.redacts {
            redact(&accepted.text).text.into_owned()
        } else {
            accepted.text
        };
        Ok(WrittenSummary {
            text: text.into(),
            strategy: Strategy::Model,
            model: reply.model.into(),
            usage: NO_USAGE,
            dropped: self.question.rounds.dropped(dropped),
        })
    }

    /// In one request where everything fits into one, else piece by piece; with how many of the oldest
    /// rounds it does not cover.
    async fn send(
        &self,
        summarizer: &dyn Summarizer,
        request: &Request,
    ) -> Result<(Reply, usize), Error> {
        let output = u64::from(request.max_output_tokens);
        let rounds = &self.question.rounds.all;
        let all: u64 = rounds.iter().map(|round| round.tokens).sum();
        if all <= self.question.room(self.window, output) {
            let settings = ShortenSettings {
                max_retries: self.policy.max_retries,
                // Of a hundred thousand: in thousandths of a percent.
                drop_millipercent: u32::try_from(self.policy.retry_drop_percent.of(100_000))
                    .unwrap_or(u32::MAX),
            };
            let asked = summarize_with_retries(summarizer, request, rounds, settings).await?;
            return Ok((asked.reply, asked.dropped_rounds));
        }
        let settings = ChunkSettings::for_window(self.window, output, self.question.overhead());
        let instruct = |place: Place| match place {
            Place::Only | Place::Last => self.question.instruction.clone(),
            Place::First | Place::Next => format!(
                "More of the conversation follows in later parts; your summary of it so far is \
                 handed on with the next one.\n\n{}",
                self.question.instruction
            ),
        };
        let asked = summarize_in_chunks(summarizer, request, rounds, settings, &instruct).await?;
        Ok((asked.reply, asked.dropped_rounds))
    }
}

fn why(error: &Error, deadline: Instant) -> WhyFailed {
    match error {
        Error::PromptTooLong(_) => WhyFailed::PromptTooLong,
        Error::Refused { .. } => WhyFailed::Refused,
        Error::Empty => WhyFailed::Empty,
        Error::Timeout { .. } if Instant::now() >= deadline => WhyFailed::Expired,
        Error::Unavailable { .. }
        | Error::Auth { .. }
        | Error::BadRequest { .. }
        | Error::Timeout { .. } => WhyFailed::ModelUnavailable,
    }
}

pub(super) const fn not_taken(refused: Refused) -> WhyFailed {
    match refused {
        Refused::Empty => WhyFailed::Empty,
        Refused::Refusal => WhyFailed::Refused,
        Refused::Truncated => WhyFailed::Truncated,
        Refused::Incomplete => WhyFailed::Incomplete,
    }
}

fn add(sum: &mut Usage, more: summarize::Usage) {
    sum.input_tokens = sum.input_tokens.saturating_add(more.input);
    sum.output_tokens = sum.output_tokens.saturating_add(more.output);
    sum.cache_read_tokens = sum.cache_read_tokens.saturating_add(more.cache_read);
    sum.cache_write_tokens = sum.cache_write_tokens.saturating_add(more.cache_write);
}
