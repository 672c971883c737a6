//! The JSON schema of a settings file, for editors and for the values of the chart. It contains the names, types, ranges
//! and descriptions of all settings. Checks of texts and between settings are not in it: `palimpsest config --check`
//! runs them.

use prost_reflect::{Kind, MessageDescriptor};
use serde_json::{Map, Value as Json, json};

use crate::hooks;
use crate::json_schema::{
    boolean, by_name, choice, documented, insert, integer, number, section, text,
};
use crate::models;
use crate::policy_fields::{POLICY, Shape};
use crate::settings::{SETTINGS, Setting};
use crate::{FieldKind, PolicyField, policy, policy_fields, quotas};

/// The limits of retention that a project can override.
const PROJECT_RETENTION: [&str; 3] = [
    "retention.max_age",
    "retention.max_sessions",
    "retention.max_bytes",
];

/// Returns the JSON schema (draft 7) of a settings file.
pub fn json_schema() -> Json {
    let mut root = section();
    for setting in SETTINGS {
        insert(&mut root, setting.key.split('.'), described(setting));
    }
    let endpoints = hooks::PREFIX.trim_end_matches('.').split('.');
    insert(&mut root, endpoints, by_name(&endpoint()));
    insert(
        &mut root,
        ["policy"],
        json!({"$ref": "#/definitions/policy"}),
    );
    insert(&mut root, ["projects"], by_name(&project()));
    insert(&mut root, [models::KEY], models::schema());
    root["$schema"] = "http://json-schema.org/draft-07/schema#".into();
    root["title"] = "Settings of Palimpsest".into();
    root["definitions"] = json!({"policy": policy_schema()});
    root
}

fn described(setting: &Setting) -> Json {
    documented((setting.schema)(), setting.doc)
}

fn endpoint() -> Json {
    let mut endpoint = section();
    for field in hooks::FIELDS {
        insert(
            &mut endpoint,
            [field.name],
            documented((field.schema)(), field.doc),
        );
    }
    endpoint
}

/// Returns the schema of the sections of one project.
fn project() -> Json {
    let mut project = section();
    insert(
        &mut project,
        ["policy"],
        json!({"$ref": "#/definitions/policy"}),
    );
    for setting in SETTINGS {
        // A project has the quotas of all projects under shorter names.
        let quota = setting.key.strip_prefix(quotas::EVERY_PROJECT_PREFIX);
        if let Some(name) = quota.filter(|name| quotas::setting(name).is_some()) {
            insert(&mut project, ["quotas", name], described(setting));
        }
        if PROJECT_RETENTION.contains(&setting.key) {
            insert(&mut project, setting.key.split('.'), described(setting));
        }
    }
    project
}

fn policy_schema() -> Json {
    let mut root = section();
    for field in policy_fields() {
        let schema = documented(field_schema(field), &field.doc);
        insert(&mut root, field.path.iter().map(String::as_str), schema);
    }
    root
}

fn field_schema(field: &PolicyField) -> Json {
    match &field.kind {
        FieldKind::Bool => boolean(),
        FieldKind::Integer(most) => integer(0..=*most),
        FieldKind::Number => number(None),
        FieldKind::Text | FieldKind::Duration => text(),
        FieldKind::Choice(names) => choice(policy::spellings(names)),
        FieldKind::List(None) => json!({"type": "array", "items": text()}),
        FieldKind::List(Some(names)) => {
            json!({"type": "array", "items": choice(policy::spellings(names))})
        }
        FieldKind::Rules => rules(&field.path),
    }
}

/// Returns the schema of a table of rules, in which each rule has exactly one field.
fn rules(path: &[String]) -> Json {
    let mut message = POLICY.clone();
    for name in path {
        let Some(field) = message.get_field_by_name(name) else {
            break;
        };
        match Shape::of(&field) {
            Shape::Group(inner) => message = inner,
            Shape::Map(rule) => {
                if let Kind::Message(inner) = rule.kind() {
                    message = inner;
                }
            }
            _ => break,
        }
    }
    let mut rule = json!({
        "type": "object", "additionalProperties": false, "properties": rule_fields(&message),
    });
    // The contract has the fields of a rule in a `oneof`.
    rule["minProperties"] = 1.into();
    rule["maxProperties"] = 1.into();
    by_name(&rule)
}

fn rule_fields(message: &MessageDescriptor) -> Map<String, Json> {
    let fields = message.fields().map(|field| {
        let schema = match field.kind() {
            Kind::Bool => boolean(),
            _ => integer(0..=i64::MAX as u64),
        };
        (field.name().to_owned(), schema)
    });
    fields.collect()
}

#[cfg(test)]
mod tests {
    use palimpsest_core::policy::Preset;

    use super::*;

    /// Returns the schema of a setting by its key. References are followed.
    fn find<'a>(root: &'a Json, key: &str) -> &'a Json {
        key.split('.').fold(root, |at, name| {
            let at = match at["$ref"].as_str() {
                Some(pointer) => root.pointer(&pointer[1..]).unwrap(),
                None => at,
            };
            match &at["properties"] {
                Json::Object(known) if known.contains_key(name) => &known[name],
                _ => &at["additionalProperties"],
            }
        })
    }

    #[test]
    fn every_setting_has_a_schema_with_its_type_and_range() {
        let root = json_schema();
        for setting in SETTINGS {
            let schema = find(&root, setting.key);
            assert_eq!(schema["description"], setting.doc, "{}", setting.key);
            assert!(
                schema["type"].is_string() || schema["enum"].is_array(),
                "{}",
                setting.key
            );
        }
        for field in policy_fields() {
            for scope in ["policy", "projects.demo.policy"] {
                let key = format!("{scope}.{}", field.path.join("."));
                assert_eq!(find(&root, &key)["description"], field.doc, "{key}");
            }
        }
        let cases = [
            (
                "worker.concurrency",
                json!({"type": "integer", "minimum": 1, "maximum": 256}),
            ),
            ("role", json!({"enum": ["all", "server", "worker"]})),
            (
                "otlp.sample_ratio",
                json!({"type": "number", "minimum": 0.0, "maximum": 1.0}),
            ),
            ("http.enabled", json!({"type": "boolean"})),
            ("hooks.endpoints.a.url", json!({"type": "string"})),
            (
                "projects.a.quotas.watches",
                json!({"type": "integer", "minimum": 0, "maximum": 1_000_000}),
            ),
            ("projects.a.retention.max_age", json!({"type": "string"})),
        ];
        for (key, expected) in cases {
            let mut schema = find(&root, key).clone();
            schema.as_object_mut().unwrap().remove("description");
            assert_eq!(schema, expected, "{key}");
        }
    }

    #[test]
    fn every_section_is_closed() {
        fn check(schema: &Json) {
            if let Some(fields) = schema.as_object() {
                if fields.contains_key("properties") && schema["type"] == "object" {
                    assert_eq!(schema["additionalProperties"], false, "{schema}");
                }
                fields.values().for_each(check);
            }
        }
        check(&json_schema());
    }

    #[test]
    fn presets_have_the_names_of_the_contract_and_of_users() {
        let root = json_schema();
        let presets = find(&root, "policy.preset")["enum"].as_array().unwrap();
        for preset in Preset::ALL {
            let is_preset = |name: &Json| name == preset.name();
            assert!(presets.iter().any(is_preset), "{}", preset.name());
        }
        assert!(presets.iter().any(|name| name == "claude_code_2_1_19"));
    }

    #[test]
    fn a_rule_of_a_tool_has_the_fields_of_the_contract() {
        let root = json_schema();
        let rule = find(&root, "policy.tool_results.rules.Read");
        let fields: Vec<_> = rule["properties"].as_object().unwrap().keys().collect();
        assert_eq!(fields, ["declared_chars", "fixed_chars", "never_persist"]);
    }
}
