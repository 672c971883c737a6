//! Claude Code's session files: one line a message, as that program writes them.
//!
//! What these files have no field for is left out.

use palimpsest_core::ids::{MessageId, SessionId, Timestamp};
use palimpsest_core::message::{Message, MessageOrigin, Role, Usage};
use palimpsest_core::session::Visibility;
use serde_json::{Map, Value, json};

use crate::convert;

/// The lines of one session, which know what came before them.
#[derive(Debug)]
pub(super) struct ClaudeCodeWriter {
    session: String,
    /// The message of the line before.
    last: Option<MessageId>,
    /// The last one that no rewind took out.
    kept: Option<MessageId>,
}

impl ClaudeCodeWriter {
    pub(super) fn new(session: &SessionId) -> Self {
        Self {
            session: session.to_string(),
            last: None,
            kept: None,
        }
    }

    pub(super) fn line(&mut self, message: &Message, standing: Visibility) -> Vec<u8> {
        let is_rewound = standing == Visibility::Rewound;
        // Two inputs with one parent are how these files tell that the first was abandoned.
        let before = if is_rewound { self.last } else { self.kept };
        let mut head = json!({
            "parentUuid": message.parent.or(before).map(|id| id.to_string()),
            "isSidechain": false,
            "sessionId": self.session,
            "type": role(message.role),
            "uuid": message.id.to_string(),
        });
        if let Some(head) = head.as_object_mut() {
            circumstances(message, head);
        }
        self.last = Some(message.id);
        if !is_rewound {
            self.kept = self.last;
        }
        super::line(&head, &payload(message))
    }
}

const fn role(role: Role) -> &'static str {
    match role {
        Role::User => "user",
        Role::Assistant => "assistant",
        // The newer word is another provider's.
        Role::System | Role::Developer => "system",
    }
}

/// When, where and how it was said.
fn circumstances(message: &Message, head: &mut Map<String, Value>) {
    if let Some(at) = message.at {
        head.insert("timestamp".into(), json!(timestamp(at)));
    }
    if message.machine_generated {
        head.insert("isMeta".into(), json!(true));
    }
    for (name, value) in &message.attributes {
        let value = match &**name {
            "cwd" | "gitBranch" | "version" | "permissionMode" => json!(value),
            // The one note that these files hold as JSON.
            "todos" => match serde_json::from_str(value) {
                Ok(todos @ Value::Array(_)) => todos,
                _ => continue,
            },
            _ => continue,
        };
        head.insert(name.to_string(), value);
    }
}

/// `2025-06-01T12:34:56.789Z`: milliseconds are always there.
fn timestamp(at: Timestamp) -> String {
    let text = convert::export_timestamp(at).to_string();
    match text.strip_suffix('Z') {
        Some(whole) if !whole.contains('.') => format!("{whole}.000Z"),
        _ => text,
    }
}

/// The message in Anthropic's words. Another provider's unknown fields are left out: who reads the
/// file would send them to Anthropic, which refuses them.
fn payload(message: &Message) -> Vec<u8> {
    let extra = (message.origin != MessageOrigin::OpenAi)
        .then(|| message.extra.to_object())
        .flatten();
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
    out.pop();
    out.extend_from_slice(b",\"content\":");
    super::content(convert::original_blocks(message), &mut out);
    let has_reason = extra.is_some() && message.extra.get("stop_reason").is_some();
    if message.role == Role::Assistant && !has_reason {
        out.extend_from_slice(b",\"stop_reason\":null");
    }
    if let Some(extra) = extra {
        out.push(b',');
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
