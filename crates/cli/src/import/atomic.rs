//! Import of a file completely or not at all: the line of a rejected message, and the removal of a partial session.

use palimpsest_proto::context::v1::DeleteSessionRequest;
use palimpsest_server::convert;
use palimpsest_transcripts::import::{ImportStep, Imported};
use tonic::Status;

use crate::client::{Clients, status_error};

/// Returns a defect for each message that the contract cannot express exactly.
pub(super) fn inexact_messages(imported: &Imported<'_>) -> Vec<String> {
    let steps = imported.sessions.iter().flat_map(|session| &session.steps);
    let messages = steps.filter_map(|step| match step {
        ImportStep::Message(message) => Some(message),
        ImportStep::Compacted(compaction) => Some(&compaction.summary),
        ImportStep::Rewind(_) | ImportStep::Removed { .. } => None,
    });
    // The flag is false if the format of the provider cannot represent some field of the message.
    let inexact = messages.filter(|message| {
        let whole = message.decoded.as_deref();
        whole.is_some_and(|whole| !convert::message_input(whole).1)
    });
    let defect = "the content is imported, but some fields of its provider change";
    inexact
        .map(|message| format!("line {}: {defect}", message.line))
        .collect()
}

/// Describes the rejection of a batch with its lines, or with the line of the message that the server names.
pub(super) fn describe_rejection(lines: &[usize], status: &Status) -> String {
    // The message of the server begins with the path of the rejected field.
    let index = status.message().strip_prefix("messages[");
    let index = index.and_then(|rest| rest.split_once(']')?.0.parse::<usize>().ok());
    let error = status_error(status);
    match (index.and_then(|index| lines.get(index)), lines) {
        (Some(line), _) | (None, [line]) => format!("line {line}: {error}"),
        (None, [first, .., last]) => format!("lines {first} to {last}: {error}"),
        (None, []) => error.to_string(),
    }
}

/// Deletes the session that a failed import created. Returns the failure with the state of the session.
pub(super) async fn undo(clients: &mut Clients, name: &str, is_new: bool, why: &str) -> String {
    // The session has content of its own, so it is not deleted.
    if !is_new {
        return format!(
            "{why}; {name} existed before the import and now contains the earlier lines of the file"
        );
    }
    let request = DeleteSessionRequest {
        session: name.to_owned(),
        ..DeleteSessionRequest::default()
    };
    match clients.sessions.delete_session(request).await {
        Ok(_) => format!("nothing was imported: {why}"),
        Err(status) => {
            let status = status_error(&status);
            format!(
                "{why}; {name} contains a part of the file and was not deleted ({status}): delete it"
            )
        }
    }
}
