//! Claude Code's session format: one line for each message. Data without a field in this format is left out.

use palimpsest_core::ids::{MessageId, SessionId};
use palimpsest_core::message::{Message, MessageOrigin, Role, Usage};
use palimpsest_core::session::Visibility;
use serde_json::{Map, Value, json};

use super::line;
use super::messages::original_blocks;
use crate::utc;

/// The writer of one session. It links each line to an earlier one.
#[derive(Debug)]
pub struct ClaudeCodeWriter {
    session: String,
    /// The message of the previous line.
    last: Option<MessageId>,
    /// The last message that no rewind removed.
    kept: Option<MessageId>,
}

impl ClaudeCodeWriter {
    /// Creates the writer of a session.
    pub fn new(session: &SessionId) -> Self {
        Self {
            session: session.to_string(),
            last: None,
            kept: None,
        }
    }

    /// Returns the line of a message.
    pub fn line(&mut self, message: &Message, standing: Visibility) -> Vec<u8> {
        // A response whose caller sent another version back is an abandoned branch too.
        let is_superseded = standing == Visibility::TranscriptOnly && !message.transcript_only;
        let is_rewound = standing == Visibility::Rewound || is_superseded;
        // In this format, two inputs with the same parent mean that the first one was abandoned.
        let before = if is_rewound { self.last } else { self.kept };
        let mut head = json!({
            "parentUuid": message.parent.or(before).map(|id| id.to_string()),
            "isSidechain": false,
            "sessionId": self.session,
            "type": role(message.role),
            "uuid": message.id.to_string(),
        });
        if let Some(head) = head.as_object_mut() {
            add_metadata(message, head);
        }
        self.last = Some(message.id);
        if !is_rewound {
            self.kept = self.last;
        }
        line::line(&head, &payload(message))
    }
}

const fn role(role: Role) -> &'static str {
    match role {
        Role::User => "user",
        Role::Assistant => "assistant",
        // `developer` is OpenAI's name for the system role.
        Role::System | Role::Developer => "system",
    }
}

/// Adds the time and the attributes that the format has fields for.
fn add_metadata(message: &Message, head: &mut Map<String, Value>) {
    if let Some(at) = message.at {
        head.insert("timestamp".into(), json!(utc::format(at)));
    }
    if message.machine_generated {
        head.insert("isMeta".into(), json!(true));
    }
    for (name, value) in &message.attributes {
        let value = match &**name {
            "cwd" | "gitBranch" | "version" | "permissionMode" => json!(value),
            // The only attribute that the format stores as JSON.
            "todos" => match serde_json::from_str(value) {
                Ok(todos @ Value::Array(_)) => todos,
                _ => continue,
            },
            _ => continue,
        };
        head.insert(name.to_string(), value);
    }
}

/// Returns the message in Anthropic's format. Unknown fields of other providers are left out, because Anthropic
/// would reject them in a request that a reader builds from the file.
fn payload(message: &Message) -> Vec<u8> {
    let is_accepted = matches!(
        message.origin,
        MessageOrigin::Typed | MessageOrigin::Anthropic
    );
    let extra = is_accepted.then(|| message.extra.to_object()).flatten();
    let mut head = json!({"role": role(message.role)});
    if let Some(head) = head.as_object_mut() {
        let mut known = |name: &str, value: Option<Value>| {
            head.extend(value.map(|value| (name.to_owned(), value)));
        };
        let is_response = message.role == Role::Assistant;
        known(
            "id",
            message.provider_message_id.as_deref().map(Value::from),
        );
        known("model", message.model.as_deref().map(Value::from));
        known("usage", message.usage.map(usage));
        known("type", is_response.then(|| json!("message")));
    }
    let mut out = head.to_string().into_bytes();
    // The object stays open for the content, which is written in its original bytes.
    out.pop();
    out.extend_from_slice(b",\"content\":");
    line::content(original_blocks(message), &mut out);
    let has_reason = extra.is_some() && message.extra.get("stop_reason").is_some();
    // The API always returns `stop_reason` in a response, so the field is `null` if no value was stored.
    if message.role == Role::Assistant && !has_reason {
        out.extend_from_slice(b",\"stop_reason\":null");
    }
    if let Some(extra) = extra {
        out.push(b',');
        // The first byte is the opening brace of an object that continues the one written so far.
        out.extend_from_slice(&extra.as_bytes()[1..]);
    } else {
        out.push(b'}');
    }
    out
}

fn usage(usage: Usage) -> Value {
    json!({
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
    })
}

#[cfg(test)]
mod tests;
