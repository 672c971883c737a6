//! Presets and the overlays that override them.
//!
//! `presets/claude-code.toml` sets every field. The other presets are overlays on it, and so are the
//! settings of a server, a project and a session. Merging an overlay merges tables and replaces all
//! other values. A null removes the value beneath it.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Policy;

/// A named set of defaults for all policy settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Preset {
    /// Places the thresholds near the end of the window and tries session memory first.
    #[default]
    #[serde(rename = "claude_code", alias = "claude-code")]
    ClaudeCode,
    /// Behaves like Claude Code 2.1.19.
    #[serde(rename = "claude_code_2_1_19", alias = "claude-code-2.1.19")]
    ClaudeCode2119,
    /// Behaves like `OpenCode`.
    #[serde(rename = "opencode")]
    OpenCode,
    /// Defines the thresholds as shares of the window.
    #[serde(rename = "threshold")]
    Threshold,
    /// Compacts as soon as that reduces the cost of the session.
    #[serde(rename = "economy")]
    Economy,
}

impl Preset {
    /// All presets.
    pub const ALL: [Self; 5] = [
        Self::ClaudeCode,
        Self::ClaudeCode2119,
        Self::OpenCode,
        Self::Threshold,
        Self::Economy,
    ];

    /// Returns the name of the preset as users write it in settings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::ClaudeCode2119 => "claude-code-2.1.19",
            Self::OpenCode => "opencode",
            Self::Threshold => "threshold",
            Self::Economy => "economy",
        }
    }

    /// Returns the preset with this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|preset| preset.name() == name)
    }

    /// Returns the complete policy of the preset.
    pub fn policy(self) -> Policy {
        static PRESETS: LazyLock<[Policy; 5]> = LazyLock::new(|| {
            Preset::ALL.map(|preset| {
                let policy = Overlay::default().resolve_from(preset);
                policy.expect("the presets are complete, and the tests say so")
            })
        });
        let index = Self::ALL.iter().position(|preset| *preset == self);
        // `ALL` contains every preset, so the default is never used.
        PRESETS[index.unwrap_or(0)].clone()
    }

    fn source(self) -> &'static str {
        match self {
            Self::ClaudeCode => include_str!("presets/claude-code.toml"),
            Self::ClaudeCode2119 => include_str!("presets/claude-code-2.1.19.toml"),
            Self::OpenCode => include_str!("presets/opencode.toml"),
            Self::Threshold => include_str!("presets/threshold.toml"),
            Self::Economy => include_str!("presets/economy.toml"),
        }
    }
}

/// Fields that were renamed after policies had been stored: section, former name, current name.
const FORMER_NAMES: [(&str, &str, &str); 2] = [
    ("tool_results", "preview_bytes", "preview_chars"),
    ("attachments", "listings", "capabilities"),
];

/// Policy fields that override those of a preset, server or project.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Overlay(Map<String, Value>);

/// The reason why an overlay does not resolve to a valid policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct OverlayError {
    /// The path of the invalid field.
    pub path: String,
    /// The description of the problem.
    pub message: String,
}

impl Overlay {
    /// Creates an overlay from fields by name.
    pub fn new(fields: Map<String, Value>) -> Self {
        Self(fields)
    }

    /// Parses an overlay from TOML.
    pub fn from_toml(text: &str) -> Result<Self, OverlayError> {
        toml::from_str(text)
            .map(Self)
            .map_err(|error| OverlayError {
                path: "policy".into(),
                message: error.message().into(),
            })
    }

    /// Returns true if the overlay sets no field.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the top-level fields.
    pub fn fields(&self) -> &Map<String, Value> {
        &self.0
    }

    /// Merges `over` into this overlay. Values of `over` take precedence.
    pub fn merge(&mut self, over: &Self) {
        merge(&mut self.0, &over.0);
    }

    /// Returns the value at a path of field names.
    pub fn get(&self, path: &[impl AsRef<str>]) -> Option<&Value> {
        let (first, rest) = path.split_first()?;
        let first = self.0.get(first.as_ref())?;
        rest.iter()
            .try_fold(first, |at, name| at.get(name.as_ref()))
    }

    /// Sets the value at a path of field names. Does nothing if the path is empty.
    pub fn set(&mut self, path: &[impl AsRef<str>], value: Value) {
        let Some((first, rest)) = path.split_first() else {
            return;
        };
        let one = |name: &str, value| Map::from_iter([(name.to_owned(), value)]);
        let mut value = value;
        for name in rest.iter().rev() {
            value = Value::Object(one(name.as_ref(), value));
        }
        merge(&mut self.0, &one(first.as_ref(), value));
    }

    /// Resolves the overlay against the preset that it names. Uses `preset` if the overlay names
    /// none.
    pub fn resolve(&self, preset: Preset) -> Result<Policy, OverlayError> {
        let named = match self.0.get("preset") {
            Some(name) => field("preset", name.clone())?,
            None => preset,
        };
        self.resolve_from(named)
    }

    /// Restores a policy from its stored fields. Missing fields of a policy that an older version
    /// stored are filled from its preset. Former field names are accepted. Rules between fields are
    /// not checked, because a stored policy may break rules that were added later.
    pub fn restore_policy(mut self) -> Result<Policy, OverlayError> {
        for (section, former, name) in FORMER_NAMES {
            if let Some(Value::Object(fields)) = self.0.get_mut(section)
                && let Some(value) = fields.remove(former)
            {
                fields.insert(name.to_owned(), value);
            }
        }
        // A current policy is complete. The preset fills fields only when this read fails.
        if let Ok(policy) = self.clone().read() {
            return Ok(policy);
        }
        let preset = match self.0.get("preset") {
            Some(name) => field("preset", name.clone())?,
            None => Preset::default(),
        };
        self.with_preset(preset)?.read()
    }

    fn resolve_from(&self, preset: Preset) -> Result<Policy, OverlayError> {
        self.with_preset(preset)?.into_policy()
    }

    /// Returns all fields of a preset with this overlay merged into them.
    fn with_preset(&self, preset: Preset) -> Result<Self, OverlayError> {
        let mut whole = Self::from_toml(Preset::ClaudeCode.source())?;
        if preset != Preset::ClaudeCode {
            whole.merge(&Self::from_toml(preset.source())?);
        }
        whole.merge(self);
        Ok(whole)
    }

    /// Applies the overlay to an existing policy. An overlay that names a preset replaces the policy
    /// instead.
    pub fn apply_to(&self, policy: &Policy) -> Result<Policy, OverlayError> {
        if self.0.contains_key("preset") {
            return self.resolve(policy.preset);
        }
        let mut whole = Self::of(policy);
        whole.merge(self);
        whole.into_policy()
    }

    /// Returns all fields of a policy as an overlay.
    pub fn of(policy: &Policy) -> Self {
        match serde_json::to_value(policy) {
            Ok(Value::Object(fields)) => Self(fields),
            // A policy is a struct and always becomes an object, so this arm is never used.
            _ => Self::default(),
        }
    }

    /// Returns all problems that prevent the overlay from being resolved. Returns the values that
    /// are invalid by themselves or, if there are none, the conflicts between fields. A starting
    /// server reports the whole list.
    pub fn problems(&self, preset: Preset) -> Vec<OverlayError> {
        let named = self.0.get("preset").cloned();
        let named = named.and_then(|name| field("preset", name).ok());
        let preset = named.unwrap_or(preset);
        let mut leaves = Vec::new();
        collect_leaves(&mut Vec::new(), &self.0, &mut leaves);
        // Each value is checked alone, because deserialization of the whole stops at the first
        // error.
        let alone = |(path, value): (Vec<&str>, &Value)| {
            let mut overlay = Self::default();
            overlay.set(&path, value.clone());
            overlay.with_preset(preset).and_then(Self::read).err()
        };
        let wrong: Vec<_> = leaves.into_iter().filter_map(alone).collect();
        if !wrong.is_empty() {
            return wrong;
        }
        match self.with_preset(preset).and_then(Self::read) {
            Ok(policy) => policy.validate(),
            Err(error) => vec![error],
        }
    }

    fn into_policy(self) -> Result<Policy, OverlayError> {
        let policy = self.read()?;
        policy.validate().into_iter().next().map_or(Ok(policy), Err)
    }

    fn read(mut self) -> Result<Policy, OverlayError> {
        remove_nulls(&mut self.0);
        field("policy", Value::Object(self.0))
    }
}

/// Removes the fields that an overlay sets to null.
fn remove_nulls(fields: &mut Map<String, Value>) {
    fields.retain(|_, value| !value.is_null());
    for value in fields.values_mut() {
        if let Value::Object(fields) = value {
            remove_nulls(fields);
        }
    }
}

/// Collects every leaf value with its path. A tool rule counts as one leaf.
fn collect_leaves<'a>(
    path: &mut Vec<&'a str>,
    fields: &'a Map<String, Value>,
    found: &mut Vec<(Vec<&'a str>, &'a Value)>,
) {
    for (name, value) in fields {
        path.push(name);
        match value {
            // An empty table has no leaf, so the table itself is checked.
            Value::Object(inner) if !is_rule(inner) && !inner.is_empty() => {
                collect_leaves(path, inner, found);
            }
            _ => found.push((path.clone(), value)),
        }
        path.pop();
    }
}

/// Deserializes a value. The error contains the path of the invalid field.
fn field<T: for<'de> Deserialize<'de>>(path: &str, value: Value) -> Result<T, OverlayError> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let inner = error.path().to_string();
        OverlayError {
            path: if inner == "." {
                path.to_owned()
            } else {
                format!("{path}.{inner}")
            },
            message: error.into_inner().to_string(),
        }
    })
}

fn merge(under: &mut Map<String, Value>, over: &Map<String, Value>) {
    for (name, value) in over {
        match (under.get_mut(name), value) {
            // A tool rule is one of several variants. Merging two variants would create an invalid
            // rule, so the rule is replaced.
            (Some(Value::Object(under)), Value::Object(over)) if !is_rule(under) => {
                merge(under, over);
            }
            _ => {
                under.insert(name.clone(), value.clone());
            }
        }
    }
}

fn is_rule(fields: &Map<String, Value>) -> bool {
    ["declared_chars", "fixed_chars", "never_persist"]
        .iter()
        .any(|kind| fields.contains_key(*kind))
}

#[cfg(test)]
mod tests {
    use super::super::{PreviewMode, ThresholdBasis, ToolResultRule};
    use super::*;

    #[test]
    fn presets_have_their_documented_differences() {
        let [code, old, open, threshold, economy] = Preset::ALL.map(Preset::policy);
        assert_eq!(code, Policy::default());
        assert!(code.microcompact.time.enabled && code.autocompact.session_memory_first);
        assert_eq!(old.tool_results.max_result_chars, 400_000);
        assert!(old.microcompact.size.enabled && !old.microcompact.time.enabled);
        assert!(open.microcompact.prune.enabled && open.snip.wrap_interjections);
        assert_eq!(open.autocompact.basis, ThresholdBasis::InputLimit);
        assert_eq!(threshold.autocompact.keep_messages, 5);
        assert!(economy.economy.enabled && !code.economy.enabled);
        for preset in Preset::ALL {
            assert_eq!(preset.policy().preset, preset);
            assert_eq!(Preset::by_name(preset.name()), Some(preset));
        }
    }

    #[test]
    fn presets_tag_turns_and_attach_instructions_like_their_originals() {
        let of_claude_code: &[&str] = &["CLAUDE.md", "CLAUDE.local.md", "AGENTS.md"];
        let of_opencode: &[&str] = &["AGENTS.md", "CLAUDE.md", "CONTEXT.md"];
        for (preset, tags_turns, instruction_files) in [
            (Preset::ClaudeCode, true, of_claude_code),
            (Preset::ClaudeCode2119, false, of_claude_code),
            (Preset::OpenCode, false, of_opencode),
            (Preset::Threshold, false, of_claude_code),
            (Preset::Economy, false, of_claude_code),
        ] {
            let policy = preset.policy();
            assert_eq!(policy.snip.tag_turns, tags_turns, "{preset:?}");
            let names = policy.attachments.instruction_files.iter();
            let names: Vec<&str> = names.map(|name| &**name).collect();
            assert_eq!(names, instruction_files, "{preset:?}");
        }
    }

    #[test]
    fn overlays_merge_tables_and_replace_the_rest() {
        let overlay = Overlay::from_toml(
            r#"
            preset = "opencode"
            [tool_results]
            preview_mode = "head_and_tail"
            rules.Read = { fixed_chars = 10 }
            [microcompact]
            protected_tools = []
            "#,
        )
        .unwrap();
        let policy = overlay.resolve(Preset::ClaudeCode).unwrap();
        assert_eq!(policy.preset, Preset::OpenCode);
        assert_eq!(policy.tool_results.preview_mode, PreviewMode::HeadAndTail);
        assert_eq!(policy.microcompact.protected_tools, Some(vec![]));
        let mut over = Overlay::default();
        let rule = serde_json::json!({ "never_persist": true });
        over.set(&["tool_results", "rules", "Read"], rule);
        let policy = over.apply_to(&policy).unwrap();
        let rules = policy.tool_results.rules;
        assert_eq!(rules["Read"], ToolResultRule::NeverPersist(true));
        assert_eq!(policy.preset, Preset::OpenCode);
    }

    #[test]
    fn a_stored_policy_may_have_former_names() {
        let mut fields = Overlay::of(&Policy::default());
        for (section, former, name) in FORMER_NAMES {
            let Some(Value::Object(section)) = fields.0.get_mut(section) else {
                panic!("no section {section}");
            };
            section.remove(name).unwrap();
            section.insert(former.to_owned(), Value::Null);
        }
        fields.set(&["tool_results", "preview_bytes"], 300.into());
        fields.set(&["attachments", "listings"], false.into());
        let policy = fields.clone().restore_policy().unwrap();
        assert_eq!(policy.tool_results.preview_chars, 300);
        assert!(!policy.attachments.capabilities);
        assert!(fields.read().is_err(), "only a stored policy may");
    }

    #[test]
    fn an_error_names_its_field() {
        let error = |text: &str| {
            let overlay = Overlay::from_toml(text).unwrap();
            overlay.resolve(Preset::ClaudeCode).unwrap_err().path
        };
        assert_eq!(error("snip.nudge = 3"), "policy.snip.nudge");
        assert_eq!(error("collapse.max_risk = 3.0"), "policy.collapse.max_risk");
        assert_eq!(error("snip.colour = 3"), "policy.snip.colour");
        assert_eq!(error("preset = \"best\""), "preset");
        assert_eq!(
            error("collapse.target_percent = 99"),
            "policy.collapse.target_percent"
        );
    }

    #[test]
    fn null_removes_the_value_of_a_lower_layer() {
        let mut rules = Overlay::default();
        let rule = serde_json::json!({ "fixed_chars": 10 });
        rules.set(&["tool_results", "rules", "Read"], rule);
        let policy = rules.resolve(Preset::ClaudeCode2119).unwrap();
        let mut back = Overlay::default();
        back.set(&["tool_results", "rules", "Read"], Value::Null);
        back.set(&["autocompact", "block_at_percent"], Value::Null);
        let policy = back.apply_to(&policy).unwrap();
        assert!(policy.tool_results.rules.is_empty());
        assert_eq!(policy.autocompact.block_at_percent, None);
    }

    #[test]
    fn all_problems_are_reported_with_conflicts_last() {
        let paths = |text: &str| {
            let overlay = Overlay::from_toml(text).unwrap();
            let problems = overlay.problems(Preset::ClaudeCode);
            problems
                .into_iter()
                .map(|problem| problem.path)
                .collect::<Vec<_>>()
        };
        // Invalid values hide conflicts between fields, because a policy with invalid values cannot
        // be built.
        let single = "
            snip.nudge = 3
            collapse.max_risk = 3.0
            collapse.target_percent = 99
            tool_results.rules.Read = { fixed_chars = true }
        ";
        assert_eq!(
            paths(single),
            [
                "policy.collapse.max_risk",
                "policy.snip.nudge",
                "policy.tool_results.rules.Read.fixed_chars"
            ]
        );
        let between = "
            collapse.target_percent = 99
            model_tools.max_answer_bytes = 1
            tool_results.rules.Read = { never_persist = false }
        ";
        assert_eq!(
            paths(between),
            [
                "policy.collapse.target_percent",
                "policy.model_tools.max_answer_bytes",
                "policy.tool_results.rules"
            ]
        );
        assert!(paths("").is_empty());
    }

    #[test]
    fn a_policy_survives_a_round_trip_through_its_fields() {
        for preset in Preset::ALL {
            let policy = preset.policy();
            let again = Overlay::of(&policy).resolve(Preset::ClaudeCode).unwrap();
            assert_eq!(again, policy);
        }
    }
}
