//! Validation of the parameters other than items and tools.

use serde_json::Value;

use super::array;
use crate::refusal::Refusal;

const KNOWN: [&str; 32] = [
    "background",
    "client_metadata",
    "context_management",
    "conversation",
    "include",
    "input",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "model",
    "moderation",
    "parallel_tool_calls",
    "previous_response_id",
    "prompt",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "reasoning",
    "safety_identifier",
    "service_tier",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "truncation",
    "user",
];
const INCLUDABLE: [&str; 8] = [
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
];
// The API accepts no output limit below 16 tokens.
const MIN_OUTPUT: u64 = 16;

/// Checks the parameters of a request for a response.
pub(super) fn check(body: &Value, max_output: u64) -> Result<(), Refusal> {
    known(body, &KNOWN)?;
    model(body)?;
    let has = |name: &str| !body[name].is_null();
    if !["input", "previous_response_id", "prompt", "conversation"]
        .iter()
        .any(|name| has(name))
    {
        return Err(Refusal::invalid(
            "One of \"input\" or \"previous_response_id\" or 'prompt' or 'conversation_id' must be provided.",
        )
        .code("missing_required_parameter"));
    }
    if has("previous_response_id") && has("conversation") {
        return Err(Refusal::invalid(
            "Mutually exclusive parameters: 'previous_response_id' and 'conversation'. Ensure you are only providing one of: 'previous_response_id' or 'conversation'.",
        )
        .code("mutually_exclusive_parameters"));
    }
    for name in ["store", "stream", "background", "parallel_tool_calls"] {
        typed(body, name, "a boolean", Value::is_boolean)?;
    }
    for name in ["instructions", "previous_response_id", "prompt_cache_key"] {
        typed(body, name, "a string", Value::is_string)?;
    }
    for name in ["reasoning", "text", "stream_options", "metadata"] {
        typed(body, name, "an object", Value::is_object)?;
    }
    for name in ["tools", "include", "context_management"] {
        typed(body, name, "an array", Value::is_array)?;
    }
    for (index, name) in array(&body["include"]).iter().enumerate() {
        let is_known = name.as_str().is_some_and(|name| INCLUDABLE.contains(&name));
        if !is_known {
            return Err(invalid_value(name, &INCLUDABLE).param(format!("include[{index}]")));
        }
    }
    output_limit(body, max_output)
}

/// Rejects a body that is no object, and unknown parameters.
pub(super) fn known(body: &Value, known: &[&str]) -> Result<(), Refusal> {
    let Some(object) = body.as_object() else {
        return Err(Refusal::invalid(
            "We could not parse the JSON body of your request.",
        ));
    };
    match object.keys().find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(unknown) => Err(unknown_parameter(unknown)),
    }
}

pub(super) fn model(body: &Value) -> Result<(), Refusal> {
    let Some(model) = body["model"].as_str().filter(|model| !model.is_empty()) else {
        return Err(missing("model"));
    };
    if model == "no-such-model" {
        let message =
            format!("The model '{model}' does not exist or you do not have access to it.");
        let refusal = Refusal::new(404, "invalid_request_error", message);
        return Err(refusal.param("model").code("model_not_found"));
    }
    Ok(())
}

fn output_limit(body: &Value, max_output: u64) -> Result<(), Refusal> {
    let name = "max_output_tokens";
    typed(body, name, "an integer", Value::is_i64)?;
    let Some(limit) = body[name].as_i64() else {
        return Ok(());
    };
    if limit < i64::try_from(MIN_OUTPUT).unwrap_or(i64::MAX) {
        return Err(Refusal::invalid(format!(
            "Invalid '{name}': integer below minimum value. Expected a value >= {MIN_OUTPUT}, but got {limit} instead."
        ))
        .param(name)
        .code("integer_below_min_value"));
    }
    if u64::try_from(limit).is_ok_and(|limit| limit > max_output) {
        return Err(Refusal::invalid(format!(
            "Invalid '{name}': integer above maximum value. Expected a value <= {max_output}, but got {limit} instead."
        ))
        .param(name)
        .code("integer_above_max_value"));
    }
    Ok(())
}

fn typed(body: &Value, name: &str, expected: &str, is: fn(&Value) -> bool) -> Result<(), Refusal> {
    if body[name].is_null() || is(&body[name]) {
        return Ok(());
    }
    Err(invalid_type(name, expected))
}

pub(super) fn invalid_type(param: &str, expected: &str) -> Refusal {
    Refusal::invalid(format!(
        "Invalid type for '{param}': expected {expected}, but got another type instead."
    ))
    .param(param)
    .code("invalid_type")
}

pub(super) fn unknown_parameter(param: &str) -> Refusal {
    Refusal::invalid(format!("Unknown parameter: '{param}'."))
        .param(param)
        .code("unknown_parameter")
}

pub(super) fn missing(param: &str) -> Refusal {
    Refusal::invalid(format!("Missing required parameter: '{param}'."))
        .param(param)
        .code("missing_required_parameter")
}

/// Returns the error for a value that is none of the supported ones. The caller adds the parameter.
pub(super) fn invalid_value(value: &Value, supported: &[&str]) -> Refusal {
    let value = value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned);
    let supported: Vec<String> = supported.iter().map(|name| format!("'{name}'")).collect();
    let supported = match supported.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, [one])) => format!("{one} and {last}"),
        Some((last, others)) => format!("{}, and {last}", others.join(", ")),
        None => String::new(),
    };
    Refusal::invalid(format!(
        "Invalid value: '{value}'. Supported values are: {supported}."
    ))
    .code("invalid_value")
}
