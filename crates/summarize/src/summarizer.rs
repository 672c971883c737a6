//! The trait of all summarizers.

use async_trait::async_trait;

use crate::error::Error;
use crate::request::{SummaryReply, SummaryRequest};

/// A client that writes summaries.
#[async_trait]
pub trait Summarizer: Send + Sync {
    /// Requests a summary, including retries of transient failures, and returns by the request's
    /// deadline. Never shortens the prompt: see
    /// [`summarize_with_retries`](crate::summarize_with_retries).
    async fn summarize(&self, request: &SummaryRequest) -> Result<SummaryReply, Error>;
}

#[async_trait]
impl<S: Summarizer + ?Sized> Summarizer for std::sync::Arc<S> {
    async fn summarize(&self, request: &SummaryRequest) -> Result<SummaryReply, Error> {
        (**self).summarize(request).await
    }
}
