//! The parts of JSON schemas.

use std::ops::RangeInclusive;

use serde_json::{Value as Json, json};

pub(crate) fn text() -> Json {
    json!({"type": "string"})
}

pub(crate) fn boolean() -> Json {
    json!({"type": "boolean"})
}

pub(crate) fn integer(range: RangeInclusive<u64>) -> Json {
    let (low, high) = range.into_inner();
    json!({"type": "integer", "minimum": low, "maximum": high})
}

pub(crate) fn number(range: Option<RangeInclusive<f64>>) -> Json {
    match range {
        Some(range) => json!({"type": "number", "minimum": range.start(), "maximum": range.end()}),
        None => json!({"type": "number"}),
    }
}

pub(crate) fn choice<S: Into<String>>(names: impl IntoIterator<Item = S>) -> Json {
    let names: Vec<String> = names.into_iter().map(Into::into).collect();
    json!({"enum": names})
}

/// Returns the schema of a section without settings.
pub(crate) fn section() -> Json {
    json!({"type": "object", "additionalProperties": false, "properties": {}})
}

/// Returns the schema of a table with names of the user, such as projects.
pub(crate) fn by_name(inner: &Json) -> Json {
    json!({"type": "object", "additionalProperties": inner})
}

/// Inserts a schema at a path. Sections on the path are created.
pub(crate) fn insert<'a>(root: &mut Json, path: impl IntoIterator<Item = &'a str>, schema: Json) {
    let mut at = root;
    for name in path {
        // Only the last part of a path is a setting, so all other parts are sections.
        if at.is_null() {
            *at = section();
        }
        at = &mut at["properties"][name];
    }
    *at = schema;
}

/// Adds a description.
pub(crate) fn documented(mut schema: Json, doc: &str) -> Json {
    schema["description"] = doc.into();
    schema
}
