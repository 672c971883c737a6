//! The prompt prefix of a request: the system prompt and the tool definitions, which precede the view.

use std::sync::OnceLock;

use palimpsest_core::message::Block;
use palimpsest_core::tokens::{PrefixTokens, TokenCounter};

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
            PrefixPart::Tokens(0) => Some(false),
            PrefixPart::Json(Block::Opaque { json, .. }) => {
                let quoted = format!("\"{name}\"");
                Some(json.as_str().contains(&quoted))
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

impl PrefixPart {
    fn tokens(&self, counter: TokenCounter) -> u64 {
        match self {
            Self::Tokens(tokens) => (*tokens).into(),
            Self::Json(block) => counter.block(block).into(),
        }
    }
}
