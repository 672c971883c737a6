//! The trait of everything that writes summaries.

use async_trait::async_trait;

use crate::error::Error;
use crate::request::{Request, SummaryReply};

/// Who answers a request for a summary.
#[async_trait]
pub trait Summarizer: Send + Sync {
    /// Asks once for a summary, retries of passing failures included, and answers by the request's
    /// deadline. Nothing is shortened here: that is [`summarize_with_retries`](crate::summarize_with_retries).
    async fn summarize(&self, request: &Request) -> Result<SummaryReply, Error>;
}

#[async_trait]
impl<S: Summarizer + ?Sized> Summarizer for std::sync::Arc<S> {
    async fn summarize(&self, request: &Request) -> Result<SummaryReply, Error> {
        (**self).summarize(request).await
    }
}
