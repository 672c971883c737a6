//! The prompt prefix of a request: the system prompt and the tool definitions, which precede the view.

use std::sync::OnceLock;

use palimpsest_core::json::ObjectFields;
use palimpsest_core::message::Block;
use palimpsest_core::tokens::{PrefixTokens, TokenCounter};
use serde_json::value::RawValue;

/// The prompt prefix of a call: its content or its size.
#[derive(Debug)]
pub struct PromptPrefix {
    system: PrefixPart,
    tools: PrefixPart,
    /// The cached size. A call belongs to one session, so one estimator counts it.
    counted: OnceLock<PrefixTokens>,
}

/// One part of the prompt prefix.
#[derive(Debug)]
pub enum PrefixPart {
    /// The size that the caller reported.
    Tokens(u32),
    /// The content. The whole JSON is counted, because quotes and field names cost tokens too.
    Json(Block),
}

impl PromptPrefix {
    /// Creates a prefix from the system prompt and the tool definitions.
    pub fn new(system: PrefixPart, tools: PrefixPart) -> Self {
        Self {
            system,
            tools,
            counted: OnceLock::new(),
        }
    }

    /// Returns true if the tool definitions contain a tool of the name. `None` if only their size is known.
    pub fn has_tool(&self, name: &str) -> Option<bool> {
        match &self.tools {
            // A size of zero means that the request has no definition.
            PrefixPart::Tokens(0) => Some(false),
            PrefixPart::Json(Block::Opaque { json, .. }) => {
                // Most definitions do not contain the name at all, so few are parsed.
                let quoted = format!("\"{name}\"");
                Some(json.as_str().contains(&quoted) && defines(json.as_str(), name))
            }
            PrefixPart::Tokens(_) | PrefixPart::Json(_) => None,
        }
    }

    /// Returns the size, counted with the session's estimator: the system prompt as prose, tool definitions as
    /// code.
    pub fn tokens(&self, counter: TokenCounter) -> PrefixTokens {
        *self.counted.get_or_init(|| PrefixTokens {
            system: self.system.tokens(counter),
            tools: self.tools.tokens(counter),
        })
    }
}

/// Returns true if one of the tool definitions has the name. The name can also be that of a parameter or a value.
fn defines(tools: &str, name: &str) -> bool {
    let is_named = |tool: &RawValue| {
        let mut fields = ObjectFields::read(tool).ok()?;
        // Chat Completions has the definition inside the field `function`.
        if let Some(function) = fields.take("function").ok()? {
            fields = ObjectFields::read(function).ok()?;
        }
        Some(&*fields.string("name").ok()?? == name)
    };
    let tools: Vec<&RawValue> = serde_json::from_str(tools).unwrap_or_default();
    tools.into_iter().any(|tool| is_named(tool) == Some(true))
}

impl PrefixPart {
    fn tokens(&self, counter: TokenCounter) -> u64 {
        match self {
            Self::Tokens(tokens) => (*tokens).into(),
            Self::Json(block) => counter.block(block).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_found_by_its_own_name() {
        for tools in [
            r#"[{"name":"Read"},{"name":"Snip","input_schema":{}}]"#,
            r#"[{"type":"function","function":{"name":"Snip"}}]"#,
            r#"[{"type":"function","name":"Snip"}]"#,
        ] {
            assert!(defines(tools, "Snip"), "{tools}");
        }
        for tools in [
            r#"[{"name":"Read","description":"Snip"}]"#,
            r#"[{"name":"Read","input_schema":{"properties":{"Snip":{"enum":["Snip"]}}}}]"#,
            r#"[{"type":"function","function":{"name":"Read","parameters":{"title":"Snip"}}}]"#,
            r#"{"name":"Snip"}"#,
        ] {
            assert!(!defines(tools, "Snip"), "{tools}");
        }
    }
}
