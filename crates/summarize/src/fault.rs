//! The answer of a provider that refused, as far as it is reported.

use std::fmt;

/// What a provider said: enough to act upon, and nothing of the conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fault {
    /// The HTTP status, when there was an answer.
    pub status: Option<u16>,
    /// The provider's name for it: its error type or code.
    pub kind: Option<String>,
    /// Its words, or ours: short, without secrets, and left out when they repeat the conversation.
    pub said: Option<String>,
    /// The provider's id of the request, to ask it about.
    pub request_id: Option<String>,
}

impl Fault {
    pub(crate) fn here(detail: impl Into<String>) -> Self {
        Self {
            said: Some(detail.into()),
            ..Self::default()
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = self.status.map(|status| status.to_string());
        let id = self.request_id.as_ref().map(|id| format!("request {id}"));
        let parts = [status, self.kind.clone(), self.said.clone(), id];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        f.write_str(&parts.join(", "))
    }
}
