//! A summarizer that redacts secrets in requests and replies.

use async_trait::async_trait;

use crate::error::Error;
use crate::redact::redact;
use crate::request::{ChatMessage, SummaryReply, SummaryRequest};
use crate::summarizer::Summarizer;

/// A summarizer that never receives a secret. The reply is redacted as well, because a model may
/// join parts of a secret.
#[derive(Clone, Debug)]
pub struct RedactingSummarizer<S>(pub S);

#[async_trait]
impl<S: Summarizer> Summarizer for RedactingSummarizer<S> {
    async fn summarize(&self, request: &SummaryRequest) -> Result<SummaryReply, Error> {
        let mut count = 0;
        let mut clean = |text: &str| {
            let redacted = redact(text);
            count += redacted.count;
            redacted.text.into_owned()
        };
        let asked = SummaryRequest {
            purpose: request.purpose,
            conversation: request.conversation.clone(),
            model: request.model.clone(),
            system: clean(&request.system),
            turns: request
                .turns
                .iter()
                .map(|turn| ChatMessage {
                    role: turn.role,
                    text: clean(&turn.text),
                })
                .collect(),
            instruction: clean(&request.instruction),
            max_output_tokens: request.max_output_tokens,
            deadline: request.deadline,
        };
        if count > 0 {
            tracing::debug!(count, "redacted secrets in a summary request");
        }
        let mut reply = self.0.summarize(&asked).await?;
        reply.text = redact(&reply.text).text.into_owned();
        Ok(reply)
    }
}
