//! A file that is brought in whole or not at all: which of its lines was refused, and how what had begun is
//! taken back.

use palimpsest_proto::context::v1::DeleteSessionRequest;
use palimpsest_server::convert;
use palimpsest_transcripts::import::{ImportStep, Imported};
use tonic::Status;

use crate::client::{Clients, said};

/// The messages that a server cannot be told in just the way that it had them.
pub(super) fn unsaid(imported: &Imported<'_>) -> Vec<String> {
    let steps = imported.sessions.iter().flat_map(|session| &session.steps);
    let messages = steps.filter_map(|step| match step {
        ImportStep::Message(message) => Some(message),
        ImportStep::Compacted(compaction) => Some(&compaction.summary),
        ImportStep::Rewind(_) | ImportStep::Removed { .. } => None,
    });
    let unsaid = messages.filter(|message| {
        let whole = message.decoded.as_deref();
        whole.is_some_and(|whole| !convert::message_input(whole).1)
    });
    let what = "its content comes in, and what its provider wrote beside it not in the same words";
    unsaid
        .map(|message| format!("line {}: {what}", message.line))
        .collect()
}

/// What a server said of a batch of lines; of one of them, when it names one.
pub(super) fn refusal(lines: &[usize], status: &Status) -> String {
    // The sentence begins with the field that it is about.
    let index = status.message().strip_prefix("messages[");
    let index = index.and_then(|rest| rest.split_once(']')?.0.parse::<usize>().ok());
    let said = said(status);
    match (index.and_then(|index| lines.get(index)), lines) {
        (Some(line), _) | (None, [line]) => format!("line {line}: {said}"),
        (None, [first, .., last]) => format!("lines {first} to {last}: {said}"),
        (None, []) => said.to_string(),
    }
}

/// Deletes a session that was made for a file that cannot be brought in whole; says what is left.
pub(super) async fn undo(clients: &mut Clients, name: &str, is_new: bool, why: &str) -> String {
    if !is_new {
        return format!("{why}; {name} was there before, and has the lines before that one now");
    }
    let request = DeleteSessionRequest {
        session: name.to_owned(),
        ..DeleteSessionRequest::default()
    };
    match clients.sessions.delete_session(request).await {
        Ok(_) => format!("nothing of it was brought in: {why}"),
        Err(status) => {
            let status = said(&status);
            format!("{why}; delete {name}, which holds a part of it: {status}")
        }
    }
}
