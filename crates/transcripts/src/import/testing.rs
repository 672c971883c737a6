//! Descriptions of imported files for the tests of importers.

use palimpsest_core::ids::MessageId;
use palimpsest_core::message::Message;

use super::imported::{ImportStep, Imported};

/// Describes the steps of all sessions. `name` names a message by its id.
pub(super) fn steps(imported: &Imported<'_>, name: impl Fn(MessageId) -> String) -> Vec<String> {
    let names = |ids: &[MessageId]| -> String {
        let names: Vec<String> = ids.iter().map(|id| name(*id)).collect();
        names.join(" ")
    };
    let steps = imported.sessions.iter().flat_map(|session| &session.steps);
    let steps = steps.map(|step| match step {
        ImportStep::Message(message) => name(message.id.unwrap()),
        ImportStep::Rewind(to) => format!("back to {}", to.map_or("none".into(), &name)),
        ImportStep::Compacted(one) => format!("compacted, kept {}", names(&one.kept)),
        ImportStep::Removed { messages, .. } => format!("removed {}", names(messages)),
    });
    steps.collect()
}

/// Returns the line of a message in a file whose session has the id `00000000-0000-7000-8000-000000000000`.
pub(super) fn line_of(id: MessageId) -> String {
    let id = id.to_string();
    let line = usize::from_str_radix(&id[id.len() - 4..], 16).unwrap();
    line.to_string()
}

/// Decodes the messages of all sessions, without the summaries.
pub(super) fn decoded(imported: &Imported<'_>) -> Vec<Message> {
    let steps = imported.sessions.iter().flat_map(|session| &session.steps);
    let messages = steps.filter_map(|step| match step {
        ImportStep::Message(message) => Some(message.decode(message.id.unwrap()).unwrap()),
        _ => None,
    });
    messages.collect()
}
