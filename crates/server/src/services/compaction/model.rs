//! A summary by a model: what it is told, who is asked, and whether its answer is taken.

use std::sync::Arc;
use std::time::Duration;

use palimpsest_core::event::WhyFailed;
use palimpsest_core::ids::SessionKey;
use palimpsest_core::levels::compaction::{Told, told};
use palimpsest_core::message::{Block, Kind, Role, Usage};
use palimpsest_core::policy::SummaryPolicy;
use palimpsest_core::session::{Session, Strategy};
use palimpsest_core::summary::{
    Document, Extra, Refused, SYSTEM, accept, standing_instructions, summary_request,
};
use palimpsest_core::tokens::estimate_text;
use palimpsest_summarize::{
    self as summarize, ChunkSettings, Error, Place, Purpose, Redacting, Reply, Request, Round,
    ShortenSettings, Stop, Summarizer, Turn, redact, summarize_in_chunks, summarize_with_retries,
};
use tokio::time::Instant;

use super::super::Service;
use super::summarise::Summarised;
use super::{Job, NO_USAGE, Wanted};
use crate::summarizer::{Attempt, Models};

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
) -> Result<Summarised, Failure> {
    let session = job.session.clone();
    let leaving = job.leaving.clone();
    let read = tokio::task::spawn_blocking(move || {
        let told = told(&session, &leaving).map_err(|_| ())?;
        Ok::<_, ()>((rounds(told), standing(&session)))
    });
    let Ok(Ok((rounds, standing))) = read.await else {
        let detail = "the messages could not be read; compact again";
        return Err((WhyFailed::ModelUnavailable, detail.to_owned()));
    };
    let policy = &job.session.policy().summary;
    let extra = Extra {
        standing: standing.as_deref(),
        hook: None,
        custom: wanted.instructions.as_deref(),
    };
    let question = Question {
        policy,
        rounds: &rounds,
        instruction: summary_request(policy.style, extra),
        window: models.window_tokens,
        most: models.max_output_tokens,
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
        match question
            .put(attempt, Instant::now() + left, extracted, &mut usage)
            .await
        {
            Ok((text, model)) => {
                return Ok(Summarised {
                    text,
                    strategy: Strategy::Model,
                    model,
                    usage,
                });
            }
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
    left.saturating_sub(TO_FINISH.min(whole / 10))
}

/// What every model is asked.
struct Question<'a> {
    policy: &'a SummaryPolicy,
    rounds: &'a [Round],
    instruction: String,
    window: u64,
    /// What a model can write at most.
    most: u32,
}

impl Question<'_> {
    /// Asks one model, and reads its answer: the summary and the model that wrote it.
    async fn put(
        &self,
        attempt: Attempt,
        deadline: Instant,
        extracted: &Document,
        usage: &mut Usage,
    ) -> Result<(String, String), Failure> {
        let summarizer: Arc<dyn Summarizer> = if self.policy.redact_secrets {
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
            instruction: self.instruction.clone(),
            max_output_tokens: self
                .policy
                .max_output_tokens
                .min(self.most)
                .min(most)
                .max(1),
            deadline,
        };
        let reply = self.send(summarizer.as_ref(), &request).await;
        let reply = reply.map_err(|error| (why(&error, deadline), error.to_string()))?;
        add(usage, reply.usage);
        if reply.stop == Stop::Refused {
            return Err((WhyFailed::Refused, Refused::Refusal.to_string()));
        }
        let truncated = reply.stop == Stop::CutAtCap;
        let accepted = accept(&reply.text, truncated, extracted);
        let accepted = accepted.map_err(|refused| (not_taken(refused), refused.to_string()))?;
        // What filled the gaps has not been looked through yet.
        let text = if self.policy.redact_secrets {
            redact(&accepted.text).text.into_owned()
        } else {
            accepted.text
        };
        Ok((text, reply.model))
    }

    /// In one request where everything fits into one, else piece by piece.
    async fn send(&self, summarizer: &dyn Summarizer, request: &Request) -> Result<Reply, Error> {
        let overhead = estimate_text(SYSTEM) + estimate_text(&self.instruction);
        let output = u64::from(request.max_output_tokens);
        let free = self.window.saturating_sub(output + u64::from(overhead));
        let all = self.rounds.iter().map(|round| round.tokens);
        // A tenth as a margin: the counts are estimates.
        if all.sum::<u64>() <= free - free / 10 {
            let settings = ShortenSettings {
                max_retries: self.policy.max_retries,
                // Of a hundred thousand: in thousandths of a percent.
                drop_millipercent: u32::try_from(self.policy.retry_drop_percent.of(100_000))
                    .unwrap_or(u32::MAX),
            };
            let asked = summarize_with_retries(summarizer, request, self.rounds, settings);
            return Ok(asked.await?.reply);
        }
        let settings = ChunkSettings::for_window(self.window, output, overhead.into());
        let instruct = |place: Place| match place {
            Place::Only | Place::Last => self.instruction.clone(),
            Place::First | Place::Next => format!(
                "More of the conversation follows in later parts; your summary of it so far is \
                 handed on with the next one.\n\n{}",
                self.instruction
            ),
        };
        let asked = summarize_in_chunks(summarizer, request, self.rounds, settings, &instruct);
        Ok(asked.await?.reply)
    }
}

/// Rounds that are kept whole or dropped whole: what the model says, with the results that answer it.
fn rounds(told: Vec<Told>) -> Vec<Round> {
    let mut rounds: Vec<Round> = Vec::new();
    for one in told {
        let turn = match one.role {
            Role::Assistant => Turn::assistant(one.text),
            _ => Turn::user(one.text),
        };
        let tokens = u64::from(one.tokens);
        match rounds.last_mut().filter(|_| one.answers) {
            Some(round) => {
                round.turns.push(turn);
                round.tokens += tokens;
            }
            None => rounds.push(Round {
                turns: vec![turn],
                tokens,
            }),
        }
    }
    rounds
}

/// The policy's standing instructions, else those that stand under a heading of their own in what people
/// and their machinery say in the view. What tools returned is no instruction, and the latest holds.
fn standing(session: &Session) -> Option<String> {
    if let Some(instructions) = &session.policy().summary.instructions {
        return Some(instructions.to_string());
    }
    let entries = session.transcript().entries();
    let visible = entries.filter(|(at, entry)| {
        let from_people = entry.role != Role::Assistant && entry.kind != Kind::Summary;
        from_people && session.transcript().is_visible(*at)
    });
    let mut found = None;
    for message in visible.filter_map(|(_, entry)| entry.content.as_ref()) {
        for block in &message.blocks {
            if let Block::Text { text, .. } = block {
                found = standing_instructions(text).or(found);
            }
        }
    }
    found
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

const fn not_taken(refused: Refused) -> WhyFailed {
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

#[cfg(test)]
mod tests {
    use palimpsest_core::levels::compaction::Told;
    use palimpsest_core::message::Role;

    use super::rounds;

    #[test]
    fn a_result_stays_with_its_call() {
        let one = |role, text: &str, answers| Told {
            role,
            text: text.to_owned(),
            answers,
            tokens: 1,
        };
        let told = vec![
            one(Role::User, "fix it", false),
            one(Role::Assistant, "[called read]", false),
            one(Role::User, "[the tool returned] a", true),
            one(Role::User, "and now", false),
            one(Role::Assistant, "done", false),
        ];
        let rounds = rounds(told);
        let sizes: Vec<_> = rounds
            .iter()
            .map(|round| (round.turns.len(), round.tokens))
            .collect();
        assert_eq!(sizes, [(1, 1), (2, 2), (1, 1), (1, 1)]);
    }
}
