//! Session memory as a tool and as a resource.

use palimpsest_proto::context::v1::{GetSessionMemoryRequest, SessionMemory};
use rmcp::model::{JsonObject, Resource, ResourceTemplate, Tool};
use serde::Deserialize;
use serde_json::json;
use tonic::Status;

use crate::failure::ToolFailure;
use crate::scope::Scope;
use crate::server::Clients;
use crate::tools::{cap, parse, reads, take_session, with_session};

/// The tool that reads session memory.
pub(crate) const READ_MEMORY: &str = "ReadSessionMemory";
/// The maximum size of an answer, in bytes. It is the default of the tools of the service.
const MAX_ANSWER_BYTES: usize = 50_000;

const SCHEME: &str = "palimpsest://";
const MEMORY: &str = "/memory";
pub(crate) const MEDIA_TYPE: &str = "text/markdown";
const DESCRIPTION: &str = "The running summary of a conversation: its task, files, errors, decisions and work log. The \
    summary can be shorter than the conversation by far.";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoInput {}

/// Returns the definition of the tool.
pub(crate) fn tool(scope: &Scope) -> Tool {
    let schema = json!({"type": "object", "properties": {}, "additionalProperties": false});
    let schema = schema.as_object().cloned().unwrap_or_default();
    let description = "Reads the session memory: the running summary of this conversation with its task, files, \
        errors, decisions and work log. Use it for an overview, and the other tools for the exact words.";
    Tool::new(READ_MEMORY, description, with_session(schema, scope)).with_annotations(reads())
}

/// Runs the tool.
pub(crate) async fn call(
    clients: &Clients,
    mut arguments: JsonObject,
    scope: &Scope,
) -> Result<String, ToolFailure> {
    let session = take_session(&mut arguments, scope)?;
    // The session was removed from the arguments, so any other argument is unknown and rejected.
    let NoInput {} = parse(arguments)?;
    let text = read(clients, session).await;
    text.map_err(|status| ToolFailure::of(&status, scope))
}

/// Returns the text of session memory, or a sentence if there is none yet.
pub(crate) async fn read(clients: &Clients, session: String) -> Result<String, Status> {
    let request = GetSessionMemoryRequest {
        session,
        ..GetSessionMemoryRequest::default()
    };
    let reply = clients.context().get_session_memory(request).await?;
    let SessionMemory { text, .. } = reply.into_inner().memory.unwrap_or_default();
    if text.is_empty() {
        return Ok(
            "This session has no session memory yet. The service writes it when the conversation is long enough."
                .to_owned(),
        );
    }
    Ok(cap(text, MAX_ANSWER_BYTES))
}

/// Returns the resource with the memory of a session.
pub(crate) fn resource(session: &str) -> Resource {
    Resource::new(
        format!("{SCHEME}{session}{MEMORY}"),
        format!("Session memory of {session}"),
    )
    .with_description(DESCRIPTION)
    .with_mime_type(MEDIA_TYPE)
}

/// Returns the template of all resources.
pub(crate) fn template() -> ResourceTemplate {
    ResourceTemplate::new(
        format!("{SCHEME}projects/{{project}}/sessions/{{session}}{MEMORY}"),
        "Session memory",
    )
    .with_description(DESCRIPTION)
    .with_mime_type(MEDIA_TYPE)
}

/// Returns the session whose memory a URI names.
pub(crate) fn session_of(uri: &str) -> Option<&str> {
    let name = uri.strip_prefix(SCHEME)?.strip_suffix(MEMORY)?;
    name.starts_with("projects/").then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_uri_of_a_resource_names_its_session() {
        let session = "projects/p/sessions/s";
        assert_eq!(session_of(&resource(session).uri), Some(session));
        for other in [
            "file:///memory",
            "palimpsest://memory",
            "palimpsest:///memory",
        ] {
            assert_eq!(session_of(other), None, "{other}");
        }
    }
}
