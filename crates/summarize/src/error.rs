//! Errors of a summary request, distinguished by the reaction that they require.

use std::time::Duration;

use crate::overflow::PromptTooLong;
use crate::provider_error::ProviderError;

/// The reason why a model produced no summary. The texts complete "failed to summarise: …" and
/// contain no conversation text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The provider is down, overloaded or unreachable, and all retries before the deadline failed.
    /// Another endpoint may succeed.
    #[error("the model provider cannot answer now ({fault}); try again{}, or use another endpoint", later(*retry_after))]
    Unavailable {
        /// The wait that the provider requests.
        retry_after: Option<Duration>,
        /// The details of the failure.
        fault: ProviderError,
    },
    /// The prompt does not fit into the model's context window.
    #[error("{0}; drop the oldest rounds, or use a model with a larger window")]
    PromptTooLong(PromptTooLong),
    /// The model or a content filter refused and returned no text.
    #[error(
        "the model refused the request ({fault}); use another model, or the extractive summary"
    )]
    Refused {
        /// The details that the provider reported.
        fault: ProviderError,
    },
    /// The credentials are missing, invalid or insufficient, or the account has no credit.
    #[error(
        "the model provider rejected the credentials ({fault}); check the key, its permissions, and the account's credit"
    )]
    Auth {
        /// The details that the provider reported.
        fault: ProviderError,
    },
    /// The provider rejected the request, because a setting is wrong.
    #[error(
        "the model provider rejected the request ({fault}); check the base URL, the model's name and the output limit"
    )]
    BadRequest {
        /// The details that the provider reported.
        fault: ProviderError,
    },
    /// No answer arrived in time.
    #[error(
        "the model did not respond within {} s; allow more time, request less output, or use a faster model",
        .after.as_secs_f32()
    )]
    Timeout {
        /// The time limit of the last attempt.
        after: Duration,
    },
    /// The model answered without text.
    #[error(
        "the model returned no text; retry, with a higher output limit if the model reasons first"
    )]
    Empty,
}

impl Error {
    /// Returns the name for telemetry and for reports of failed attempts.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Unavailable { .. } => "unavailable",
            Self::PromptTooLong(_) => "prompt_too_long",
            Self::Refused { .. } => "refused",
            Self::Auth { .. } => "auth",
            Self::BadRequest { .. } => "bad_request",
            Self::Timeout { .. } => "timeout",
            Self::Empty => "empty",
        }
    }

    pub(crate) fn bad_request(detail: impl Into<String>) -> Self {
        Self::BadRequest {
            fault: ProviderError::local(detail),
        }
    }

    pub(crate) fn auth(detail: impl Into<String>) -> Self {
        Self::Auth {
            fault: ProviderError::local(detail),
        }
    }
}

fn later(retry_after: Option<Duration>) -> String {
    retry_after.map_or_else(
        || " later".to_owned(),
        |wait| format!(" in {} s", wait.as_secs_f32().ceil()),
    )
}
