//! The tool that lists sessions, for clients without a fixed session.

use std::fmt::Write as _;

use palimpsest_proto::context::v1::{ListSessionsRequest, ListSessionsResponse, Session};
use rmcp::model::{JsonObject, Tool};
use serde::Deserialize;
use serde_json::json;
use tonic::Status;

use crate::failure::ToolFailure;
use crate::scope::Scope;
use crate::server::Clients;
use crate::tools::{parse, reads};

/// The tool that lists sessions.
pub(crate) const LIST_SESSIONS: &str = "ListSessions";
/// The default and the maximum number of sessions in an answer.
const DEFAULT_SESSIONS: u32 = 20;
const MAX_SESSIONS: u32 = 100;
/// The maximum number of characters of a title in an answer.
const TITLE_CHARS: usize = 120;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    max_sessions: Option<u32>,
    #[serde(default)]
    page_token: String,
}

/// Returns the definition of the tool.
pub(crate) fn tool(scope: &Scope) -> Tool {
    let schema = json!({
        "type": "object",
        "properties": {
            "max_sessions": {
                "type": "integer", "minimum": 1, "maximum": MAX_SESSIONS,
                "description": format!("The maximum number of sessions. Default: {DEFAULT_SESSIONS}.")
            },
            "page_token": {"type": "string", "description": "The token at the end of the previous answer."}
        },
        "additionalProperties": false
    });
    let description = format!(
        "Lists the sessions of {}, latest first: the name, the time of the last change, the number of messages, and \
         the title or the first prompt. The other tools take the name.",
        scope.parent()
    );
    let schema = schema.as_object().cloned().unwrap_or_default();
    Tool::new(LIST_SESSIONS, description, schema).with_annotations(reads())
}

/// Runs the tool.
pub(crate) async fn call(
    clients: &Clients,
    arguments: JsonObject,
    scope: &Scope,
) -> Result<String, ToolFailure> {
    let input: Input = parse(arguments)?;
    // Models ignore the limits of a schema, so the number is corrected instead of rejected.
    let count = input.max_sessions.unwrap_or(DEFAULT_SESSIONS);
    let page = page(
        clients,
        scope,
        count.clamp(1, MAX_SESSIONS),
        input.page_token,
    )
    .await;
    let page = page.map_err(|status| ToolFailure::of(&status, scope))?;
    if page.sessions.is_empty() {
        return Ok(format!("{} has no sessions.", scope.parent()));
    }
    let mut text = String::new();
    for session in &page.sessions {
        // The text needs no cap: at most 100 lines, with names and cut titles.
        line(session, &mut text);
    }
    if !page.next_page_token.is_empty() {
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "[more sessions: ask again with page_token \"{}\"]",
            page.next_page_token
        );
    }
    Ok(text)
}

/// Returns a page of the sessions of a project, latest first.
pub(crate) async fn page(
    clients: &Clients,
    scope: &Scope,
    count: u32,
    page_token: String,
) -> Result<ListSessionsResponse, Status> {
    let request = ListSessionsRequest {
        parent: scope.parent(),
        page_size: count,
        page_token,
        ..ListSessionsRequest::default()
    };
    Ok(clients
        .sessions()
        .list_sessions(request)
        .await?
        .into_inner())
}

fn line(session: &Session, out: &mut String) {
    let title = if session.title.is_empty() {
        &session.first_prompt
    } else {
        &session.title
    };
    // A title is one line: a line break in it could look like another session.
    let title: String = title
        .chars()
        .take(TITLE_CHARS)
        .map(|it| if it.is_control() { ' ' } else { it })
        .collect();
    let messages = session.counts.unwrap_or_default().messages;
    let changed = session.update_time.unwrap_or_default();
    let _ = writeln!(
        out,
        "{} ({changed}, {messages} messages): {title}",
        session.name
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_one_short_line() {
        let session = Session {
            name: "projects/p/sessions/s".to_owned(),
            first_prompt: "a\nprojects/p/sessions/t".repeat(50),
            ..Session::default()
        };
        let mut text = String::new();
        line(&session, &mut text);
        assert_eq!(text.lines().count(), 1);
        assert!(
            text.starts_with(
                "projects/p/sessions/s (1970-01-01T00:00:00Z, 0 messages): a projects"
            )
        );
        assert!(text.chars().count() < 200);
    }
}
