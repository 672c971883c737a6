//! The interface between the gateway and the context of sessions.

use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;

use super::reading::{ResponseApi, ResponseEnd, ResponseSummary};

/// The context of sessions, as the gateway uses it.
#[async_trait]
pub trait ContextPort: fmt::Debug + Send + Sync + 'static {
    /// Records a response. The agent gets the last event of the response after the record, or after
    /// `gateway.hold_timeout_ms`.
    async fn record(&self, response: RecordedResponse) -> Result<(), RecordError>;
}

/// A response of a provider to record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedResponse {
    /// The API of the response.
    pub api: ResponseApi,
    /// The end of the response.
    pub end: ResponseEnd,
    /// The JSON of the response, as the provider sends it without a stream.
    pub json: Bytes,
    /// Usage and stop reason of the response.
    pub summary: ResponseSummary,
}

/// The reason for a response that was not recorded. The text contains no content.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct RecordError(pub String);

/// A context without sessions: nothing is recorded.
#[derive(Debug, Clone, Copy)]
pub struct AbsentContext;

#[async_trait]
impl ContextPort for AbsentContext {
    async fn record(&self, _: RecordedResponse) -> Result<(), RecordError> {
        Ok(())
    }
}
