//! Validation of the parameters other than messages.

use serde_json::Value;

use super::betas::extra;
use crate::refusal::Refusal;

/// The parameters of a request for a message. Some need a beta.
pub(super) const KNOWN: [&str; 29] = [
    "model",
    "messages",
    "max_tokens",
    "system",
    "metadata",
    "stop_sequences",
    "stream",
    "temperature",
    "top_k",
    "top_p",
    "tools",
    "tool_choice",
    "thinking",
    "service_tier",
    "container",
    "context_management",
    "mcp_servers",
    "output_config",
    "output_format",
    "inference_geo",
    "cache_control",
    "billing_policy",
    "compaction",
    "diagnostics",
    "fallback_credit_token",
    "fallbacks",
    "speed",
    "thread",
    "user_profile_id",
];
/// The parameters of a request for a count.
pub(super) const OF_COUNT: [&str; 15] = [
    "model", "messages", "system", "tools", "tool_choice", "thinking", "context_management",
    "mcp_servers", "output_config", "output_format", "cache_control", "billing_policy",
    "compaction", "speed", "user_profile_id",
];

/// Rejects a body that is no object, and unknown parameters.
pub(super) fn known(body: &Value, known: &[&str]) -> Result<(), Refusal> {
    let Some(object) = body.as_object() else {
        return Err(Refusal::invalid("The request body is not valid JSON"));
    };
    match object.keys().find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(unknown) => Err(extra(unknown)),
    }
}

/// Checks the parameters. Returns `max_tokens`.
pub(super) fn check(body: &Value, max_output: u64) -> Result<u64, Refusal> {
    let Some(object) = body.as_object() else {
        return Err(Refusal::invalid("The request body is not valid JSON"));
    };
    for name in ["model", "max_tokens", "messages"] {
        if !object.contains_key(name) {
            return Err(Refusal::invalid(format!("{name}: Field required")));
        }
    }
    let model = model(body)?;
    let max_tokens = max_tokens(body, model, max_output)?;
    fraction(body, "temperature")?;
    fraction(body, "top_p")?;
    if object
        .get("stream")
        .is_some_and(|value| !value.is_boolean())
    {
        return Err(Refusal::invalid("stream: Input should be a valid boolean"));
    }
    thinking(body, max_tokens)?;
    if let Some(stops) = object.get("stop_sequences").and_then(Value::as_array)
        && stops
            .iter()
            .any(|stop| stop.as_str().is_none_or(|stop| stop.trim().is_empty()))
    {
        return Err(Refusal::invalid(
            "stop_sequences: each stop sequence must contain non-whitespace",
        ));
    }
    Ok(max_tokens)
}

/// Returns the name of the model.
pub(super) fn model(body: &Value) -> Result<&str, Refusal> {
    match body["model"].as_str() {
        None | Some("") => Err(Refusal::invalid("model: Input should be a valid string")),
        // The name for tests of an unknown model. All other names are accepted.
        Some("no-such-model") => {
            let message = "model: no-such-model";
            Err(Refusal::new(404, "not_found_error", message))
        }
        Some(model) => Ok(model),
    }
}

fn max_tokens(body: &Value, model: &str, max_output: u64) -> Result<u64, Refusal> {
    let Some(max_tokens) = body["max_tokens"].as_i64() else {
        return Err(Refusal::invalid(
            "max_tokens: Input should be a valid integer",
        ));
    };
    let Some(max_tokens) = u64::try_from(max_tokens).ok().filter(|max| *max >= 1) else {
        return Err(Refusal::invalid(
            "max_tokens: Input should be greater than or equal to 1",
        ));
    };
    if max_tokens > max_output {
        return Err(Refusal::invalid(format!(
            "max_tokens: {max_tokens} > {max_output}, which is the maximum allowed number of output tokens for {model}"
        )));
    }
    Ok(max_tokens)
}

fn fraction(body: &Value, name: &str) -> Result<(), Refusal> {
    let value = &body[name];
    if value.is_null() {
        return Ok(());
    }
    let message = match value.as_f64() {
        None => "Input should be a valid number",
        Some(value) if value > 1.0 => "Input should be less than or equal to 1",
        Some(value) if value < 0.0 => "Input should be greater than or equal to 0",
        Some(_) => return Ok(()),
    };
    Err(Refusal::invalid(format!("{name}: {message}")))
}

fn thinking(body: &Value, max_tokens: u64) -> Result<(), Refusal> {
    let thinking = &body["thinking"];
    if !matches!(
        thinking["display"].as_str(),
        None | Some("summarized" | "omitted" | "updates")
    ) {
        return Err(Refusal::invalid(
            "thinking.display: Input should be 'summarized', 'omitted' or 'updates'",
        ));
    }
    match thinking["type"].as_str() {
        _ if thinking.is_null() => return Ok(()),
        Some("disabled" | "adaptive") => return Ok(()),
        Some("enabled") => {}
        _ => {
            return Err(Refusal::invalid(
                "thinking: Input tag does not match any of the expected tags: 'adaptive', 'disabled', 'enabled'",
            ));
        }
    }
    let Some(budget) = thinking["budget_tokens"].as_u64() else {
        return Err(Refusal::invalid(
            "thinking.enabled.budget_tokens: Field required",
        ));
    };
    if budget < 1_024 {
        return Err(Refusal::invalid(
            "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024",
        ));
    }
    // Thinking is part of the output. A budget of the whole output would leave nothing for the answer.
    if budget >= max_tokens {
        return Err(Refusal::invalid(
            "`max_tokens` must be greater than `thinking.budget_tokens`",
        ));
    }
    if body["temperature"]
        .as_f64()
        .is_some_and(|value| value < 1.0)
    {
        return Err(Refusal::invalid(
            "`temperature` may only be set to 1 when thinking is enabled",
        ));
    }
    Ok(())
}
