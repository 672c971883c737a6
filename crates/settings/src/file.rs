//! Parses a TOML file into single settings with their line numbers.

use std::path::Path;

use palimpsest_core::ids::ProjectId;
use palimpsest_core::models::ModelEntry;
use serde_json::Value as Json;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use crate::FieldKind;
use crate::models;
use crate::policy::{self, PathMatch, PolicyScope};
use crate::problem::{ConfigProblem, SettingOrigin};
use crate::quotas::QuotaOverride;
use crate::settings::{SETTINGS, Setting, by_key};
use crate::suggest::did_you_mean;
use crate::value::RawValue;

pub(crate) struct FileSetting {
    pub(crate) setting: &'static Setting,
    pub(crate) raw: RawValue,
    pub(crate) origin: SettingOrigin,
}

pub(crate) struct FilePolicySetting {
    pub(crate) scope: PolicyScope,
    pub(crate) path: Vec<String>,
    pub(crate) value: Json,
    pub(crate) origin: SettingOrigin,
}

pub(crate) struct ParsedFile {
    pub(crate) given: Vec<FileSetting>,
    pub(crate) policies: Vec<FilePolicySetting>,
    /// Quotas of single projects.
    pub(crate) quotas: Vec<QuotaOverride>,
    /// Retention settings of single projects: the project and the name of the setting.
    pub(crate) retention: Vec<(ProjectId, String, RawValue, SettingOrigin)>,
    /// Settings of hook endpoints, by their key without `hooks.endpoints.`.
    pub(crate) endpoints: Vec<(String, RawValue, SettingOrigin)>,
    /// Entries of the table of models.
    pub(crate) models: Vec<(ModelEntry, SettingOrigin)>,
    pub(crate) problems: Vec<ConfigProblem>,
}

/// Returns all settings and all errors of a file.
pub(crate) fn read(path: &Path, text: &str) -> ParsedFile {
    // The recovering parser returns all syntax errors instead of the first one.
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut reader = FileParser {
        path,
        text,
        read: ParsedFile {
            given: Vec::new(),
            policies: Vec::new(),
            quotas: Vec::new(),
            retention: Vec::new(),
            endpoints: Vec::new(),
            models: Vec::new(),
            problems: Vec::new(),
        },
    };
    if errors.is_empty() {
        reader.table("", table.get_ref());
    }
    // After a syntax error the recovered values are a guess, so only the syntax errors are reported.
    for error in errors {
        let at = error.span().map_or(0, |span| span.start);
        let message = match unquoted(text, at) {
            Some(key) => format!("is not TOML: text needs quotes, such as {key} = \"…\""),
            None => format!("is not TOML: {}", error.message()),
        };
        reader.problem(at, None, message);
    }
    reader.read
}

/// Returns the key of a line whose value is a text without quotes. The TOML parser reports such a value as an invalid
/// number.
fn unquoted(text: &str, at: usize) -> Option<&str> {
    // The parser's offset may lie within a character.
    let at = text.floor_char_boundary(at);
    let start = text[..at].rfind('\n').map_or(0, |end| end + 1);
    let line = text[start..].lines().next()?;
    let (key, value) = line.split_once('=')?;
    let (key, value) = (key.trim(), value.split('#').next()?.trim());
    let is_key = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    // Words and paths are the usual texts that people forget to quote.
    let is_text = value.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/');
    (!key.is_empty() && key.chars().all(is_key) && is_text && !matches!(value, "true" | "false"))
        .then_some(key)
}

struct FileParser<'a> {
    path: &'a Path,
    text: &'a str,
    read: ParsedFile,
}

impl FileParser<'_> {
    fn table(&mut self, prefix: &str, table: &DeTable<'_>) {
        for (name, value) in in_order(table) {
            match (prefix, &**name.get_ref(), value.get_ref()) {
                ("", "policy", DeValue::Table(table)) => {
                    self.policy(&None, &mut Vec::new(), table);
                }
                ("", "projects", DeValue::Table(table)) => self.projects(table),
                ("hooks", "endpoints", DeValue::Table(table)) => self.endpoints(table),
                ("", models::KEY, DeValue::Array(entries)) => {
                    for (index, entry) in entries.iter().enumerate() {
                        self.model(index, entry);
                    }
                }
                ("", models::KEY, _) => {
                    self.problem(name.span().start, None, models::NO_LIST.to_owned());
                }
                ("", section @ ("policy" | "projects"), _) => {
                    let message = format!("{section} is a section: write [{section}]");
                    self.problem(name.span().start, None, message);
                }
                _ => self.entry(prefix, name, value),
            }
        }
    }

    /// Reads the sections of single projects.
    fn projects(&mut self, table: &DeTable<'_>) {
        for (name, value) in in_order(table) {
            let (at, project) = (name.span().start, name.get_ref());
            let scope = match ProjectId::new(project) {
                Ok(id) => Some(id),
                Err(error) => {
                    self.problem(at, None, format!("projects.{project}: {error}"));
                    continue;
                }
            };
            let inner = match value.get_ref() {
                DeValue::Table(table) => in_order(table),
                _ => Vec::new(),
            };
            // An empty table and a value that is no table get the same error.
            if inner.is_empty() {
                let message =
                    format!("projects.{project} is a section: write [projects.{project}.policy]");
                self.problem(at, None, message);
            }
            for (name, value) in inner {
                match (&**name.get_ref(), value.get_ref()) {
                    ("policy", DeValue::Table(table)) => {
                        self.policy(&scope, &mut Vec::new(), table);
                    }
                    ("quotas", DeValue::Table(table)) => self.quotas(&scope, table),
                    ("retention", DeValue::Table(table)) => self.retention(&scope, table),
                    (other, _) => {
                        let message = format!(
                            "projects.{project}.{other} is not a setting: a project has sections \
                             such as [projects.{project}.policy]"
                        );
                        self.problem(name.span().start, None, message);
                    }
                }
            }
        }
    }

    fn quotas(&mut self, scope: &PolicyScope, table: &DeTable<'_>) {
        let Some(project) = scope else { return };
        for (name, value) in in_order(table) {
            let given = QuotaOverride {
                project: project.clone(),
                name: name.get_ref().to_string(),
                raw: raw(value.get_ref()),
                origin: self.origin(name.span().start),
            };
            self.read.quotas.push(given);
        }
    }

    /// Reads the retention settings of a project.
    fn retention(&mut self, scope: &PolicyScope, table: &DeTable<'_>) {
        for (name, value) in in_order(table) {
            if let Some(project) = scope {
                let (name, at) = (name.get_ref().to_string(), name.span().start);
                let given = (project.clone(), name, raw(value.get_ref()), self.origin(at));
                self.read.retention.push(given);
            }
        }
    }

    /// Reads the hook endpoints.
    fn endpoints(&mut self, table: &DeTable<'_>) {
        for (name, value) in in_order(table) {
            let endpoint = name.get_ref();
            let DeValue::Table(fields) = value.get_ref() else {
                let section = format!("hooks.endpoints.{endpoint}");
                let message = format!("{section} is a section: write [{section}]");
                self.problem(name.span().start, None, message);
                continue;
            };
            for (field, value) in in_order(fields) {
                let rest = format!("{endpoint}.{}", field.get_ref());
                let given = (rest, raw(value.get_ref()), self.origin(field.span().start));
                self.read.endpoints.push(given);
            }
        }
    }

    /// Reads an entry of the table of models.
    fn model(&mut self, index: usize, entry: &Spanned<DeValue<'_>>) {
        match models::read(index, entry) {
            Ok(read) => {
                let origin = self.origin(entry.span().start);
                self.read.models.push((read, origin));
            }
            Err((at, message)) => self.problem(at, None, message),
        }
    }

    fn policy(&mut self, scope: &PolicyScope, path: &mut Vec<String>, table: &DeTable<'_>) {
        for (name, value) in in_order(table) {
            path.push(name.get_ref().to_string());
            self.policy_entry(scope, path, name.span().start, value.get_ref());
            path.pop();
        }
    }

    fn policy_entry(
        &mut self,
        scope: &PolicyScope,
        path: &mut Vec<String>,
        at: usize,
        value: &DeValue<'_>,
    ) {
        // The kind of the path decides how its value is read: a field, a section or an unknown name.
        let key = policy::key(scope, path);
        match (policy::find(path), value) {
            (PathMatch::Field(field), DeValue::Table(rules)) if field.kind == FieldKind::Rules => {
                // Names of rules are names of tools, so any name is accepted.
                for (name, rule) in in_order(rules) {
                    path.push(name.get_ref().to_string());
                    self.push_policy(scope, path, name.span().start, json(rule.get_ref()));
                    path.pop();
                }
            }
            (PathMatch::Field(field), value) => match policy::read(&field.kind, &raw(value)) {
                Ok(value) => self.push_policy(scope, path, at, value),
                Err(message) => self.problem(at, Some(key), message),
            },
            (PathMatch::Section, DeValue::Table(table)) => self.policy(scope, path, table),
            (PathMatch::Section, _) => {
                self.problem(at, None, format!("{key} is a section: write [{key}]"));
            }
            (PathMatch::Nothing, _) => {
                let hint = policy::did_you_mean(scope, path);
                self.problem(at, None, format!("{key} is not a setting{hint}"));
            }
        }
    }

    fn push_policy(&mut self, scope: &PolicyScope, path: &[String], at: usize, value: Json) {
        let given = FilePolicySetting {
            scope: scope.clone(),
            path: path.to_vec(),
            value,
            origin: self.origin(at),
        };
        self.read.policies.push(given);
    }

    fn entry(&mut self, prefix: &str, name: &Spanned<DeString<'_>>, value: &Spanned<DeValue<'_>>) {
        let key = match prefix {
            "" => name.get_ref().to_string(),
            _ => format!("{prefix}.{}", name.get_ref()),
        };
        let at = name.span().start;
        // A table may be a section or the value of a setting. Only the list of keys distinguishes the two.
        let is_section = SETTINGS.iter().any(|setting| {
            setting
                .key
                .strip_prefix(&key)
                .is_some_and(|rest| rest.starts_with('.'))
        });
        match (value.get_ref(), by_key(&key)) {
            (DeValue::Table(table), None) if is_section => self.table(&key, table),
            (value, Some(setting)) => {
                let origin = self.origin(at);
                self.read.given.push(FileSetting {
                    setting,
                    raw: raw(value),
                    origin,
                });
            }
            (_, None) if is_section => {
                self.problem(at, None, format!("{key} is a section: write [{key}]"));
            }
            (_, None) => {
                let keys = SETTINGS.iter().map(|setting| setting.key.to_owned());
                let hint = did_you_mean(&key, keys.chain(policy::keys()));
                self.problem(at, None, format!("{key} is not a setting{hint}"));
            }
        }
    }

    fn origin(&self, at: usize) -> SettingOrigin {
        let before = self.text.get(..at).unwrap_or(self.text);
        SettingOrigin::File {
            path: self.path.to_owned(),
            line: 1 + before.matches('\n').count(),
        }
    }

    fn problem(&mut self, at: usize, key: Option<String>, message: String) {
        let origin = self.origin(at);
        self.read.problems.push(ConfigProblem {
            origin,
            key,
            message,
        });
    }
}

/// Returns the entries of a table in the order of the file. The parser sorts them by name, but errors are reported by
/// line.
fn in_order<'t, 'de>(
    table: &'t DeTable<'de>,
) -> Vec<(&'t Spanned<DeString<'de>>, &'t Spanned<DeValue<'de>>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(name, _)| name.span().start);
    entries
}

/// Converts a value whose form only the core checks.
pub(crate) fn json(value: &DeValue<'_>) -> Json {
    match (value, raw(value)) {
        (DeValue::Table(table), _) => {
            let entry = |(name, value): (&Spanned<DeString<'_>>, &Spanned<DeValue<'_>>)| {
                (name.get_ref().to_string(), json(value.get_ref()))
            };
            table.iter().map(entry).collect()
        }
        (DeValue::Array(items), _) => items.iter().map(|item| json(item.get_ref())).collect(),
        (_, RawValue::Bool(truth)) => truth.into(),
        (_, RawValue::Integer(number)) => i64::try_from(number).map_or(Json::Null, Json::from),
        (_, RawValue::Float(number)) => number.into(),
        (_, RawValue::String(text)) => text.into(),
        _ => Json::Null,
    }
}

fn raw(value: &DeValue<'_>) -> RawValue {
    match value {
        DeValue::String(text) => RawValue::String(text.to_string()),
        DeValue::Boolean(truth) => RawValue::Bool(*truth),
        // `i128` also holds integers beyond TOML's range. The error can then state the range of the setting.
        DeValue::Integer(number) => i128::from_str_radix(number.as_str(), number.radix()).map_or(
            RawValue::Other("integer that is too long"),
            RawValue::Integer,
        ),
        // TOML allows `_` between digits, and the parser of Rust does not.
        DeValue::Float(number) => (number.as_str().replace('_', "").parse())
            .map_or(RawValue::Other("float that is too long"), RawValue::Float),
        DeValue::Array(items) => {
            RawValue::List(items.iter().map(|item| raw(item.get_ref())).collect())
        }
        other => RawValue::Other(other.type_str()),
    }
}
