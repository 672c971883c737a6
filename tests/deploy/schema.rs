//! Tests that the schema of the values contains the settings of the server, and rejects all other keys.

use std::fs;

use palimpsest_tests::palimpsest;
use serde_json::Value;

use crate::helm::{Objects, chart, examples, refusal, refusal_of};

/// The width of the lines of the file.
const WIDTH: usize = 120;

/// Formats JSON with one line for each value that fits into a line.
fn pretty(value: &Value, indent: usize, used: usize) -> String {
    let line = compact(value);
    let inner = indent + 2;
    let pad = " ".repeat(inner);
    let lines: Vec<String> = match value {
        // The first arm takes every value that fits into a line, before the arms that open several lines.
        _ if used + line.len() < WIDTH => return line,
        Value::Object(fields) if !fields.is_empty() => {
            let field = |(name, value): (&String, &Value)| {
                let key = format!("\"{name}\": ");
                format!("{pad}{key}{}", pretty(value, inner, inner + key.len()))
            };
            fields.iter().map(field).collect()
        }
        Value::Array(items) if !items.is_empty() => {
            let item = |item| format!("{pad}{}", pretty(item, inner, inner));
            items.iter().map(item).collect()
        }
        _ => return line,
    };
    let (open, close) = if value.is_object() {
        ("{", "}")
    } else {
        ("[", "]")
    };
    let end = " ".repeat(indent);
    format!("{open}\n{}\n{end}{close}", lines.join(",\n"))
}

fn compact(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(name, value)| format!("\"{name}\": {}", compact(value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(compact).collect();
            format!("[{}]", items.join(", "))
        }
        plain => plain.to_string(),
    }
}

/// Adds null to the values of all settings, because `--set key=null` removes a value of a file.
fn allow_null(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else {
        return;
    };
    if let Some(Value::Array(choices)) = fields.get_mut("enum") {
        choices.push(Value::Null);
    }
    if let Some(kind) = fields.get_mut("type").filter(|kind| kind.is_string()) {
        *kind = Value::Array(vec![kind.take(), "null".into()]);
    }
    for (name, inner) in fields {
        match name.as_str() {
            "properties" | "definitions" => {
                let all = inner.as_object_mut().into_iter().flatten();
                all.for_each(|(_, schema)| allow_null(schema));
            }
            "additionalProperties" | "items" => allow_null(inner),
            _ => {}
        }
    }
}

/// Returns the schema of the value `config`.
fn settings() -> Value {
    let output = palimpsest(&["config", "--schema"]);
    let text = String::from_utf8(output.stdout).unwrap();
    // The schema moves below `properties/config`, so its references change.
    let text = text.replace("\"#/definitions/", "\"#/properties/config/definitions/");
    let mut schema: Value = serde_json::from_str(&text).unwrap();
    allow_null(&mut schema);
    schema["type"] = "object".into();
    let fields = schema.as_object_mut().unwrap();
    fields.remove("$schema");
    fields.insert(
        "$comment".to_owned(),
        "From `palimpsest config --schema`. To update: UPDATE_EXPECT=1 cargo test -p palimpsest-tests --test deploy schema"
            .into(),
    );
    schema
}

#[test]
fn the_schema_contains_the_settings_of_the_server() {
    let path = chart().join("values.schema.json");
    let text = fs::read_to_string(&path).unwrap();
    let mut schema: Value = serde_json::from_str(&text).unwrap();
    schema["properties"]["config"] = settings();
    let current = pretty(&schema, 0, 0) + "\n";
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&path, &current).unwrap();
        return;
    }
    assert!(
        text == current,
        "values.schema.json is not current. Run: UPDATE_EXPECT=1 cargo test -p palimpsest-tests --test deploy schema"
    );
}

#[track_caller]
fn names(set: &str, key: &str, also: &str) {
    let said = refusal(&["allowAnonymous=true", set]);
    assert!(said.contains(key) && said.contains(also), "{set}: {said}");
}

#[test]
fn a_setting_that_the_server_does_not_have_is_rejected_by_name() {
    names("config.listenn=x", "/config", "'listenn'");
    names("config.worker.intervall=5", "/config/worker", "'intervall'");
    names(
        "config.policy.snip.nudg=true",
        "/config/policy/snip",
        "'nudg'",
    );
    names(
        "config.projects.a.policy.autocompact.enable=true",
        "/config/projects/a/policy/autocompact",
        "'enable'",
    );
    names(
        "config.projects.a.quota.sessions=1",
        "/config/projects/a",
        "'quota'",
    );
    names(
        "config.hooks.endpoints.a.urll=x",
        "/config/hooks/endpoints/a",
        "'urll'",
    );
    names("config.models[0].name=x", "/config/models/0", "'name'");
}

#[test]
fn a_value_outside_of_the_range_of_a_setting_is_rejected() {
    names(
        "config.worker.concurrency=0",
        "/config/worker/concurrency",
        "minimum",
    );
    names(
        "config.worker.concurrency=many",
        "/config/worker/concurrency",
        "string",
    );
    names("config.log.format=xml", "/config/log/format", "'pretty'");
    names("config.http.enabled=1", "/config/http/enabled", "boolean");
    names(
        "config.policy.preset=codex",
        "/config/policy/preset",
        "'claude-code'",
    );
    names(
        "config.otlp.sample_ratio=2",
        "/config/otlp/sample_ratio",
        "maximum",
    );
    names("config.shutdown=5", "/config/shutdown", "object");
}

#[test]
fn settings_of_the_chart_are_rejected_with_the_value_to_use() {
    let said = refusal(&["allowAnonymous=true", "config.role=server"]);
    assert!(said.contains("config.role is set by the chart"), "{said}");
    let scale_out = chart().join("examples/scale-out.yaml");
    let said = refusal_of(&scale_out, &["config.store.postgres.connections=9"]);
    assert!(
        said.contains("config.store.postgres.connections is set by the chart"),
        "{said}"
    );
}

#[test]
fn a_setting_of_a_file_can_be_removed() {
    for example in examples() {
        let objects = Objects::with(Some(&example), &["config.worker.concurrency=null"]);
        assert!(!objects.toml().contains("worker.concurrency"));
    }
    let production = chart().join("examples/production.yaml");
    let objects = Objects::with(Some(&production), &["config.sessions.cache_bytes=null"]);
    assert!(!objects.toml().contains("sessions"));
}
