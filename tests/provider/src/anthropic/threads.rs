//! Message threads: conversations that the provider holds between requests (`message-threads-2026-08-12`).

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::array;
use crate::refusal::Refusal;

/// The maximum number of held responses. The oldest ones are evicted.
const MAX_HELD: usize = 1_000;
/// The fields that belong to the thread.
const OF_THREAD: [&str; 2] = ["system", "tools"];

/// A conversation up to and including a response.
struct Held {
    id: String,
    body: Value,
}

/// The held conversations, oldest first.
#[derive(Default)]
pub(crate) struct Threads(VecDeque<Held>);

impl Threads {
    /// Returns the whole conversation of a request that continues a thread. `None` for any other request.
    pub(crate) fn joined(&self, body: &Value) -> Result<Option<Value>, Refusal> {
        let thread = &body["thread"];
        match thread["type"].as_str() {
            _ if thread.is_null() => return Ok(None),
            Some("create") => return Ok(None),
            Some("continue") => {}
            _ => {
                return Err(Refusal::invalid(
                    "thread: Input tag does not match any of the expected tags: 'create', 'continue'",
                ));
            }
        }
        if let Some(field) = OF_THREAD.iter().find(|field| !body[**field].is_null()) {
            return Err(Refusal::invalid(format!(
                "{field}: cannot be set with thread.type 'continue'"
            )));
        }
        let id = thread["previous_message_id"].as_str().unwrap_or_default();
        // Each response is a point to continue from, so two requests can continue one thread differently.
        let held = self.0.iter().rev().find(|held| held.id == id);
        let held = held.ok_or_else(|| {
            Refusal::new(404, "not_found_error", "The thread was not found.")
                .details(json!({"error_code": "thread_not_found"}))
        })?;
        let mut joined = body.clone();
        for field in OF_THREAD {
            if !held.body[field].is_null() {
                joined[field] = held.body[field].clone();
            }
        }
        let messages = [&held.body["messages"], &body["messages"]];
        joined["messages"] = messages.into_iter().flat_map(array).cloned().collect();
        Ok(Some(joined))
    }

    /// Holds the conversation of a request with a thread, and its response.
    pub(crate) fn hold(&mut self, request: &Value, conversation: &Value, response: &Value) {
        if request["thread"].is_null() {
            return;
        }
        let mut body = json!({"messages": conversation["messages"]});
        for field in OF_THREAD {
            body[field] = conversation[field].clone();
        }
        if let Some(messages) = body["messages"].as_array_mut() {
            messages.push(json!({"role": "assistant", "content": response["content"]}));
        }
        let id = response["id"].as_str().unwrap_or_default().to_owned();
        self.0.push_back(Held { id, body });
        if self.0.len() > MAX_HELD {
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Threads;

    #[test]
    fn a_thread_joins_its_messages() {
        let mut threads = Threads::default();
        let user = |text: &str| json!({"role": "user", "content": text});
        let first = json!({"thread": {"type": "create"}, "system": "s", "messages": [user("a")]});
        assert_eq!(threads.joined(&first).unwrap(), None);
        let response = json!({"id": "msg_1", "content": [{"type": "text", "text": "b"}]});
        threads.hold(&first, &first, &response);
        let thread = json!({"type": "continue", "previous_message_id": "msg_1"});
        let mut next = json!({"thread": thread, "messages": [user("c")]});
        let joined = threads.joined(&next).unwrap().unwrap();
        assert_eq!(joined["system"], "s");
        let assistant = json!({"role": "assistant", "content": response["content"]});
        assert_eq!(joined["messages"], json!([user("a"), assistant, user("c")]));
        next["system"] = json!("other");
        assert_eq!(threads.joined(&next).unwrap_err().status, 400);
        let unknown = json!({"thread": {"type": "continue", "previous_message_id": "msg_2"}});
        let refusal = threads.joined(&unknown).unwrap_err();
        let details = Box::new(json!({"error_code": "thread_not_found"}));
        assert_eq!((refusal.status, refusal.details), (404, Some(details)));
    }
}
