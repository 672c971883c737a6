//! The tools of the service as MCP describes tools.

use std::sync::Arc;

use palimpsest_proto::context::v1::{ModelTool, ToolDefinition};
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::failure::ToolFailure;
use crate::scope::Scope;
use crate::sessions::LIST_SESSIONS;

/// The argument with the session, if no session is fixed.
const SESSION: &str = "session";

/// Returns the tool that a definition of the service describes.
pub(crate) fn tool(definition: ToolDefinition, scope: &Scope) -> Tool {
    let is_snip = definition.tool() == ModelTool::Snip;
    // The schema is an object: the service writes it.
    let schema = serde_json::from_slice(&definition.input_schema_json).unwrap_or_default();
    let schema = with_session(schema, scope);
    Tool::new(definition.name, definition.description, schema).with_annotations(if is_snip {
        // The transcript keeps the removed turns, but the agent of the session no longer sees them.
        ToolAnnotations::new()
            .read_only(false)
            .destructive(true)
            .idempotent(true)
            .open_world(false)
    } else {
        reads()
    })
}

/// Returns the annotations of a tool that only reads.
pub(crate) fn reads() -> ToolAnnotations {
    ToolAnnotations::new()
        .read_only(true)
        .destructive(false)
        .idempotent(true)
        .open_world(false)
}

/// Returns the schema with the argument that names the session, unless the session is fixed.
pub(crate) fn with_session(mut schema: JsonObject, scope: &Scope) -> Arc<JsonObject> {
    if scope.fixed().is_none() {
        let description = format!(
            "The session to read: its id, or its full name projects/{{project}}/sessions/{{session}}. \
             {LIST_SESSIONS} returns the names."
        );
        let argument = json!({"type": "string", "description": description});
        if let Some(properties) = object_at(&mut schema, "properties") {
            properties.insert(SESSION.to_owned(), argument);
        }
        // The first argument, because models write arguments in the order of the schema.
        let required = schema.entry("required").or_insert_with(|| json!([]));
        if let Some(required) = required.as_array_mut() {
            required.insert(0, json!(SESSION));
        }
    }
    Arc::new(schema)
}

fn object_at<'a>(schema: &'a mut JsonObject, key: &str) -> Option<&'a mut JsonObject> {
    schema
        .entry(key)
        .or_insert_with(|| json!({}))
        .as_object_mut()
}

/// Returns the full name of the session of a call, and removes it from the arguments.
pub(crate) fn take_session(
    arguments: &mut JsonObject,
    scope: &Scope,
) -> Result<String, ToolFailure> {
    if let Some(fixed) = scope.fixed() {
        return Ok(fixed.to_owned());
    }
    match arguments.remove(SESSION) {
        Some(Value::String(name)) if !name.is_empty() => Ok(scope.full_name(&name)),
        _ => Err(ToolFailure::reported(format!(
            "The argument `{SESSION}` is required: give the id or the full name of a session. {LIST_SESSIONS} returns \
             the names."
        ))),
    }
}

/// Reads the arguments of a tool of this crate.
pub(crate) fn parse<T: DeserializeOwned>(arguments: JsonObject) -> Result<T, ToolFailure> {
    serde_json::from_value(Value::Object(arguments)).map_err(|error| {
        ToolFailure::reported(format!(
            "The input does not fit the tool's schema: {error}."
        ))
    })
}

/// Shortens an answer to a number of bytes, and says so.
pub(crate) fn cap(mut text: String, max: usize) -> String {
    const NOTE: &str = "\n[cut to the limit of an answer]";
    // The note is part of the limit, so the text is cut to leave space for it.
    if text.len() > max {
        text.truncate(text.floor_char_boundary(max.saturating_sub(NOTE.len())));
        text.push_str(NOTE);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_an_argument_only_if_none_is_fixed() {
        let schema = || {
            let schema = json!({"type": "object", "properties": {"a": {}}, "required": ["a"]});
            schema.as_object().unwrap().clone()
        };
        let any = with_session(schema(), &Scope::project("p"));
        assert_eq!(any["required"], json!(["session", "a"]));
        assert!(any["properties"]["session"]["description"].is_string());
        let fixed = Scope::session("p", "projects/p/sessions/s");
        assert_eq!(*with_session(schema(), &fixed), schema());

        let mut arguments = JsonObject::new();
        assert_eq!(
            take_session(&mut arguments, &fixed).unwrap(),
            "projects/p/sessions/s"
        );
        let missing = take_session(&mut arguments, &Scope::project("p")).unwrap_err();
        assert!(matches!(missing, ToolFailure::Reported(text) if text.contains("ListSessions")));
        arguments.insert("session".into(), json!("s"));
        let found = take_session(&mut arguments, &Scope::project("q")).unwrap();
        assert_eq!(
            (found.as_str(), arguments.len()),
            ("projects/q/sessions/s", 0)
        );
    }

    #[test]
    fn an_answer_is_cut_between_characters() {
        assert_eq!(cap("abc".to_owned(), 3), "abc");
        let cut = cap("ä".repeat(100), 100);
        assert!(cut.len() <= 100 && cut.ends_with("answer]"), "{cut}");
    }
}
