//! Formats the effective configuration as a TOML file that can be loaded again.

use std::fmt::Write as _;

use palimpsest_core::policy::{Overlay, Preset};
use serde_json::Value as Json;

use crate::hooks::PREFIX;
use crate::policy::{self, PolicyScope};
use crate::problem::SettingOrigin;
use crate::settings::{SETTINGS, Setting};
use crate::value::SettingValue as _;
use crate::{Config, LoadedConfig, hooks, models, quotas, retention};
use crate::{FieldKind, PolicyField, policy_fields};

impl LoadedConfig {
    /// Returns the configuration as TOML. Each setting has its documentation above it and its origin behind it.
    pub fn to_toml(&self) -> String {
        let mut out = String::new();
        let mut section = "";
        for setting in SETTINGS {
            let (of, name) = setting.key.rsplit_once('.').unwrap_or(("", setting.key));
            if of != section {
                section = of;
                let _ = write!(out, "\n[{section}]\n");
            }
            self.line(&mut out, setting, name);
        }
        render_hooks(self, &mut out);
        render_quotas(self, &mut out);
        render_retention(self, &mut out);
        render_models(self, &mut out);
        self.policy(&mut out);
        for (project, settings) in &self.config.policy.projects {
            self.fields(&mut out, &Some(project.clone()), settings);
        }
        out
    }

    fn line(&self, out: &mut String, setting: &Setting, name: &str) {
        let origin = self.origin(setting.key);
        let written = match (setting.toml)(&self.config) {
            Some(value) => format!("{name} = {value}"),
            None => format!("# {name} is not set"),
        };
        let _ = write!(out, "# {}\n{written} # {origin}\n", setting.doc);
    }

    /// Writes the policy of new sessions. Values of the preset are comments, because as settings they would override
    /// another preset.
    fn policy(&self, out: &mut String) {
        let server = &self.config.policy.server;
        if let Ok(policy) = server.resolve(Preset::default()) {
            self.fields(out, &None, &Overlay::of(&policy));
        }
    }

    fn fields(&self, out: &mut String, scope: &PolicyScope, values: &Overlay) {
        let mut section = None;
        for field in policy_fields() {
            let Some((name, of)) = field.path.split_last() else {
                continue;
            };
            // A project's section shows only its own overrides.
            let value = values.get(&field.path);
            if scope.is_some() && value.is_none() {
                continue;
            }
            if section != Some(of) {
                section = Some(of);
                let _ = write!(out, "\n[{}]\n", policy::key(scope, of));
            }
            let _ = writeln!(out, "# {}", field.doc);
            match (&field.kind, value) {
                (FieldKind::Rules, Some(Json::Object(rules))) if !rules.is_empty() => {
                    for (tool, rule) in rules {
                        let mut path = field.path.clone();
                        path.push(tool.clone());
                        let origin = self.origin(&policy::key(scope, &path));
                        let _ = writeln!(out, "{name}.{} = {} # {origin}", key(tool), toml(rule));
                    }
                }
                (_, Some(value)) => self.field(out, scope, field, value),
                (_, None) => {
                    let _ = writeln!(out, "# {name} is not set # {}", SettingOrigin::Default);
                }
            }
        }
    }

    fn field(&self, out: &mut String, scope: &PolicyScope, field: &PolicyField, value: &Json) {
        let name = field.path.last().map_or("", String::as_str);
        let value = match value {
            Json::String(text) if field.path == ["preset"] => toml(&display_name(text).into()),
            value => toml(value),
        };
        let origin = self.origin(&policy::key(scope, &field.path));
        // A value of the preset is commented out, see `policy` above.
        let mark = if origin == SettingOrigin::Default {
            "# "
        } else {
            ""
        };
        let _ = writeln!(out, "{mark}{name} = {value} # {origin}");
    }
}

/// Returns the usual name of a preset.
fn display_name(preset: &str) -> &str {
    match serde_json::from_value::<Preset>(preset.into()) {
        Ok(named) => named.name(),
        Err(_) => preset,
    }
}

/// Returns a name as a TOML key, quoted if needed.
fn key(name: &str) -> String {
    let is_bare = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    if !name.is_empty() && name.bytes().all(is_bare) {
        return name.to_owned();
    }
    toml(&name.into())
}

fn toml(value: &Json) -> String {
    toml::Value::try_from(value).map_or_else(|_| value.to_string(), |value| value.to_string())
}

/// Writes the hook endpoints as sections.
fn render_hooks(loaded: &LoadedConfig, out: &mut String) {
    for (name, endpoint) in &loaded.config.hooks.endpoints {
        let _ = write!(out, "\n[{PREFIX}{name}]\n");
        for field in hooks::FIELDS {
            let origin = loaded.origin(&format!("{PREFIX}{name}.{}", field.name));
            let written = match (field.toml)(endpoint) {
                Some(value) => format!("{} = {value}", field.name),
                None => format!("# {} is not set", field.name),
            };
            let _ = write!(out, "# {}\n{written} # {origin}\n", field.doc);
        }
    }
}

/// Writes the quotas of single projects as sections.
fn render_quotas(loaded: &LoadedConfig, out: &mut String) {
    for (project, quotas) in &loaded.config.quotas.projects {
        // The table of settings formats the quotas of every project, so this project's quotas are placed there.
        let mut scratch = Config::default();
        scratch.quotas.project = *quotas;
        let _ = write!(out, "\n[projects.{project}.quotas]\n");
        for setting in SETTINGS {
            let name = setting.key.strip_prefix(quotas::EVERY_PROJECT_PREFIX);
            let Some(name) = name.filter(|_| !setting.key.starts_with(quotas::ALL_PROJECTS_PREFIX))
            else {
                continue;
            };
            // Inherited quotas have no origin here. They are left out, because as settings they would stay fixed.
            let origin = loaded.origins.get(&quotas::key(project, name));
            if let (Some(origin), Some(value)) = (origin, (setting.toml)(&scratch)) {
                let _ = writeln!(out, "# {}\n{name} = {value} # {origin}", setting.doc);
            }
        }
    }
}

/// Writes the retention settings of single projects as sections.
fn render_retention(loaded: &LoadedConfig, out: &mut String) {
    for (project, own) in &loaded.config.retention.projects {
        let _ = write!(out, "\n[projects.{project}.retention]\n");
        let values = [
            ("max_age", own.max_age.and_then(|value| value.toml())),
            (
                "max_sessions",
                own.max_sessions.and_then(|value| value.toml()),
            ),
            ("max_bytes", own.max_bytes.and_then(|value| value.toml())),
        ];
        for (name, value) in values {
            if let Some(value) = value {
                let origin = loaded.origin(&retention::key(project, name));
                let _ = writeln!(out, "{name} = {value} # {origin}");
            }
        }
    }
}

/// Writes the entries of the table of models as sections.
fn render_models(loaded: &LoadedConfig, out: &mut String) {
    for (index, entry) in loaded.config.models.iter().enumerate() {
        let origin = loaded.origin(&format!("{}[{index}]", models::KEY));
        let _ = write!(out, "\n# {origin}\n[[{}]]\n", models::KEY);
        if let Ok(Json::Object(fields)) = serde_json::to_value(entry) {
            for (name, value) in &fields {
                let _ = writeln!(out, "{name} = {}", toml(value));
            }
        }
    }
}
