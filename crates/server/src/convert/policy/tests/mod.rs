//! Tests that names and values of settings are the same in the contract and the domain.

mod change;

use std::collections::BTreeSet;

use palimpsest_core::policy::{Overlay, Policy, Preset, ToolResultRule};
use palimpsest_proto::context::v1;
use palimpsest_settings::policy_fields::{FieldKind, POLICY, Shape, policy_fields};
use proptest::prelude::*;
use prost_reflect::MessageDescriptor;
use serde_json::{Value as Json, json};
use v1::tool_result_rule::Rule;

use super::*;

fn read(policy: &v1::Policy) -> Result<Json, String> {
    let overlay = overlay(policy, OVERRIDES).map_err(|error| error.to_string())?;
    Ok(overlay.fields().clone().into())
}

#[track_caller]
fn check(policy: &v1::Policy, expected: &Json) {
    assert_eq!(read(policy).as_ref(), Ok(expected));
}

#[track_caller]
fn refused(policy: &v1::Policy, error: &str) {
    assert_eq!(read(policy), Err(error.to_owned()));
}

/// Returns the names that the domain accepts at a path, as listed in its error for an unknown name.
fn names_of_the_domain(path: &[String]) -> BTreeSet<String> {
    let mut overlay = Overlay::default();
    let mut path = path.to_vec();
    path.push("no such field".into());
    overlay.set(&path, true.into());
    let error = overlay.resolve(Preset::default()).unwrap_err().message;
    let (_, names) = error.split_once("expected").unwrap();
    // The error lists names as "expected one of `a`, `b`", so every second part is a name.
    let names = names.split('`').skip(1).step_by(2);
    names.map(ToOwned::to_owned).collect()
}

fn check_names(message: &MessageDescriptor, path: &mut Vec<String>) {
    let names = message.fields().map(|field| field.name().to_owned());
    assert_eq!(
        names_of_the_domain(path),
        names.collect::<BTreeSet<_>>(),
        "{path:?}"
    );
    for field in message.fields() {
        if let Shape::Group(inner) = Shape::of(&field) {
            path.push(field.name().to_owned());
            check_names(&inner, path);
            path.pop();
        }
    }
}

#[test]
fn contract_and_domain_have_the_same_fields() {
    check_names(&POLICY, &mut Vec::new());
    let names: BTreeSet<_> = ["declared_chars", "fixed_chars", "never_persist"]
        .map(String::from)
        .into();
    let rule = POLICY
        .parent_pool()
        .get_message_by_name("palimpsest.context.v1.ToolResultRule")
        .unwrap();
    assert_eq!(
        rule.fields()
            .map(|field| field.name().to_owned())
            .collect::<BTreeSet<_>>(),
        names
    );
    let path = ["tool_results", "rules", "Read"].map(String::from);
    assert_eq!(names_of_the_domain(&path), names);
}

#[test]
fn contract_and_domain_have_the_same_choices() {
    for field in policy_fields() {
        let (names, in_list) = match &field.kind {
            FieldKind::Choice(names) => (names, false),
            FieldKind::List(Some(names)) => (names, true),
            _ => continue,
        };
        for name in names {
            let mut overlay = Overlay::default();
            let value = if in_list { json!([name]) } else { json!(name) };
            overlay.set(&field.path, value.clone());
            let policy = overlay.resolve(Preset::default()).expect(name);
            let back = overlay_of(&policy);
            assert_eq!(back.get(&field.path), Some(&value));
        }
        let mut overlay = Overlay::default();
        let value = json!("no such name");
        overlay.set(&field.path, if in_list { json!([value]) } else { value });
        let error = overlay.resolve(Preset::default()).unwrap_err().message;
        // A variant has at most two names: its own, and for a preset the common one.
        // The first quoted part is the invalid name itself.
        let listed = error.split('`').skip(3).step_by(2);
        let listed: BTreeSet<_> = listed.filter(|name| !name.contains(['-'])).collect();
        assert_eq!(listed, names.iter().map(String::as_str).collect());
    }
}

fn overlay_of(domain: &Policy) -> Overlay {
    overlay(&policy(domain), "policy").unwrap()
}

#[test]
fn presets_survive_a_round_trip() {
    for preset in Preset::ALL {
        let domain = preset.policy();
        let out = policy(&domain);
        assert_eq!(
            // Value 0 of the enum is unspecified, so the presets begin at 1.
            out.preset() as usize,
            1 + Preset::ALL.iter().position(|p| *p == preset).unwrap()
        );
        assert_eq!(overlay_of(&domain).resolve(Preset::default()), Ok(domain));
    }
}

#[test]
fn a_resolved_policy_sets_every_field_with_a_default() {
    let out = overlay_of(&Policy::default());
    let unset: Vec<_> = policy_fields()
        .iter()
        .filter(|field| out.get(&field.path).is_none())
        .map(|field| field.path.join("."))
        .collect();
    assert_eq!(
        unset,
        [
            "tokens.default_window_tokens",
            "tool_results.rules",
            "microcompact.protected_tools",
            "autocompact.error_buffer_tokens",
            "autocompact.block_at_tokens",
            "autocompact.compact_at_percent",
            "autocompact.block_at_percent",
            "autocompact.proactive_percent",
            "summary.model",
            "summary.fallback_model",
            "summary.instructions",
            "hooks.endpoint",
        ]
    );
    for field in policy_fields() {
        assert!(field.doc.ends_with('.'), "{:?}: {}", field.path, field.doc);
    }
}

#[test]
fn zero_false_and_empty_values_count_as_set() {
    check(&v1::Policy::default(), &json!({}));
    // Zero, false and empty texts are set values, unlike absent fields.
    check(
        &v1::Policy {
            preset: v1::PolicyPreset::ClaudeCode2119.into(),
            limits: Some(v1::LimitPolicy {
                max_message_bytes: Some(u64::MAX),
                ..Default::default()
            }),
            snip: Some(v1::SnipPolicy {
                nudge: Some(false),
                nudge_after_messages: Some(0),
                ..Default::default()
            }),
            collapse: Some(v1::CollapsePolicy {
                max_risk: Some(0.5),
                ..Default::default()
            }),
            summary: Some(v1::SummaryPolicy {
                model: Some(String::new()),
                ..Default::default()
            }),
            ..Default::default()
        },
        &json!({
            "preset": "claude_code_2_1_19",
            "limits": { "max_message_bytes": u64::MAX },
            "snip": { "nudge": false, "nudge_after_messages": 0 },
            "collapse": { "max_risk": 0.5 },
            "summary": { "model": "" },
        }),
    );
}

fn with_rule(rule: Option<Rule>) -> v1::Policy {
    v1::Policy {
        tool_results: Some(v1::ToolResultPolicy {
            rules: [("Read".to_owned(), v1::ToolResultRule { rule })].into(),
            ..Default::default()
        }),
        ..Default::default()
    }
}

#[test]
fn a_tool_result_rule_has_exactly_one_of_three_forms() {
    let rule = |rule: Json| json!({ "tool_results": { "rules": { "Read": rule } } });
    check(
        &with_rule(Some(Rule::DeclaredChars(0))),
        &rule(json!({ "declared_chars": 0 })),
    );
    check(
        &with_rule(Some(Rule::FixedChars(7))),
        &rule(json!({ "fixed_chars": 7 })),
    );
    check(
        &with_rule(Some(Rule::NeverPersist(true))),
        &rule(json!({ "never_persist": true })),
    );
    refused(
        &with_rule(Some(Rule::NeverPersist(false))),
        "session.policy_overrides.tool_results.rules[\"Read\"].never_persist must be true",
    );
    refused(
        &with_rule(None),
        "session.policy_overrides.tool_results.rules[\"Read\"].rule must be set",
    );
    let mut domain = Policy::default();
    let rules = [
        ToolResultRule::DeclaredChars(0),
        ToolResultRule::NeverPersist(true),
    ];
    domain.tool_results.rules = ["a", "b"].map(Box::from).into_iter().zip(rules).collect();
    assert_eq!(overlay_of(&domain).resolve(Preset::default()), Ok(domain));
}

fn idle(seconds: i64, nanos: i32) -> v1::Policy {
    v1::Policy {
        microcompact: Some(v1::MicrocompactPolicy {
            time: Some(v1::MicrocompactTimePolicy {
                idle: Some(prost_types::Duration { seconds, nanos }),
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    }
}

#[test]
fn durations_are_converted_and_negative_ones_rejected() {
    let policy = |given: &v1::Policy| {
        let overlay = overlay(given, OVERRIDES).unwrap();
        overlay
            .resolve(Preset::default())
            .unwrap()
            .microcompact
            .time
    };
    assert_eq!(policy(&idle(90, 0)).idle.get(), 90_000);
    assert_eq!(policy(&idle(0, 500_000_000)).idle.get(), 500);
    // A billion nanoseconds are a second, which belongs into the other field.
    for (seconds, nanos) in [(-1, 0), (0, -1), (0, 1_000_000_000)] {
        refused(
            &idle(seconds, nanos),
            "session.policy_overrides.microcompact.time.idle must be a duration of 0 or more",
        );
    }
}

#[test]
fn an_empty_list_differs_from_an_absent_list() {
    let list = |names: &[&str]| v1::Policy {
        microcompact: Some(v1::MicrocompactPolicy {
            protected_tools: Some(v1::NameList {
                names: names.iter().map(ToString::to_string).collect(),
            }),
            ..Default::default()
        }),
        ..Default::default()
    };
    let expected = |names: Json| json!({ "microcompact": { "protected_tools": names } });
    check(&list(&[]), &expected(json!([])));
    check(&list(&["a", "b"]), &expected(json!(["a", "b"])));
}

#[test]
fn unknown_enum_values_are_rejected_with_their_path() {
    let tools = |tools: &[i32]| v1::Policy {
        model_tools: Some(v1::ModelToolPolicy {
            enabled_tools: Some(v1::ModelToolList {
                tools: tools.to_vec(),
            }),
            ..Default::default()
        }),
        ..Default::default()
    };
    let expected = json!({ "model_tools": { "enabled_tools": ["read_transcript", "snip"] } });
    // In the contract, 3 is `read_transcript` and 1 is `snip`. The order of the list is kept.
    check(&tools(&[3, 1]), &expected);
    let path = "session.policy_overrides.model_tools.enabled_tools.tools";
    // 0 is the unspecified value, and 99 is unknown.
    refused(&tools(&[3, 0]), &format!("{path}[1] must be set"));
    refused(
        &tools(&[99]),
        &format!("{path}[0] is 99, which is no value of ModelTool"),
    );
    refused(
        &v1::Policy {
            preset: 99,
            ..Default::default()
        },
        "session.policy_overrides.preset is 99, which is no value of PolicyPreset",
    );
    refused(
        &v1::Policy {
            collapse: Some(v1::CollapsePolicy {
                max_risk: Some(f64::NAN),
                ..Default::default()
            }),
            ..Default::default()
        },
        "session.policy_overrides.collapse.max_risk must be a finite number",
    );
}

#[test]
fn domain_errors_name_the_path_of_the_request_field() {
    let overlay = overlay(
        &v1::Policy {
            collapse: Some(v1::CollapsePolicy {
                max_risk: Some(2.0),
                ..Default::default()
            }),
            ..Default::default()
        },
        OVERRIDES,
    );
    let error = overlay.unwrap().resolve(Preset::default()).unwrap_err();
    assert_eq!(
        invalid_overrides(error).to_string(),
        "session.policy_overrides.collapse.max_risk must be between 0 and 1"
    );
    assert_eq!(in_overrides("preset"), "session.policy_overrides.preset");
    assert_eq!(in_overrides("policy"), "session.policy_overrides");
}

#[test]
fn changed_policy_fields_are_listed_by_setting_name() {
    let before = Policy::default();
    let mut after = before.clone();
    assert!(changed_paths(&before, &after).is_empty());
    after.snip.nudge = true;
    after.autocompact.block_at_tokens = Some(1);
    let rule = ("Read".into(), ToolResultRule::FixedChars(1));
    after.tool_results.rules = [rule].into();
    assert_eq!(
        changed_paths(&before, &after),
        [
            "tool_results.rules",
            "snip.nudge",
            "autocompact.block_at_tokens"
        ]
    );
}

/// Returns a valid value for a field of this kind.
fn any_value(kind: &FieldKind) -> BoxedStrategy<Json> {
    // Includes braces, a space and a non-ASCII character, which are easy to mishandle.
    let text = "[a-zA-Z0-9_{} é-]{0,12}";
    match kind {
        FieldKind::Bool => any::<bool>().prop_map(Json::from).boxed(),
        FieldKind::Integer(most) => (0..=*most).prop_map(Json::from).boxed(),
        FieldKind::Number => (0..=1_000_u32)
            .prop_map(|milli| json!(f64::from(milli) / 1_000.0))
            .boxed(),
        FieldKind::Text => text.prop_map(Json::from).boxed(),
        FieldKind::Duration => (0..1_000_000_u64, 0..1_000_u16)
            .prop_map(|(seconds, millis)| json!(format!("{seconds}.{millis:03}s")))
            .boxed(),
        FieldKind::Choice(names) => proptest::sample::select(names.clone())
            .prop_map(Json::from)
            .boxed(),
        FieldKind::List(Some(names)) => {
            proptest::sample::subsequence(names.clone(), 0..=names.len())
                .prop_map(Json::from)
                .boxed()
        }
        FieldKind::List(None) => proptest::collection::vec(text, 0..3)
            .prop_map(Json::from)
            .boxed(),
        FieldKind::Rules => proptest::collection::btree_map(text, any::<u32>(), 0..3)
            .prop_map(|rules| {
                let rule = |(tool, chars)| (tool, json!({ "fixed_chars": chars }));
                Json::Object(rules.into_iter().map(rule).collect())
            })
            .boxed(),
    }
}

proptest! {
    #[test]
    fn any_policy_survives_a_round_trip(
        set in proptest::collection::vec(
            (0..policy_fields().len()).prop_flat_map(|index| {
                let field = &policy_fields()[index];
                any_value(&field.kind).prop_map(move |value| (field.path.clone(), value))
            }),
            0..12,
        )
    ) {
        let mut given = Overlay::default();
        for (path, value) in set {
            let mut more = given.clone();
            more.set(&path, value);
            // Combinations that the domain rejects are left out.
            if more.problems(Preset::default()).is_empty() {
                given = more;
            }
        }
        let domain = given.resolve(Preset::default()).unwrap();
        let preset = domain.preset;
        prop_assert_eq!(overlay_of(&domain).resolve(preset), Ok(domain));
    }
}
