//! The reasons for a page that cannot be shown.

use http::StatusCode;
use tonic::{Code, Status};

/// The reason for which a page cannot be shown.
#[derive(Debug)]
pub(crate) enum PageError {
    /// A call failed.
    Call(Status),
    /// No page has the path.
    NoPage,
    /// The host name of the request could belong to the page of another site.
    ForeignHost,
    /// The request cannot be read. The text says what is wrong with it.
    Input(&'static str),
}

impl From<Status> for PageError {
    fn from(status: Status) -> Self {
        Self::Call(status)
    }
}

impl PageError {
    /// Returns true if the person has to sign in first.
    pub(crate) fn needs_sign_in(&self) -> bool {
        matches!(self, Self::Call(status) if status.code() == Code::Unauthenticated)
    }

    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::NoPage => StatusCode::NOT_FOUND,
            Self::ForeignHost => StatusCode::FORBIDDEN,
            Self::Input(_) => StatusCode::BAD_REQUEST,
            Self::Call(status) => match status.code() {
                Code::Unauthenticated => StatusCode::UNAUTHORIZED,
                Code::PermissionDenied => StatusCode::FORBIDDEN,
                Code::NotFound => StatusCode::NOT_FOUND,
                Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => {
                    StatusCode::BAD_REQUEST
                }
                Code::Aborted | Code::AlreadyExists => StatusCode::CONFLICT,
                Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
                Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
                Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
                _ => StatusCode::INTERNAL_SERVER_ERROR,
            },
        }
    }

    /// Returns what failed and what to do.
    pub(crate) fn message(&self) -> &str {
        match self {
            Self::Call(status) => status.message(),
            Self::NoPage => "The inspector has no page with this address.",
            Self::ForeignHost => {
                "Without authentication, the inspector accepts only localhost or an IP address as the host of its URL. Open \
                 it by one of these, or turn on authentication."
            }
            Self::Input(problem) => problem,
        }
    }
}
