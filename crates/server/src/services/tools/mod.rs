//! `ListTools` and `CallTool`: the service's own tools for the model.

mod call;
mod run;
mod runner;

use palimpsest_core::policy::{ModelTool, Policy};
use palimpsest_core::session::Session;
use palimpsest_core::view::Provider;
use palimpsest_engine::{EngineError, tools};
use palimpsest_proto::context::v1::tool_result_content::Content;
use palimpsest_proto::context::v1::{
    CallToolRequest, CallToolResponse, ListToolsRequest, ListToolsResponse, ToolDefinition,
    ToolResultBlock, ToolResultContent,
};
use serde_json::json;

use self::call::{CallFormat, ModelToolCall};
use super::Service;
use crate::access::Right;
use crate::convert;
use crate::errors::ServiceError;

pub(super) async fn list(
    service: &Service,
    request: ListToolsRequest,
) -> Result<ListToolsResponse, ServiceError> {
    let key = convert::session_key(&request.session, "session")?;
    let look = |session: &Session| {
        let provider = session.last_served().target.provider;
        (session.policy().clone(), provider)
    };
    let (policy, last_provider): (Policy, Provider) = match service.sessions.read(&key, look).await
    {
        Ok(found) => found,
        // The session may not exist yet. It will start with the policy of its project.
        Err(EngineError::SessionNotFound(_)) => {
            let policy = service.sessions.policies().of(&key.project);
            ((**policy).clone(), Provider::default())
        }
        Err(error) => return Err(error.into()),
    };
    let provider = convert::payload_format(request.format, "format")?.unwrap_or(last_provider);
    let definitions = tools::all(&policy, provider);
    Ok(ListToolsResponse {
        tokens: tools::tokens(&definitions, policy.counter()),
        tools: definitions.into_iter().map(definition).collect(),
    })
}

fn definition(definition: tools::ToolDefinition) -> ToolDefinition {
    ToolDefinition {
        tool: convert::model_tool(definition.tool).into(),
        name: definition.name,
        description: definition.description,
        input_schema_json: definition.input_schema.into(),
        definition_json: definition.definition.into(),
    }
}

pub(super) async fn call(
    service: &Service,
    request: CallToolRequest,
) -> Result<CallToolResponse, ServiceError> {
    let key = convert::session_key(&request.session, "session")?;
    let stamp = convert::request_stamp(&request, service.limits());
    let call = ModelToolCall::read(request.call)?;
    let policy = |session: &Session| session.policy().clone();
    let policy = service.sessions.read(&key, policy).await?;
    let Some(tool) = tools::by_name(&policy, &call.name) else {
        return Err(ServiceError::tool_not_found(
            &call.name.chars().take(200).collect::<String>(),
        ));
    };
    // All tools except `Snip` only read. The model has the rights of the caller.
    if tool == ModelTool::Snip {
        service.authorize_also(Right::Compact, &key)?;
    }
    let asked = run::ToolContext {
        service,
        key: &key,
        policy: &policy,
        stamp,
    };
    let outcome = asked.run(tool, &call.input).await?;
    // Read after the tool has run, because a snip changes both.
    let state = |session: &Session| (session.revision(), session.sealed().epoch());
    let (revision, epoch) = service.sessions.read(&key, state).await?;
    let mut response = CallToolResponse {
        revision: revision.get(),
        epoch: epoch.get().into(),
        snipped: outcome.snipped.map(|snipped| *snipped),
        ..CallToolResponse::default()
    };
    let (text, is_error) = (outcome.text, outcome.is_error);
    match call.shape {
        CallFormat::Typed => {
            response.tool_result = Some(ToolResultBlock {
                tool_use_id: call.id,
                content: Some(ToolResultContent {
                    content: Some(Content::Text(text)),
                }),
                is_error,
                call_key: String::new(),
            });
        }
        CallFormat::Anthropic => {
            let mut block = json!({"type": "tool_result", "tool_use_id": call.id, "content": text});
            if is_error {
                block["is_error"] = json!(true);
            }
            response.tool_result_json = block.to_string().into();
        }
        CallFormat::OpenAiResponses => {
            let item = json!({"type": "function_call_output", "call_id": call.id, "output": text});
            response.tool_result_json = item.to_string().into();
        }
        CallFormat::OpenAi => {
            // OpenAI's tool messages cannot mark an error.
            let message = json!({"role": "tool", "tool_call_id": call.id, "content": text});
            response.tool_result_json = message.to_string().into();
        }
    }
    Ok(response)
}
