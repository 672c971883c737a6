//! Validation of the parameters other than messages.

use serde_json::Value;

use crate::refusal::Refusal;

const KNOWN: [&str; 35] = [
    "model",
    "messages",
    "audio",
    "frequency_penalty",
    "function_call",
    "functions",
    "logit_bias",
    "logprobs",
    "max_completion_tokens",
    "max_tokens",
    "metadata",
    "modalities",
    "n",
    "parallel_tool_calls",
    "prediction",
    "presence_penalty",
    "prompt_cache_key",
    "prompt_cache_retention",
    "reasoning_effort",
    "response_format",
    "safety_identifier",
    "seed",
    "service_tier",
    "stop",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "user",
    "verbosity",
    "web_search_options",
];

/// Returns true for a reasoning model. These models use another name for the output limit and accept no temperature.
pub(super) fn reasons(model: &str) -> bool {
    ["o1", "o3", "o4", "gpt-5"]
        .iter()
        .any(|prefix| model.starts_with(prefix))
}

/// Returns the output limit of a request.
pub(super) fn output(body: &Value) -> Option<u64> {
    body["max_completion_tokens"]
        .as_u64()
        .or(body["max_tokens"].as_u64())
}

/// Checks the parameters. Returns the output limit.
pub(super) fn check(body: &Value, max_output: u64) -> Result<Option<u64>, Refusal> {
    let Some(object) = body.as_object() else {
        return Err(Refusal::invalid(
            "We could not parse the JSON body of your request.",
        ));
    };
    if let Some(unknown) = object.keys().find(|name| !KNOWN.contains(&name.as_str())) {
        return Err(Refusal::invalid(format!("Unknown parameter: '{unknown}'."))
            .param(unknown)
            .code("unknown_parameter"));
    }
    let Some(model) = body["model"].as_str().filter(|model| !model.is_empty()) else {
        return Err(Refusal::invalid("you must provide a model parameter"));
    };
    if model == "no-such-model" {
        let message =
            format!("The model `{model}` does not exist or you do not have access to it.");
        return Err(Refusal::new(404, "invalid_request_error", message).code("model_not_found"));
    }
    range(body, "temperature", 0.0, 2.0)?;
    range(body, "top_p", 0.0, 1.0)?;
    range(body, "presence_penalty", -2.0, 2.0)?;
    range(body, "frequency_penalty", -2.0, 2.0)?;
    if body["n"].as_u64().is_some_and(|n| n > 1) {
        return Err(Refusal::invalid("This fake provider gives one choice.").param("n"));
    }
    if reasons(model) {
        if body["max_tokens"].is_u64() {
            return Err(unsupported(
                "max_tokens",
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
            ));
        }
        // The field may be present if it repeats the default.
        if body["temperature"]
            .as_f64()
            .is_some_and(|value| (value - 1.0).abs() > f64::EPSILON)
        {
            let message = "Unsupported value: 'temperature' does not support this value with this model. Only the default (1) value is supported.";
            return Err(unsupported("temperature", message));
        }
    }
    output_limit(body, max_output)
}

fn unsupported(param: &str, message: &str) -> Refusal {
    Refusal::invalid(message)
        .param(param)
        .code("unsupported_parameter")
}

fn output_limit(body: &Value, max_output: u64) -> Result<Option<u64>, Refusal> {
    for name in ["max_tokens", "max_completion_tokens"] {
        let value = &body[name];
        if value.is_null() {
            continue;
        }
        let Some(value) = value.as_i64() else {
            return Err(Refusal::invalid(format!(
                "Invalid type for '{name}': expected an integer."
            ))
            .param(name)
            .code("invalid_type"));
        };
        if value < 1 {
            return Err(Refusal::invalid(format!(
                "Invalid '{name}': integer below minimum value. Expected a value >= 1, but got {value} instead."
            ))
            .param(name)
            .code("integer_below_min_value"));
        }
        if u64::try_from(value).is_ok_and(|value| value > max_output) {
            return Err(Refusal::invalid(format!(
                "{name} is too large: {value}. This model supports at most {max_output} completion tokens, whereas you provided {value}."
            ))
            .param(name)
            .code("invalid_value"));
        }
    }
    if body["max_tokens"].is_u64() && body["max_completion_tokens"].is_u64() {
        return Err(Refusal::invalid(
            "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.",
        ));
    }
    Ok(output(body))
}

fn range(body: &Value, name: &str, least: f64, most: f64) -> Result<(), Refusal> {
    let value = &body[name];
    if value.is_null() {
        return Ok(());
    }
    let Some(number) = value.as_f64() else {
        return Err(
            Refusal::invalid(format!("Invalid type for '{name}': expected a decimal."))
                .param(name)
                .code("invalid_type"),
        );
    };
    if number > most {
        return Err(Refusal::invalid(format!(
            "Invalid '{name}': decimal above maximum value. Expected a value <= {most}, but got {value} instead."
        ))
        .param(name)
        .code("decimal_above_max_value"));
    }
    if number < least {
        return Err(Refusal::invalid(format!(
            "Invalid '{name}': decimal below minimum value. Expected a value >= {least}, but got {value} instead."
        ))
        .param(name)
        .code("decimal_below_min_value"));
    }
    Ok(())
}
