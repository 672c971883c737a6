//! The policy of new sessions as settings: `[policy]` for the server and `[projects.NAME.policy]` for one project.
//!
//! The contract defines the fields, so the table of settings does not list them.

use std::collections::{BTreeMap, BTreeSet};

use palimpsest_core::ids::ProjectId;
use palimpsest_core::policy::{Overlay, OverlayError, Preset};
use serde_json::{Map, Value as Json};

use crate::PolicyConfig;
use crate::problem::{ConfigProblem, SettingOrigin};
use crate::source::VARIABLE_PREFIX;
use crate::suggest::{closest, listed_in, renamed};
use crate::value::{RawValue, SettingValue as _, number, whole_number};
use crate::{FieldKind, PolicyField, policy_fields};

/// The scope of a policy: a project, or `None` for the server.
pub(crate) type PolicyScope = Option<ProjectId>;

pub(crate) fn key(scope: &PolicyScope, path: &[impl AsRef<str>]) -> String {
    let mut key = match scope {
        None => "policy".to_owned(),
        Some(project) => format!("projects.{project}.policy"),
    };
    for name in path {
        key.push('.');
        key.push_str(name.as_ref());
    }
    key
}

/// Returns the keys of all fields of the server's policy.
pub(crate) fn keys() -> impl Iterator<Item = String> {
    policy_fields().iter().map(|field| key(&None, &field.path))
}

/// Returns the environment variable that sets a field of the server's policy.
pub(crate) fn variable(field: &PolicyField) -> String {
    format!(
        "{VARIABLE_PREFIX}POLICY_{}",
        field.path.join("_").to_uppercase()
    )
}

/// Returns the field with a key of the server's policy.
pub(crate) fn by_key(key: &str) -> Option<&'static PolicyField> {
    let path = key.strip_prefix("policy.")?;
    let is_it = |field: &&PolicyField| field.path.iter().map(String::as_str).eq(path.split('.'));
    policy_fields().iter().find(is_it)
}

/// Returns the field that an environment variable sets.
pub(crate) fn by_variable(name: &str) -> Option<&'static PolicyField> {
    policy_fields().iter().find(|field| variable(field) == name)
}

/// The result of looking up a path.
pub(crate) enum PathMatch {
    Field(&'static PolicyField),
    Section,
    Nothing,
}

pub(crate) fn find(path: &[String]) -> PathMatch {
    let fields = policy_fields();
    match fields.iter().find(|field| field.path.starts_with(path)) {
        Some(field) if field.path.len() == path.len() => PathMatch::Field(field),
        Some(_) => PathMatch::Section,
        None => PathMatch::Nothing,
    }
}

/// Returns a suggestion for an unknown path. Only names in the same section are compared, because a long common
/// prefix would make any two keys similar.
pub(crate) fn did_you_mean(scope: &PolicyScope, path: &[String]) -> String {
    let Some((name, section)) = path.split_last() else {
        return String::new();
    };
    if let Some(new) = renamed(&key(&None, path)) {
        let path: Vec<&str> = new.split('.').skip(1).collect();
        return format!(": its new name is {}", key(scope, &path));
    }
    let beside = policy_fields()
        .iter()
        .filter(|field| field.path.starts_with(section))
        .filter_map(|field| field.path.get(section.len()).cloned());
    let beside: BTreeSet<String> = beside.collect();
    let section = key(scope, section);
    match closest(name, beside.iter().cloned()) {
        Some(best) => format!(": did you mean {section}.{best}?"),
        None => listed_in(&section, beside.iter().map(String::as_str)),
    }
}

/// Parses the value of a field. Ranges are checked later by the core.
pub(crate) fn read(kind: &FieldKind, raw: &RawValue) -> Result<Json, String> {
    match kind {
        FieldKind::Bool => bool::read(raw, None).map(Json::from),
        FieldKind::Integer(most) => whole_number(raw, Some(0..=*most)).map(Json::from),
        FieldKind::Number => number(raw).map(Json::from),
        FieldKind::Text => text(raw, "a text"),
        FieldKind::Duration => text(raw, "a duration in seconds, such as \"90s\""),
        FieldKind::Choice(names) => choice(raw, names),
        FieldKind::List(names) => list(raw, names.as_deref()),
        FieldKind::Rules => rules(raw),
    }
}

fn text(raw: &RawValue, expected: &str) -> Result<Json, String> {
    raw.text()
        .map(Json::from)
        .ok_or_else(|| raw.type_error(expected))
}

/// Parses a name of an enum in the form of the contract or in the usual form, such as `claude-code-2.1.19`.
fn choice(raw: &RawValue, names: &[String]) -> Result<Json, String> {
    let given = raw.text().map(|text| text.trim().replace(['-', '.'], "_"));
    given
        .filter(|given| names.contains(given))
        .map(Json::from)
        .ok_or_else(|| {
            let names: Vec<_> = names
                .iter()
                .map(|name| format!("{:?}", usual(name)))
                .collect();
            raw.type_error(&names.join(" or "))
        })
}

/// Returns the usual name of a choice. Only presets have one besides the name in the contract.
fn usual(name: &str) -> &str {
    let of_people = Preset::ALL.map(Preset::name).into_iter();
    let mut same = of_people.filter(|own| own.replace(['-', '.'], "_") == name);
    same.next().unwrap_or(name)
}

/// Returns the spellings of choices that users write: the usual names, the names in the contract, and these with
/// hyphens.
pub(crate) fn spellings(names: &[String]) -> Vec<String> {
    let mut all = Vec::new();
    for name in names {
        for spelling in [usual(name).to_owned(), name.clone(), name.replace('_', "-")] {
            if !all.contains(&spelling) {
                all.push(spelling);
            }
        }
    }
    all
}

/// Parses a list. In a variable or a flag, the items are separated by commas.
fn list(raw: &RawValue, names: Option<&[String]>) -> Result<Json, String> {
    let split;
    let items = match raw {
        RawValue::List(items) => items,
        RawValue::Text(text) => {
            let items = text
                .split(',')
                .map(str::trim)
                .filter(|item| !item.is_empty());
            split = items.map(|item| RawValue::Text(item.to_owned())).collect();
            &split
        }
        _ => return Err(raw.type_error("a list of strings")),
    };
    let item = |item: &RawValue| match names {
        Some(names) => choice(item, names),
        None => text(item, "a list of strings"),
    };
    items.iter().map(item).collect()
}

/// Parses rules in a variable or a flag, as an inline TOML table.
fn rules(raw: &RawValue) -> Result<Json, String> {
    let refused = || raw.type_error("a table such as { Read = { fixed_chars = 1000 } }");
    let text = raw.text().ok_or_else(refused)?;
    let table: Map<String, Json> =
        toml::from_str(&format!("rules = {text}")).map_err(|_| refused())?;
    match table.get("rules") {
        // A text with a line break can define further keys, so `rules` must be the only one.
        Some(rules @ Json::Object(_)) if table.len() == 1 => Ok(rules.clone()),
        _ => Err(refused()),
    }
}

/// The given settings of policies, by scope and path. A later value replaces an earlier one.
#[derive(Debug, Default)]
pub(crate) struct PolicySettings(
    BTreeMap<PolicyScope, BTreeMap<Vec<String>, (Json, SettingOrigin)>>,
);

impl PolicySettings {
    /// Sets a field.
    pub(crate) fn set(
        &mut self,
        scope: &PolicyScope,
        path: Vec<String>,
        value: Json,
        origin: SettingOrigin,
    ) {
        let is_rules = find(&path);
        match (is_rules, value) {
            // Each rule is set on its own, so that rules of different layers are merged.
            (PathMatch::Field(field), Json::Object(rules)) if field.kind == FieldKind::Rules => {
                for (name, rule) in rules {
                    let mut path = path.clone();
                    path.push(name);
                    self.note(scope, path, rule, origin.clone());
                }
            }
            (_, value) => self.note(scope, path, value, origin),
        }
    }

    fn note(&mut self, scope: &PolicyScope, path: Vec<String>, value: Json, origin: SettingOrigin) {
        let of = self.0.entry(scope.clone()).or_default();
        of.insert(path, (value, origin));
    }

    fn overlay(&self, scope: &PolicyScope) -> Overlay {
        let mut overlay = Overlay::default();
        for (path, (value, _)) in self.0.get(scope).into_iter().flatten() {
            overlay.set(path, value.clone());
        }
        overlay
    }

    /// The overlays of the server and of all projects.
    pub(crate) fn config(&self) -> PolicyConfig {
        let projects = self.0.keys().flatten();
        PolicyConfig {
            server: self.overlay(&None),
            projects: projects
                .map(|project| (project.clone(), self.overlay(&Some(project.clone()))))
                .collect(),
        }
    }

    /// The origin of each set field, by key.
    pub(crate) fn origins(&self) -> impl Iterator<Item = (String, SettingOrigin)> {
        self.0.iter().flat_map(|(scope, given)| {
            let one = |(path, (_, origin)): (&Vec<String>, &(Json, SettingOrigin))| {
                (key(scope, path), origin.clone())
            };
            given.iter().map(one)
        })
    }

    /// Returns all errors of the policies that the settings resolve to.
    pub(crate) fn problems(&self) -> Vec<ConfigProblem> {
        let server = self.overlay(&None);
        let told = |scope: &PolicyScope, errors: Vec<OverlayError>| {
            let told = errors.into_iter().map(|error| self.problem(scope, error));
            told.collect::<Vec<_>>()
        };
        let mut problems = told(&None, server.problems(Preset::default()));
        // Errors of the server's settings are not repeated for each project.
        let beneath = if problems.is_empty() {
            server
        } else {
            Overlay::default()
        };
        for scope in self.0.keys().filter(|scope| scope.is_some()) {
            // A project's settings are checked together with the server's, as sessions resolve them.
            let mut all = beneath.clone();
            all.merge(&self.overlay(scope));
            problems.extend(told(scope, all.problems(Preset::default())));
        }
        problems
    }

    fn problem(&self, scope: &PolicyScope, error: OverlayError) -> ConfigProblem {
        // The first part of the path is `policy`, which `key` adds again for the scope.
        let path: Vec<&str> = error.path.split('.').skip(1).collect();
        let message = if error.message.starts_with("must") {
            error.message
        } else {
            format!("is invalid: {}", error.message)
        };
        ConfigProblem {
            origin: self.set_where(scope, &path),
            key: Some(key(scope, &path)),
            message,
        }
    }

    /// Returns the origin of a field. If the field was not set, returns the origin of the field with the longest
    /// common path, which the error also concerns.
    fn set_where(&self, scope: &PolicyScope, path: &[&str]) -> SettingOrigin {
        let given = |scope| self.0.get(scope).into_iter().flatten();
        let all = || given(scope).chain(given(&None));
        let shared = |at: &[String]| at.iter().zip(path).take_while(|(a, b)| a == b).count();
        all()
            .filter(|(at, _)| shared(at) > 0)
            // The longest common path wins. Among equals an exact path wins.
            .max_by_key(|(at, _)| (shared(at), at.len() == path.len()))
            .map_or(SettingOrigin::Default, |(_, (_, origin))| origin.clone())
    }
}
