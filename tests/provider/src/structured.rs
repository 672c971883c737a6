//! Validation of the schemas of structured outputs.

use serde_json::Value;

use crate::refusal::Refusal;

/// Checks the output format of a Messages request.
pub(crate) fn check_messages(body: &Value) -> Result<(), Refusal> {
    for (at, format) in [
        // `output_format` is the field of the beta, `output_config.format` its successor. Clients send either one.
        ("output_format", &body["output_format"]),
        ("output_config.format", &body["output_config"]["format"]),
    ] {
        if format.is_null() {
            continue;
        }
        if format["type"] != "json_schema" {
            return Err(Refusal::invalid(format!(
                "{at}.type: Input should be 'json_schema'"
            )));
        }
        if !format["schema"].is_object() {
            return Err(Refusal::invalid(format!("{at}.schema: Field required")));
        }
        if open_object(&format["schema"]) {
            return Err(Refusal::invalid(format!(
                "{at}.schema: For 'object' type, 'additionalProperties' must be explicitly set to false"
            )));
        }
    }
    Ok(())
}

/// Checks the response format of a Chat Completions request.
pub(crate) fn check_chat(body: &Value) -> Result<(), Refusal> {
    let format = &body["response_format"];
    match format["type"].as_str() {
        _ if format.is_null() => Ok(()),
        Some("text" | "json_object") => Ok(()),
        // Chat Completions nests the schema in `json_schema`. The Responses API has its fields beside the type.
        Some("json_schema") => named(&format["json_schema"], "response_format.json_schema"),
        _ => Err(invalid_type("response_format.type")),
    }
}

/// Checks the text format of a Responses request.
pub(crate) fn check_responses(body: &Value) -> Result<(), Refusal> {
    let format = &body["text"]["format"];
    match format["type"].as_str() {
        _ if format.is_null() => Ok(()),
        Some("text" | "json_object") => Ok(()),
        Some("json_schema") => named(format, "text.format"),
        _ => Err(invalid_type("text.format.type")),
    }
}

fn invalid_type(at: &str) -> Refusal {
    let message = format!(
        "Invalid value for '{at}'. Supported values are: 'text', 'json_object', and 'json_schema'."
    );
    Refusal::invalid(message).param(at).code("invalid_value")
}

/// Checks a schema with a name, as OpenAI requires it.
fn named(format: &Value, at: &str) -> Result<(), Refusal> {
    let name = format["name"].as_str().unwrap_or_default();
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if name.is_empty() || name.len() > 64 || !name.bytes().all(is_legal) {
        let at = format!("{at}.name");
        let message = format!("Invalid '{at}': string does not match '^[a-zA-Z0-9_-]+$'.");
        return Err(Refusal::invalid(message).param(at).code("invalid_value"));
    }
    let schema = &format["schema"];
    // Without `strict`, the provider does not check the schema.
    if format["strict"] == true && (open_object(schema) || optional_property(schema)) {
        let message = format!(
            "Invalid schema for '{name}': 'additionalProperties' is required to be supplied and to be false, and 'required' is required to include every key in properties."
        );
        let refusal = Refusal::invalid(message).param(at);
        return Err(refusal.code("invalid_json_schema"));
    }
    Ok(())
}

/// Returns true if a schema has an object that permits other properties.
fn open_object(schema: &Value) -> bool {
    any(schema, &|schema| {
        schema["type"] == "object" && schema["additionalProperties"] != false
    })
}

/// Returns true if a schema has an object with an optional property.
fn optional_property(schema: &Value) -> bool {
    any(schema, &|schema| {
        let properties = schema["properties"].as_object();
        let required = schema["required"].as_array();
        let is_required = |name: &String| {
            required.is_some_and(|required| required.iter().any(|other| *name == *other))
        };
        properties.is_some_and(|properties| !properties.keys().all(is_required))
    })
}

/// Returns true if a schema or one inside of it fulfils the condition.
fn any(schema: &Value, condition: &impl Fn(&Value) -> bool) -> bool {
    let inner = match schema {
        Value::Object(fields) => fields.values().collect(),
        Value::Array(values) => values.iter().collect(),
        _ => Vec::new(),
    };
    condition(schema) || inner.into_iter().any(|inner| any(inner, condition))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{check_chat, check_messages, check_responses};

    fn object(is_open: bool) -> Value {
        let inner = json!({"type": "object", "properties": {}, "additionalProperties": is_open});
        json!({
            "type": "object", "properties": {"city": inner}, "required": ["city"],
            "additionalProperties": false,
        })
    }

    #[test]
    fn schemas_are_closed() {
        let messages = |schema: Value| {
            let format = json!({"type": "json_schema", "schema": schema});
            check_messages(&json!({"output_config": {"format": format}})).is_ok()
        };
        assert!(messages(object(false)) && !messages(object(true)) && !messages(Value::Null));
        let chat = |name: &str, schema: Value| {
            let format = json!({"name": name, "strict": true, "schema": schema});
            let format = json!({"type": "json_schema", "json_schema": format});
            check_chat(&json!({"response_format": format})).is_ok()
        };
        assert!(chat("a", object(false)) && !chat("a", object(true)) && !chat("", object(false)));
        let mut optional = object(false);
        optional["required"] = json!([]);
        assert!(!chat("a", optional));
        let responses = |kind: &str| {
            let format =
                json!({"type": kind, "name": "a", "strict": true, "schema": object(false)});
            check_responses(&json!({"text": {"format": format}})).is_ok()
        };
        assert!(responses("json_schema") && responses("text") && !responses("xml"));
    }
}
