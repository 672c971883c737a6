//! The additional rules of API version 2026-10-21.

use serde_json::Value;

use super::array;
use crate::refusal::Refusal;

/// The version's name in requests.
pub(super) const NAME: &str = "2026-10-21";

pub(super) fn check(body: &Value) -> Result<(), Refusal> {
    for name in ["temperature", "top_p", "top_k"] {
        if body.get(name).is_some() {
            let message = format!("{name}: Extra inputs are not permitted");
            return Err(Refusal::invalid(message));
        }
    }
    for (at, message) in array(&body["messages"]).iter().enumerate() {
        for (index, block) in array(&message["content"]).iter().enumerate() {
            let place = format!("messages.{at}.content.{index}");
            if message["role"] == "assistant" && block["type"] == "document" {
                return Err(Refusal::invalid(format!(
                    "{place}: `document` blocks are not permitted in assistant messages"
                )));
            }
            let inner = array(&block["content"]).iter();
            let mut texts =
                std::iter::once(block).chain(inner.filter(|_| block["type"] == "search_result"));
            let is_cited =
                |text: &Value| text["type"] == "text" && !array(&text["citations"]).is_empty();
            if message["role"] == "user" && texts.any(is_cited) {
                return Err(Refusal::invalid(format!(
                    "{place}.citations: citations are not permitted in user messages"
                )));
            }
        }
    }
    Ok(())
}
