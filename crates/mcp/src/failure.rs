//! Failed calls: the texts for a model, and the errors of the protocol.

use rmcp::ErrorData;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::scope::Scope;
use crate::sessions::LIST_SESSIONS;

const SESSION_NOT_FOUND: &str = "SESSION_NOT_FOUND";

/// The reason why a tool returns no result.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ToolFailure {
    /// No tool has this name, so the request is invalid.
    UnknownTool,
    /// The model reads this text, and can correct its call.
    Reported(String),
}

impl ToolFailure {
    pub(crate) fn reported(text: impl Into<String>) -> Self {
        Self::Reported(text.into())
    }

    /// Creates the failure of a call of the contract.
    pub(crate) fn of(status: &Status, scope: &Scope) -> Self {
        Self::Reported(text(status, scope))
    }
}

/// Returns the text of a status with its reason, and the next step if the session does not exist.
pub(crate) fn text(status: &Status, scope: &Scope) -> String {
    let info = status.get_details_error_info();
    let reason = info.as_ref().map_or("", |info| info.reason.as_str());
    if reason == SESSION_NOT_FOUND {
        let name = info.as_ref().and_then(|info| info.metadata.get("session"));
        let name = name.map_or("", String::as_str);
        // With a fixed session, the model has no argument to correct, so the text addresses the operator.
        let next = if scope.fixed().is_some() {
            "The configuration of this MCP server names it: correct the name there, or append the first message"
                .to_owned()
        } else {
            format!("{LIST_SESSIONS} returns the sessions of a project")
        };
        return format!("The session {name} does not exist ({reason}). {next}.");
    }
    let message = status.message();
    if reason.is_empty() {
        format!("The call failed: {message}.")
    } else {
        format!("The call failed: {message} ({reason}).")
    }
}

/// Returns the error of the protocol for a request that is no call of a tool.
pub(crate) fn protocol_error(status: &Status, scope: &Scope) -> ErrorData {
    let text = text(status, scope);
    match status.code() {
        Code::NotFound => ErrorData::resource_not_found(text, None),
        Code::InvalidArgument => ErrorData::invalid_params(text, None),
        Code::Unauthenticated | Code::PermissionDenied => ErrorData::invalid_request(text, None),
        _ => ErrorData::internal_error(text, None),
    }
}

#[cfg(test)]
mod tests {
    use tonic_types::ErrorDetails;

    use super::*;

    #[test]
    fn a_missing_session_has_a_next_step() {
        let metadata = [("session".to_owned(), "projects/p/sessions/s".to_owned())];
        let details = ErrorDetails::with_error_info(SESSION_NOT_FOUND, "palimpsest", metadata);
        let status = Status::with_error_details(Code::NotFound, "no", details);
        let fixed = Scope::session("p", "projects/p/sessions/s");
        assert_eq!(
            text(&status, &fixed),
            "The session projects/p/sessions/s does not exist (SESSION_NOT_FOUND). The configuration of this MCP \
             server names it: correct the name there, or append the first message."
        );
        assert!(text(&status, &Scope::project("p")).contains("ListSessions returns"));
    }
}
