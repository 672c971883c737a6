//! The interface to run a call of the service's tools for a model.

use std::fmt;

use async_trait::async_trait;
use palimpsest_core::ids::SessionKey;

/// Runs calls of the service's tools.
#[async_trait]
pub trait ToolRunner: fmt::Debug + Send + Sync + 'static {
    /// Runs a call. `input` is the JSON that the model wrote. An error becomes an answer that the model can read.
    async fn run_tool(&self, session: &SessionKey, name: &str, input: &str) -> ToolAnswer;
}

/// The answer to a call of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolAnswer {
    /// The text for the model.
    pub text: String,
    /// True if the call failed.
    pub is_error: bool,
}
