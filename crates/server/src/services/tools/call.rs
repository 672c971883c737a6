//! A tool call in the format that the model wrote.

use palimpsest_proto::context::v1::Format;
use palimpsest_proto::context::v1::call_tool_request::Call as Given;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::errors::ServiceError;

/// A call of one of the service's tools.
pub(super) struct ModelToolCall {
    pub(super) id: String,
    pub(super) name: String,
    /// The input as text. Errors in it are reported to the model.
    pub(super) input: String,
    pub(super) shape: CallFormat,
}

/// The format of the call, which is also that of its result.
#[derive(Debug, Clone, Copy)]
pub(super) enum CallFormat {
    Typed,
    Anthropic,
    OpenAi,
    OpenAiResponses,
}

#[derive(Deserialize)]
struct ToolUse {
    id: String,
    name: String,
    input: Box<RawValue>,
}

#[derive(Deserialize)]
struct ToolCall {
    id: String,
    function: Function,
}

#[derive(Deserialize)]
struct Function {
    name: String,
    /// JSON in a string, as the provider sends it. Some compatible servers send the JSON value itself.
    arguments: Value,
}

impl Function {
    fn called(self, id: String, shape: CallFormat) -> ModelToolCall {
        let input = match self.arguments {
            Value::String(text) => text,
            other => other.to_string(),
        };
        ModelToolCall {
            id,
            name: self.name,
            input,
            shape,
        }
    }
}

#[derive(Deserialize)]
struct FunctionCall {
    call_id: String,
    #[serde(flatten)]
    function: Function,
}

impl ModelToolCall {
    pub(super) fn read(given: Option<Given>) -> Result<Self, ServiceError> {
        // Input is not parsed here: an invalid input must become an error result for the model, not a failed call.
        match given {
            None => Err(ServiceError::invalid("tool_use", "is required, or payload")),
            Some(Given::ToolUse(call)) => Ok(Self {
                id: call.tool_use_id,
                name: call.tool_name,
                input: String::from_utf8_lossy(&call.input_json).into_owned(),
                shape: CallFormat::Typed,
            }),
            Some(Given::Payload(payload)) => {
                let wrong = |what: &str| ServiceError::invalid("payload.json", what);
                match Format::try_from(payload.format) {
                    Ok(Format::AnthropicMessages) => {
                        let call: ToolUse =
                            serde_json::from_slice(&payload.json).map_err(|_| {
                                wrong("must be one tool_use block with id, name and input")
                            })?;
                        Ok(Self {
                            id: call.id,
                            name: call.name,
                            input: call.input.get().to_owned(),
                            shape: CallFormat::Anthropic,
                        })
                    }
                    Ok(Format::OpenaiChat) => {
                        let call: ToolCall =
                            serde_json::from_slice(&payload.json).map_err(|_| {
                                wrong("must be one entry of tool_calls with id and function")
                            })?;
                        Ok(call.function.called(call.id, CallFormat::OpenAi))
                    }
                    Ok(Format::OpenaiResponses) => {
                        let call: FunctionCall =
                            serde_json::from_slice(&payload.json).map_err(|_| {
                                wrong(
                                    "must be one function_call item with call_id, name and arguments",
                                )
                            })?;
                        Ok(call
                            .function
                            .called(call.call_id, CallFormat::OpenAiResponses))
                    }
                    _ => Err(ServiceError::invalid(
                        "payload.format",
                        "must be ANTHROPIC_MESSAGES, OPENAI_CHAT or OPENAI_RESPONSES",
                    )),
                }
            }
        }
    }
}
