//! Runs calls of a model that the gateway found in a response.

use async_trait::async_trait;
use palimpsest_core::ids::SessionKey;
use palimpsest_core::policy::ModelTool;
use palimpsest_core::session::Session;
use palimpsest_engine::tools::{self, ToolAnswer, ToolRunner};
use tonic::Status;

use super::super::Service;
use super::run::{ToolContext, ToolOutcome};
use crate::errors::ServiceError;

#[async_trait]
impl ToolRunner for Service {
    async fn run_tool(&self, session: &SessionKey, name: &str, input: &str) -> ToolAnswer {
        match run(self, session, name, input).await {
            Ok(outcome) => ToolAnswer {
                text: outcome.text,
                is_error: outcome.is_error,
            },
            Err(error) => {
                let error = Status::from(error);
                let error = error.message();
                tracing::warn!(%session, error, "cannot run a tool for a model");
                ToolAnswer {
                    text: "The tool failed. Try again later, or continue without it.".to_owned(),
                    is_error: true,
                }
            }
        }
    }
}

async fn run(
    service: &Service,
    key: &SessionKey,
    name: &str,
    input: &str,
) -> Result<ToolOutcome, ServiceError> {
    let policy = |session: &Session| session.policy().clone();
    let policy = service.sessions.read(key, policy).await?;
    // A snip changes the view of the response that is in progress, so the gateway offers tools that only read.
    let tool = tools::by_name(&policy, name).filter(|tool| *tool != ModelTool::Snip);
    let Some(tool) = tool else {
        return Err(ServiceError::tool_not_found(name));
    };
    let context = ToolContext {
        service,
        key,
        policy: &policy,
        stamp: Ok(None),
    };
    context.run(tool, input).await
}
