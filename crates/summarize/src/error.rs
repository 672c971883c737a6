//! Why there is no summary, as far as a caller does something different about it.

use std::time::Duration;

use crate::fault::Fault;
use crate::overflow::PromptTooLong;

/// Why a model gave no summary. The texts complete "failed to summarise: …", and never repeat content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The provider is down, overloaded or out of reach, and stayed so for all retries that the
    /// deadline allowed. Another endpoint may answer.
    #[error("the model provider cannot answer now ({fault}); try again{}, or use another endpoint", later(*retry_after))]
    Unavailable {
        /// When the provider says that it can be asked again.
        retry_after: Option<Duration>,
        /// What it said.
        fault: Fault,
    },
    /// The prompt does not fit into the model's window.
    #[error("{0}; drop the oldest rounds, or use a model with a larger window")]
    PromptTooLong(PromptTooLong),
    /// The model, or a filter before it, declined and wrote nothing.
    #[error("the model declined to answer ({fault}); use another model, or the extractive summary")]
    Refused {
        /// What the provider said.
        fault: Fault,
    },
    /// The credentials are missing, wrong, not enough, or the account has no credit left.
    #[error(
        "the model provider did not accept the credentials ({fault}); check the key, what it may do, and the account's credit"
    )]
    Auth {
        /// What the provider said.
        fault: Fault,
    },
    /// The provider does not understand the request: a setting is wrong.
    #[error(
        "the model provider did not accept the request ({fault}); check the base URL, the model's name and the output limit"
    )]
    BadRequest {
        /// What the provider said.
        fault: Fault,
    },
    /// No answer came in time.
    #[error(
        "no answer came within {} s; allow more time, ask for less output, or use a faster model",
        .after.as_secs_f32()
    )]
    Timeout {
        /// How long the last attempt had.
        after: Duration,
    },
    /// The model answered without any text.
    #[error(
        "the model answered without text; ask again, with a higher output limit if the model reasons first"
    )]
    Empty,
}

impl Error {
    /// A name for telemetry and for the reports of failed attempts.
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
            fault: Fault::here(detail),
        }
    }

    pub(crate) fn auth(detail: impl Into<String>) -> Self {
        Self::Auth {
            fault: Fault::here(detail),
        }
    }
}

fn later(retry_after: Option<Duration>) -> String {
    retry_after.map_or_else(
        || " later".to_owned(),
        |wait| format!(" in {} s", wait.as_secs_f32().ceil()),
    )
}
