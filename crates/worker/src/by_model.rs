//! The configured models as a writer of session memory.

use std::sync::Arc;

use async_trait::async_trait;
use palimpsest_engine::models::Models;
use palimpsest_summarize::{Purpose, StopReason, SummaryReply, SummaryRequest};
use tokio::time::Instant;

use crate::{MemoryPrompt, MemoryReply, MemoryWriteError, MemoryWriter};

/// Calls the models in order, as for any summary. The worker has already redacted secrets, because the extractive
/// fallback needs redaction too.
pub(crate) struct ModelMemoryWriter(pub(crate) Arc<Models>);

#[async_trait]
impl MemoryWriter for ModelMemoryWriter {
    async fn write(&self, ask: MemoryPrompt) -> Result<MemoryReply, MemoryWriteError> {
        let attempts = self
            .0
            .attempts(ask.model.as_deref(), ask.fallback_model.as_deref());
        let limits = self.0.limits();
        let mut failed = MemoryWriteError("no model is configured".to_owned());
        for attempt in attempts {
            // No caller waits for an update, so each attempt has the full time of a request.
            let request = SummaryRequest {
                purpose: Purpose::Memory,
                conversation: Some(ask.conversation.clone()),
                model: Some(attempt.model.clone().into()),
                system: ask.system.to_owned(),
                turns: Vec::new(),
                instruction: ask.prompt.clone(),
                // Providers reject a request above the model's limit.
                max_output_tokens: ask.max_output_tokens.min(limits.max_output_tokens).max(1),
                deadline: Instant::now() + limits.timeout,
            };
            match attempt.summarizer.summarize(&request).await {
                // A refusal is not retried with the same model. The next attempt uses the fallback.
                Ok(reply) if reply.stop == StopReason::Refusal => {
                    failed =
                        MemoryWriteError(format!("{} declined to keep the notes", attempt.model));
                }
                Ok(SummaryReply { text, stop, .. }) => {
                    return Ok(MemoryReply {
                        text,
                        truncated: stop == StopReason::MaxTokens,
                    });
                }
                Err(error) => failed = MemoryWriteError(error.to_string()),
            }
        }
        Err(failed)
    }
}
