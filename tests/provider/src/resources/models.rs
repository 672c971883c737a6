//! The models of a provider.

use axum::http::Method;
use serde_json::{Value, json};

use super::{Call, Reply, not_found};
use crate::refusal::Refusal;

const ANTHROPIC: [&str; 2] = ["claude-fake", "claude-fake-small"];
const OPENAI: [&str; 2] = ["gpt-fake", "gpt-fake-small"];

impl Call<'_> {
    /// Answers a request for models.
    pub(super) fn models(&self, path: &[&str]) -> Result<Reply, Refusal> {
        let names = if self.is_anthropic() {
            ANTHROPIC
        } else {
            OPENAI
        };
        match (self.method(), path) {
            (&Method::GET, []) => {
                let models = names.iter().map(|name| (*name, self.model(name)));
                let models: Vec<_> = models.collect();
                Ok(Reply::Json(self.page(&models)?))
            }
            (&Method::GET, [name]) if names.contains(name) => Ok(Reply::Json(self.model(name))),
            (&Method::GET, [name]) => Err(not_found(format!("model: {name}"))),
            _ => Err(not_found("Not found")),
        }
    }

    fn model(&self, name: &str) -> Value {
        if self.is_anthropic() {
            return json!({
                "type": "model", "id": name, "display_name": "Claude Fake", "lifecycle": "active",
                "created_at": self.time(), "max_input_tokens": 200_000, "max_tokens": 64_000,
            });
        }
        json!({"id": name, "object": "model", "created": self.time(), "owned_by": "fake"})
    }
}
