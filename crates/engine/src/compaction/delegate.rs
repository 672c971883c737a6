//! The request for the caller's model in a delegated compaction. It is derived from the log on every call, so it
//! can be returned again after a restart.

use std::sync::Arc;

use crate::sessions::{CommandOutcome, MissingSession, Transaction};
use bytes::Bytes;
use palimpsest_core::command::{AdvanceCompaction, Command, CompactionInput};
use palimpsest_core::compaction::{CompactionMachine, CompactionOutcome, StartedCompaction};
use palimpsest_core::event::Event;
use palimpsest_core::ids::{CompactionKey, SessionKey, Timestamp};
use palimpsest_core::session::{DroppedContent, RequestStamp, RunningCompaction, Session};
use palimpsest_core::summary::SYSTEM;
use palimpsest_core::view::Provider;
use palimpsest_summarize::{
    ApiFormat, ChatMessage, Purpose, Round, SummaryRequest, redacted_request, request_body, turns,
};
use tokio::time::Instant;

use super::prompt::SummaryPrompt;
use super::run::{DriveUntil, Driver};
use super::token::{DelegationOptions, DelegationToken, MessageForm};
use super::{CompactionError, hooks, repeat};
use crate::Engine;

/// The request that the caller sends to its own model.
#[derive(Debug)]
pub struct DelegatedRequest {
    /// The token that the caller returns with the summary.
    pub token: Vec<u8>,
    /// The deadline of the compaction.
    pub expires: Timestamp,
    /// The request itself.
    pub body: DelegatedBody,
    /// The estimated size of the request in tokens.
    pub input_tokens: u64,
}

/// The body of a delegated request.
#[derive(Debug)]
pub enum DelegatedBody {
    /// The JSON body in the provider's format.
    Json(Bytes),
    /// The parts of the request in the typed form.
    Typed {
        /// The system prompt.
        system: String,
        /// The conversation, and the instruction at its end.
        turns: Vec<ChatMessage>,
        /// The maximum output in tokens.
        max_output_tokens: u32,
    },
}

/// Returns the request of a running delegated compaction, or `None` if it has ended.
///
/// If the conversation exceeds the model's window, the oldest rounds are removed from the request, and the removal
/// is committed.
pub async fn request(
    engine: &Engine,
    key: &SessionKey,
    which: CompactionKey,
    options: DelegationOptions,
) -> Result<Option<DelegatedRequest>, CompactionError> {
    // The request contains messages that may not be in memory, so the whole session is loaded.
    let session = engine.sessions.read_full(key, Session::clone).await?;
    let Some(mut started) = find_delegated(session, which) else {
        return Ok(None);
    };
    // The process that started the compaction may have stopped before it called the hook.
    let mut machine = CompactionMachine::resume(started.clone());
    let mut driver = Driver::new(engine, key);
    let render = |_: &Session, ended: &CompactionOutcome| Ok(ended.clone());
    let resumed = Box::pin(driver.drive(&mut machine, DriveUntil::End, render)).await?;
    if let Some((_, Event::CompactionFailed(failed))) =
        resumed.as_ref().and_then(CompactionOutcome::event)
    {
        return Err(hooks::refusal(&failed.hooks).unwrap_or_else(CompactionError::content_lost));
    }
    // The hook may have added instructions.
    let Some(running) = repeat::running(engine, key, which).await? else {
        return Ok(None);
    };
    started.running = running.clone();
    let question = SummaryPrompt::of(&started)
        .await
        .ok_or_else(CompactionError::content_lost)?;
    let output = max_output(&started.session, options);
    let room = question.max_input_tokens(options.window_tokens, output.into());
    // Rounds are dropped here at most once. Later reductions follow the provider's `prompt_too_long` in
    // `CommitSummary`.
    let over = match &running.dropped {
        None => question.rounds.rounds_over(room),
        Some(_) => 0,
    };
    let running = match question.rounds.describe_dropped(over) {
        None => running,
        Some(dropped) => {
            let stamps = (None, None);
            // The removal is committed before the reply, so `CommitSummary` and later requests leave out the same
            // rounds.
            shorten(engine, key, (&running, dropped), stamps).await?;
            // The token below must name the new attempt, because `CommitSummary` rejects the tokens of earlier ones.
            RunningCompaction {
                attempt: running.attempt + 1,
                dropped: Some(dropped),
                ..running
            }
        }
    };
    let redacts = engine.redacts(&started.session);
    let key = key.clone();
    // Redaction and JSON encoding of a whole conversation would block the async runtime.
    let written = tokio::task::spawn_blocking(move || {
        write(&key, &running, &question, options, output, redacts)
    });
    Ok(Some(
        written.await.map_err(|_| CompactionError::content_lost())?,
    ))
}

/// Returns the running delegated compaction with this key.
pub(super) fn find_delegated(session: Session, which: CompactionKey) -> Option<StartedCompaction> {
    let running = repeat::find_running(&session, which);
    running.filter(|running| running.is_delegated())?;
    StartedCompaction::of(Arc::new(session))
}

/// Commits the removal of the oldest rounds from the request.
pub(super) async fn shorten(
    engine: &Engine,
    key: &SessionKey,
    (running, dropped): (&RunningCompaction, DroppedContent),
    (request, commit): (Option<RequestStamp>, Option<RequestStamp>),
) -> Result<CommandOutcome, CompactionError> {
    let shorten = |transaction: &mut Transaction<'_>| {
        let shortened = CompactionInput::Shortened(dropped);
        transaction.run(Command::AdvanceCompaction(AdvanceCompaction {
            attempt: running.attempt,
            request: request.clone(),
            commit: commit.clone(),
            ..AdvanceCompaction::new(running.key, shortened)
        }))
    };
    let (sessions, missing) = (&engine.sessions, &MissingSession::Reject);
    let done = sessions.write(key, missing, shorten, |_, outcome| Ok(*outcome));
    Ok(done.await?)
}

fn max_output(session: &Session, options: DelegationOptions) -> u32 {
    // The output may use at most a quarter of the window, so that a small window keeps space for the input.
    let most = u32::try_from(options.window_tokens / 4).unwrap_or(u32::MAX);
    let most = most.min(options.max_output_tokens);
    session.policy().summary.max_output_tokens.min(most).max(1)
}

fn write(
    key: &SessionKey,
    running: &RunningCompaction,
    question: &SummaryPrompt,
    options: DelegationOptions,
    output: u32,
    redacts: bool,
) -> DelegatedRequest {
    // Rounds that were dropped before stay out of every later request.
    let gone = running.dropped.map_or(0, |dropped| dropped.rounds as usize);
    let left: &[Round] = question.rounds.all.get(gone..).unwrap_or_default();
    let request = SummaryRequest {
        purpose: Purpose::Compaction,
        conversation: None,
        model: None,
        system: SYSTEM.to_owned(),
        turns: turns(left, gone > 0),
        instruction: question.instruction.clone(),
        max_output_tokens: output,
        // The request is only converted to a body, which contains no deadline.
        deadline: Instant::now(),
    };
    // Secrets are redacted before the request leaves the engine.
    let request = if redacts {
        redacted_request(&request)
    } else {
        request
    };
    let body = match options.form {
        MessageForm::Json if options.provider.is_anthropic() => {
            DelegatedBody::Json(request_body(ApiFormat::Anthropic, &request))
        }
        MessageForm::Json if options.provider == Provider::OpenAiResponses => {
            DelegatedBody::Json(request_body(ApiFormat::OpenAiResponses, &request))
        }
        MessageForm::Json => DelegatedBody::Json(request_body(ApiFormat::OpenAi, &request)),
        MessageForm::Typed => DelegatedBody::Typed {
            turns: [request.turns, vec![ChatMessage::user(request.instruction)]].concat(),
            system: request.system,
            max_output_tokens: output,
        },
    };
    let tokens: u64 = left.iter().map(|round| round.tokens).sum();
    DelegatedRequest {
        token: DelegationToken::of(key, running, options).write(),
        expires: running.deadline,
        body,
        input_tokens: tokens + question.overhead(),
    }
}
