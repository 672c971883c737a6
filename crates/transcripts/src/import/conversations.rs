//! Importer for arrays of provider messages in several containers.

use std::borrow::Cow;

use palimpsest_core::view::Provider;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::imported::{
    ImportDefect, ImportStep, Imported, ImportedMessage, ImportedSession, lines,
};
use super::payload::to_payload;

/// The fields in which programs store the array.
#[derive(Deserialize)]
struct Wrapped<'a> {
    #[serde(borrow)]
    messages: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    traj: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    conversation: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    history: Option<Vec<&'a RawValue>>,
}

pub(super) fn read(provider: Provider, bytes: &[u8]) -> Imported<'_> {
    let mut imported = Imported::default();
    let Ok(text) = std::str::from_utf8(bytes) else {
        imported.defects.push(ImportDefect {
            line: 1,
            problem: "is not UTF-8".into(),
        });
        return imported;
    };
    // The file is one document or has one document per line.
    if let Some(messages) = conversation(text) {
        imported
            .sessions
            .push(session(provider, String::new(), 1, messages));
        return imported;
    }
    for (number, line) in lines(bytes) {
        let found = std::str::from_utf8(line).ok().and_then(conversation);
        match found {
            Some(messages) => {
                let suffix = format!("{number}");
                let session = session(provider, suffix, number, messages);
                imported.sessions.push(session);
            }
            None => imported.defects.push(ImportDefect {
                line: number,
                problem: "contains no array of messages".into(),
            }),
        }
    }
    imported
}

fn conversation(text: &str) -> Option<Vec<&RawValue>> {
    let text = text.trim();
    if text.starts_with('[') {
        let messages: Vec<&RawValue> = serde_json::from_str(text).ok()?;
        let are_objects = messages
            .iter()
            .all(|message| message.get().starts_with('{'));
        return are_objects.then_some(messages);
    }
    let wrapped: Wrapped<'_> = serde_json::from_str(text).ok()?;
    wrapped
        .messages
        .or(wrapped.traj)
        .or(wrapped.conversation)
        .or(wrapped.history)
}

fn session(
    provider: Provider,
    suffix: String,
    line: usize,
    messages: Vec<&RawValue>,
) -> ImportedSession<'_> {
    let steps = messages.into_iter().map(|payload| {
        let of_trajectory = (provider == Provider::OpenAi).then(|| trajectory_result(payload));
        ImportStep::Message(ImportedMessage {
            line,
            id: None,
            provider,
            payload: of_trajectory.flatten().unwrap_or(Cow::Borrowed(payload)),
            parent: None,
            at: None,
            machine_generated: false,
            transcript_only: false,
            attributes: Vec::new(),
            model: None,
            usage: None,
            decoded: None,
        })
    });
    ImportedSession {
        suffix,
        steps: steps.collect(),
        ..ImportedSession::default()
    }
}

/// Returns a result in the form of `OpenAI`, if it has the form of SWE-agent: with a list of calls instead of one.
fn trajectory_result(payload: &RawValue) -> Option<Cow<'_, RawValue>> {
    if !payload.get().contains("\"tool_call_ids\"") {
        return None;
    }
    let mut fields: Map<String, Value> = serde_json::from_str(payload.get()).ok()?;
    let calls = fields.remove("tool_call_ids")?;
    // The agent makes one call at a time.
    let call = calls.as_array()?.first()?.clone();
    fields.insert("tool_call_id".into(), call);
    Some(to_payload(&fields.into()))
}
