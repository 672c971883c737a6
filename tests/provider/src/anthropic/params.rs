//! Validation of the parameters other than messages.

use serde_json::Value;

use crate::refusal::Refusal;

const KNOWN: [&str; 21] = [
    "model", "messages", "max_tokens", "system", "metadata", "stop_sequences", "stream",
    "temperature", "top_k", "top_p", "tools", "tool_choice", "thinking", "service_tier",
    "container", "context_management", "mcp_servers", "output_config", "output_format",
    "inference_geo", "cache_control",
];

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
    if let Some(unknown) = object.keys().find(|name| !KNOWN.contains(&name.as_str())) {
        return Err(Refusal::invalid(format!(
            "{unknown}: Extra inputs are not permitted"
        )));
    }
    let model = body["model"].as_str();
    let Some(model) = model.filter(|model| !model.is_empty()) else {
        return Err(Refusal::invalid("model: Input should be a valid string"));
    };
    if model == "no-such-model" {
        return Err(Refusal::new(
            404,
            "not_found_error",
            format!("model: {model}"),
        ));
    }
    let max_tokens = max_tokens(body, model, max_output)?;
    fraction(body, "temperature")?;
    fraction(body, "top_p")?;
    for name in ["stream"] {
        if object.get(name).is_some_and(|value| !value.is_boolean()) {
            return Err(Refusal::invalid(format!(
                "{name}: Input should be a valid boolean"
            )));
        }
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
