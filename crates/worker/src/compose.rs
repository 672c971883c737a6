//! Composition of the next content of session memory from the previous content and new messages. A model writes it, or
//! a fallback without a model. Limits and redaction are applied to the result.

use std::sync::Arc;

use palimpsest_core::ids::{Ordinal, SessionKey};
use palimpsest_core::memory::{MemoryContent, apply_sections};
use palimpsest_core::message::Message;
use palimpsest_core::policy::{SessionMemoryPolicy, SummaryPolicy};
use palimpsest_core::session::Author;
use palimpsest_core::summary::{ExtraInstructions, SYSTEM, memory_request};
use palimpsest_facts::memory::{update, with_names};
use palimpsest_facts::{Facts, Redact, redact_message};
use tokio::task::spawn_blocking;

use crate::host::{HostError, MemoryJob};
use crate::transcript::PromptTranscript;
use crate::worker::WorkerContext;
use crate::writer::{MemoryPrompt, MemoryWriter};

/// The input of an update, taken from the new messages. Its size is bounded for any number of messages.
#[derive(Debug, Default)]
pub(crate) struct UpdateInput {
    facts: Facts,
    transcript: Option<PromptTranscript>,
}

/// A candidate for the next version.
#[derive(Debug)]
pub(crate) struct MemoryDraft {
    pub(crate) content: MemoryContent,
    pub(crate) author: Author,
    /// The error of the model, if a model should have written the text and failed.
    pub(crate) model_failed: Option<String>,
}

impl MemoryDraft {
    /// Returns true if a model was called for this draft.
    pub(crate) fn used_model(&self) -> bool {
        self.author == Author::Model || self.model_failed.is_some()
    }
}

/// Returns the model, if one is configured and the policy enables it.
fn writer<'a>(
    shared: &'a WorkerContext,
    policy: &SummaryPolicy,
) -> Option<&'a Arc<dyn MemoryWriter>> {
    shared
        .writer
        .as_ref()
        .filter(|_| policy.use_for_session_memory)
}

pub(crate) fn redactor(shared: &WorkerContext, policy: &SummaryPolicy) -> Option<Redact> {
    shared.redact.filter(|_| policy.redact_secrets)
}

/// Reads the new messages page by page.
pub(crate) async fn read_new_messages(
    shared: &WorkerContext,
    key: &SessionKey,
    job: &MemoryJob,
    mut after: Option<Ordinal>,
) -> Result<UpdateInput, HostError> {
    let redact = redactor(shared, &job.summary);
    let mut notebook = UpdateInput {
        facts: Facts::default(),
        transcript: writer(shared, &job.summary).map(|_| PromptTranscript::default()),
    };
    let Some(to) = job.readable_through else {
        return Ok(notebook);
    };
    loop {
        let page = shared
            .host
            .messages(key, after, to, shared.options.page_bytes);
        let page = page.await?;
        // Pages are processed one by one, so only one page is in memory.
        notebook = run_blocking_limited(shared, move || {
            for message in &page.messages {
                notebook.record(message, redact);
            }
            notebook
        })
        .await;
        let Some(next) = page.next else {
            return Ok(notebook);
        };
        after = Some(next);
    }
}

impl UpdateInput {
    fn record(&mut self, message: &Message, redact: Option<Redact>) {
        // Secrets are removed before anything is derived, so neither facts nor prompts contain them.
        let clean = redact.map(|redact| redact_message(message, redact));
        let message = clean.as_ref().unwrap_or(message);
        self.facts.record(message);
        if let Some(transcript) = &mut self.transcript {
            transcript.record(message);
        }
    }
}

/// Writes the next content. If the model fails, the content is derived from the facts alone.
pub(crate) async fn write(
    shared: &WorkerContext,
    (key, job): (&SessionKey, &MemoryJob),
    previous: &MemoryContent,
    notebook: &UpdateInput,
) -> MemoryDraft {
    let (redact, limits) = (redactor(shared, &job.summary), job.memory.clone());
    let mut model_failed = None;
    if let (Some(writer), Some(transcript)) = (writer(shared, &job.summary), &notebook.transcript) {
        match write_by_model(&**writer, (key, job), previous, &transcript.text()).await {
            Ok(content) => {
                let (previous, facts) = (previous.clone(), notebook.facts.clone());
                let content = run_blocking_limited(shared, move || {
                    finalize(&with_names(&content, &previous, &facts), redact, &limits)
                });
                return MemoryDraft {
                    content: content.await,
                    author: Author::Model,
                    model_failed,
                };
            }
            // A failed model does not fail the update: the content below is derived without a model.
            Err(why) => model_failed = Some(why),
        }
    }
    let (previous, facts) = (previous.clone(), notebook.facts.clone());
    let content = run_blocking_limited(shared, move || {
        finalize(&update(&previous, &facts), redact, &limits)
    });
    MemoryDraft {
        content: content.await,
        author: Author::Extractive,
        model_failed,
    }
}

async fn write_by_model(
    writer: &dyn MemoryWriter,
    (key, job): (&SessionKey, &MemoryJob),
    previous: &MemoryContent,
    messages: &str,
) -> Result<MemoryContent, String> {
    let document = previous.document();
    let policy = &job.summary;
    let extra = ExtraInstructions {
        standing: policy.instructions.as_deref(),
        ..ExtraInstructions::default()
    };
    let ask = MemoryPrompt {
        conversation: key.session.to_string(),
        model: policy.model.clone(),
        fallback_model: policy.fallback_model.clone(),
        system: SYSTEM,
        prompt: memory_request(&document, messages, job.memory.max_section_tokens, extra),
        max_output_tokens: policy.max_output_tokens,
    };
    let written = writer.write(ask).await.map_err(|error| error.to_string())?;
    let applied = apply_sections(&document, &written.text, written.truncated);
    let memory = applied.map_err(|error| error.to_string())?.memory;
    // Such a text is of no use, so the caller falls back to a text without a model.
    if !memory.is_ready() {
        return Err("the model's notes describe neither the task nor the current state".into());
    }
    // The lines that the model repeats stay facts, and its prose is kept as it is.
    Ok(previous.aligned(&memory))
}

/// Returns content as it is stored: redacted and within its limits.
pub(crate) fn finalize(
    content: &MemoryContent,
    redact: Option<Redact>,
    limits: &SessionMemoryPolicy,
) -> MemoryContent {
    let clean = redact.map(|redact| content.redacted(redact));
    let content = clean.as_ref().unwrap_or(content);
    content.fit(limits.max_section_tokens, limits.max_tokens)
}

/// Runs long computations on a blocking thread. The number of concurrent computations is limited, so calls in flight
/// have priority.
async fn run_blocking_limited<T: Send + 'static>(
    shared: &WorkerContext,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    // The semaphore is never closed.
    let _permit = shared.cores.acquire().await.ok();
    run_blocking(work).await
}

/// Runs a long computation on a blocking thread.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    match spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is shutting down, and this task ends with it.
            Err(_) => std::future::pending().await,
        },
    }
}
