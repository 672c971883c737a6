//! The reported part of a provider's error response.

use std::fmt;

/// The details of a failure. They are sufficient for a reaction and contain no conversation text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProviderError {
    /// The HTTP status, if a response was received.
    pub status: Option<u16>,
    /// The provider's error type or code.
    pub kind: Option<String>,
    /// The error message of the provider or of this crate. It is short, contains no secrets, and is
    /// omitted if it repeats the conversation.
    pub message: Option<String>,
    /// The provider's request id, for support requests.
    pub request_id: Option<String>,
}

impl ProviderError {
    pub(crate) fn local(detail: impl Into<String>) -> Self {
        Self {
            message: Some(detail.into()),
            ..Self::default()
        }
    }
}

impl fmt::Display for ProviderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = self.status.map(|status| status.to_string());
        let id = self.request_id.as_ref().map(|id| format!("request {id}"));
        let parts = [status, self.kind.clone(), self.message.clone(), id];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        f.write_str(&parts.join(", "))
    }
}
