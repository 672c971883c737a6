//! Tests of policy updates.

use palimpsest_core::policy::{Overlay, Policy, Preset};
use serde_json::{Value as Json, json};

use super::super::{PolicyChange, masked_path};

/// Returns the policy of a session after a change.
fn changed(given: Json, masked: Option<&[&str]>, session: Json, inherited: Json) -> Policy {
    let over = |json: Json| match json {
        Json::Object(fields) => Overlay::new(fields),
        _ => Overlay::default(),
    };
    let mut inherited = over(inherited);
    if inherited.get(&["preset"]).is_none() {
        inherited.set(&["preset"], "claude_code".into());
    }
    let mut now = inherited.clone();
    now.merge(&over(session));
    let now = now.resolve(Preset::default()).unwrap();
    let masked = masked.map(|paths| {
        let paths = paths.iter().map(|path| masked_path(path).unwrap());
        paths.collect()
    });
    let change = PolicyChange::of(over(given), masked);
    let overlay = change.overlay(&now, &inherited).unwrap();
    overlay.apply_to(&now).unwrap()
}

#[test]
fn without_a_mask_only_set_fields_change() {
    let session = json!({ "snip": { "nudge_after_messages": 3 } });
    let after = changed(
        json!({ "snip": { "nudge": true } }),
        None,
        session,
        json!({}),
    );
    assert!(after.snip.nudge);
    assert_eq!(after.snip.nudge_after_messages, 3);
}

#[test]
fn masked_fields_without_a_value_are_inherited() {
    let session = json!({
        "preset": "opencode",
        "snip": { "nudge": true, "nudge_after_messages": 3, "wrap_interjections": false },
        "tool_results": { "rules": { "Read": { "fixed_chars": 1 } } },
        "summary": { "model": "m" },
    });
    let inherited = json!({
        "snip": { "nudge_after_messages": 7 },
        "tool_results": { "rules": { "Bash": { "fixed_chars": 2 } } },
    });
    // Fields that the mask names and the update leaves unset take the inherited values.
    let after = changed(
        json!({ "snip": { "nudge": true }, "autocompact": { "enabled": false } }),
        Some(&[
            "policy_overrides.snip",
            "policy_overrides.tool_results.rules",
            "policy_overrides.summary.model",
        ]),
        session.clone(),
        inherited.clone(),
    );
    assert_eq!(after.preset, Preset::OpenCode);
    assert!(after.snip.nudge && after.snip.wrap_interjections);
    assert_eq!(after.snip.nudge_after_messages, 7);
    assert_eq!(after.summary.model, None);
    let tools: Vec<_> = after
        .tool_results
        .rules
        .keys()
        .map(|tool| &**tool)
        .collect();
    assert_eq!(tools, ["Bash"]);
    assert!(
        after.autocompact.enabled,
        "a field outside the mask was changed"
    );

    let none = changed(json!({}), Some(&["policy_overrides"]), session, inherited);
    assert_eq!(none.preset, Preset::ClaudeCode);
    assert!(!none.snip.nudge && none.autocompact.enabled);
    assert_eq!(none.snip.nudge_after_messages, 7);
}

#[test]
fn a_new_preset_discards_overrides_and_keeps_inherited_values() {
    let session = json!({ "snip": { "nudge": true } });
    let inherited = json!({ "collapse": { "enabled": true } });
    let given = json!({ "preset": "threshold", "snip": { "nudge_after_messages": 9 } });
    let masks: [Option<&[&str]>; 2] = [
        None,
        Some(&[
            "policy_overrides.preset",
            "policy_overrides.snip.nudge_after_messages",
        ]),
    ];
    for mask in masks {
        let after = changed(given.clone(), mask, session.clone(), inherited.clone());
        assert_eq!(after.preset, Preset::Threshold);
        assert!(after.collapse.enabled && !after.snip.nudge);
        assert_eq!(after.snip.nudge_after_messages, 9);
        assert_eq!(after.autocompact.keep_messages, 5);
    }
}
