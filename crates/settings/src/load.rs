//! Merges the layers of the configuration and collects all errors.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use palimpsest_core::ids::ProjectId;

use crate::policy::{self, PolicySettings};
use crate::problem::{ConfigErrors, ConfigProblem, SettingOrigin};
use crate::quotas::QuotaOverride;
use crate::settings::{SETTINGS, Setting, by_key, by_variable};
use crate::source::{Source, VARIABLE_PREFIX};
use crate::suggest::did_you_mean;
use crate::value::RawValue;
use crate::{Config, checks, claude, file, hooks, models, otel, quotas, retention};
use crate::{PolicyField, policy_fields};

/// Environment variable with the path of the file.
const FILE_VARIABLE: &str = "PALIMPSEST_CONFIG";

/// Environment variables of client commands, packages and example agents. They are accepted in the environment of a server.
const CLIENT_VARIABLES: [&str; 8] = [
    "PALIMPSEST_URL",
    "PALIMPSEST_SESSION",
    "PALIMPSEST_PROJECT",
    "PALIMPSEST_API_KEY",
    "PALIMPSEST_TLS_CA",
    "PALIMPSEST_TLS_CERT",
    "PALIMPSEST_TLS_KEY",
    "PALIMPSEST_TLS_SERVER_NAME",
];

/// The values of the command line.
#[derive(Debug, Clone, Default)]
pub struct Flags {
    /// Path of the file.
    pub file: Option<PathBuf>,
    /// Settings: the flag as written, the key, and the value.
    pub settings: Vec<(String, String, String)>,
}

impl Flags {
    /// Adds a setting if its flag was given.
    #[must_use]
    pub fn with(mut self, flag: &str, key: &str, value: Option<String>) -> Self {
        if let Some(value) = value {
            self.settings.push((flag.to_owned(), key.to_owned(), value));
        }
        self
    }
}

/// A valid configuration.
#[derive(Debug, Clone)]
pub struct LoadedConfig {
    /// The settings.
    pub config: Config,
    /// The origins of all settings that are not defaults, by key.
    pub origins: BTreeMap<String, SettingOrigin>,
}

impl LoadedConfig {
    /// Returns the origin of a setting.
    pub fn origin(&self, key: &str) -> SettingOrigin {
        self.origins
            .get(key)
            .cloned()
            .unwrap_or(SettingOrigin::Default)
    }
}

/// Loads the configuration, or returns all of its errors.
pub fn load(flags: &Flags, source: &dyn Source) -> Result<LoadedConfig, ConfigErrors> {
    let vars = source.vars();
    let mut loader = Loader::default();
    // The order of these calls is the priority of the layers: a later layer replaces values of an earlier one.
    loader.file(flags, &vars, source);
    loader.third_party_variables(&vars);
    loader.environment(&vars);
    loader.flags(flags);
    loader.finish()
}

#[derive(Default)]
struct Loader {
    config: Config,
    policies: PolicySettings,
    quotas: Vec<QuotaOverride>,
    origins: BTreeMap<String, SettingOrigin>,
    /// Keys that had an invalid value in any layer.
    invalid_keys: BTreeSet<String>,
    problems: Vec<ConfigProblem>,
}

impl Loader {
    fn file(&mut self, flags: &Flags, vars: &BTreeMap<String, String>, source: &dyn Source) {
        let from_flag = flags.file.clone().map(|path| (path, "--config"));
        let from_var = || {
            let path = vars.get(FILE_VARIABLE).filter(|path| !path.is_empty())?;
            Some((PathBuf::from(path), FILE_VARIABLE))
        };
        // Without a file the defaults apply. An empty variable counts as not set.
        let Some((path, named_by)) = from_flag.or_else(from_var) else {
            return;
        };
        match source.read(&path) {
            Ok(text) => {
                let read = file::read(&path, &text);
                self.problems.extend(read.problems);
                for entry in read.given {
                    self.set(entry.setting, &entry.raw, entry.origin);
                }
                for (rest, raw, origin) in read.endpoints {
                    self.set_endpoint(&rest, &raw, origin);
                }
                self.quotas = read.quotas;
                for (index, (entry, origin)) in read.models.into_iter().enumerate() {
                    self.config.models.push(entry);
                    self.origins
                        .insert(format!("{}[{index}]", models::KEY), origin);
                }
                for (project, name, raw, origin) in read.retention {
                    self.set_retention(&project, &name, &raw, origin);
                }
                for entry in read.policies {
                    let (scope, path) = (entry.scope, entry.path);
                    self.policies.set(&scope, path, entry.value, entry.origin);
                }
            }
            // The other layers are still read, so that their errors are reported too.
            Err(error) => {
                let name = named_by.to_owned();
                let message = format!("failed to read {}: {error}", path.display());
                self.report(SettingOrigin::Flag { name }, message);
            }
        }
    }

    /// Applies the variables of other programs.
    fn third_party_variables(&mut self, vars: &BTreeMap<String, String>) {
        let value_of = |name: &str| vars.get(name).cloned();
        for (name, meant) in claude::settings(value_of)
            .into_iter()
            .chain(otel::settings(value_of))
        {
            match meant {
                Ok(settings) => {
                    for (key, raw) in settings {
                        self.set_by_key(key, &raw, env(name));
                    }
                }
                Err(message) => self.report(env(name), message),
            }
        }
    }

    fn environment(&mut self, vars: &BTreeMap<String, String>) {
        for (name, value) in vars {
            if !name.starts_with(VARIABLE_PREFIX) || name == FILE_VARIABLE {
                continue;
            }
            if let Some(setting) = by_variable(name) {
                self.set(setting, &RawValue::Text(value.clone()), env(name));
            } else if let Some(field) = policy::by_variable(name) {
                self.set_policy(field, &RawValue::Text(value.clone()), env(name));
            } else if let Some(key) = hooks::key_of_variable(name) {
                self.set_by_key(&key, &RawValue::Text(value.clone()), env(name));
            // An unknown variable with the prefix is probably a misspelled setting, so it is an error.
            } else if !is_service_link(name) && !CLIENT_VARIABLES.contains(&name.as_str()) {
                let of_policy = policy_fields().iter().map(policy::variable);
                let all = SETTINGS.iter().map(Setting::variable).chain(of_policy);
                let hint = did_you_mean(name, all);
                self.report(env(name), format!("is not a variable of any setting{hint}"));
            }
        }
    }

    fn flags(&mut self, flags: &Flags) {
        for (flag, key, value) in &flags.settings {
            let origin = SettingOrigin::Flag { name: flag.clone() };
            self.set_by_key(key, &RawValue::Text(value.clone()), origin);
        }
    }

    fn set_by_key(&mut self, key: &str, raw: &RawValue, origin: SettingOrigin) {
        if let Some(setting) = by_key(key) {
            self.set(setting, raw, origin);
        } else if let Some(field) = policy::by_key(key) {
            self.set_policy(field, raw, origin);
        } else if let Some(rest) = key.strip_prefix(hooks::PREFIX) {
            self.set_endpoint(rest, raw, origin);
        } else if key == models::KEY {
            self.report(origin, models::NO_LIST.to_owned());
        } else if key.starts_with("projects.") {
            let message = format!(
                "{key} cannot be set here: settings of one project belong in the file, such as [projects.NAME.retention]"
            );
            self.report(origin, message);
        } else {
            let all = SETTINGS
                .iter()
                .map(|s| s.key.to_owned())
                .chain(policy::keys());
            let hint = did_you_mean(key, all);
            self.report(origin, format!("{key} is not a setting{hint}"));
        }
    }

    fn set_policy(&mut self, field: &PolicyField, raw: &RawValue, origin: SettingOrigin) {
        let (scope, path) = (None, field.path.clone());
        match policy::read(&field.kind, raw) {
            Ok(value) => self.policies.set(&scope, path, value, origin),
            Err(message) => self.record(policy::key(&scope, &path), origin, Err(message)),
        }
    }

    fn set_endpoint(&mut self, rest: &str, raw: &RawValue, origin: SettingOrigin) {
        let outcome = self.config.hooks.set(rest, raw);
        self.record(format!("{}{rest}", hooks::PREFIX), origin, outcome);
    }

    fn set_retention(
        &mut self,
        project: &ProjectId,
        name: &str,
        raw: &RawValue,
        origin: SettingOrigin,
    ) {
        let outcome = retention::set(&mut self.config.retention, project, name, raw);
        self.record(retention::key(project, name), origin, outcome);
    }

    fn set(&mut self, setting: &'static Setting, raw: &RawValue, origin: SettingOrigin) {
        let outcome = (setting.set)(&mut self.config, raw);
        self.record(setting.key.to_owned(), origin, outcome);
    }

    /// Records the origin of a value, or the problem of an invalid one.
    fn record(&mut self, key: String, origin: SettingOrigin, outcome: Result<(), String>) {
        match outcome {
            Ok(()) => {
                self.origins.insert(key, origin);
            }
            Err(message) => {
                // Remembered, so that no follow-up error is reported for the default that stays in place.
                self.invalid_keys.insert(key.clone());
                self.problems.push(ConfigProblem {
                    origin,
                    key: Some(key),
                    message,
                });
            }
        }
    }

    /// Reports a problem that belongs to no setting.
    fn report(&mut self, origin: SettingOrigin, message: String) {
        self.problems.push(ConfigProblem {
            origin,
            key: None,
            message,
        });
    }

    fn finish(mut self) -> Result<LoadedConfig, ConfigErrors> {
        // Applied after all layers, because a project inherits the final quotas of every project.
        let of_projects = std::mem::take(&mut self.quotas);
        let of_projects = merge_overlay(&mut self.config, of_projects, &mut self.origins);
        self.problems.extend(of_projects);
        self.config.policy = self.policies.config();
        self.origins.extend(self.policies.origins());
        self.problems.extend(self.policies.problems());
        // Checks between settings run last, on the merged configuration.
        let of_hooks = checks::hooks(&self.config, &self.origins);
        // An invalid value was reported already. A second error about the missing value would only confuse.
        let is_news = |problem: &ConfigProblem| {
            let key = problem.key.as_ref();
            key.is_none_or(|key| !self.invalid_keys.contains(key))
        };
        self.problems.extend(of_hooks.into_iter().filter(is_news));
        for mismatch in checks::all(&self.config) {
            // An invalid value left the default in place, so a contradiction with it means nothing.
            if !mismatch
                .keys
                .iter()
                .any(|key| self.invalid_keys.contains(*key))
            {
                let set_where = mismatch.keys.iter().find_map(|key| self.origins.get(*key));
                self.problems.push(ConfigProblem {
                    origin: set_where.cloned().unwrap_or(SettingOrigin::Default),
                    key: Some(mismatch.keys[0].to_owned()),
                    message: mismatch.problem,
                });
            }
        }
        if !self.problems.is_empty() {
            // Sorted by file and line, so that errors appear in the order of the file.
            self.problems.sort_by(|a, b| a.origin.cmp(&b.origin));
            return Err(ConfigErrors(self.problems));
        }
        Ok(LoadedConfig {
            config: self.config,
            origins: self.origins,
        })
    }
}

/// Applies the quotas of single projects on top of those of every project.
fn merge_overlay(
    config: &mut Config,
    given: Vec<QuotaOverride>,
    origins: &mut BTreeMap<String, SettingOrigin>,
) -> Vec<ConfigProblem> {
    let mut problems = Vec::new();
    for QuotaOverride {
        project,
        name,
        raw,
        origin,
    } in given
    {
        let key = quotas::key(&project, &name);
        let Some(setting) = quotas::setting(&name) else {
            let names = SETTINGS
                .iter()
                .filter_map(|s| s.key.strip_prefix(quotas::EVERY_PROJECT_PREFIX));
            let names = names.filter(|name| !name.contains('.')).map(str::to_owned);
            let message = format!("{key} is not a setting{}", did_you_mean(&name, names));
            problems.push(ConfigProblem {
                origin,
                key: None,
                message,
            });
            continue;
        };
        // A setting writes the quotas of every project. It is applied to a copy that holds this project's quotas
        // there.
        let mut scratch = Config::default();
        // Starts with the quotas in force for the project, so that quotas which the project does not set are
        // inherited.
        scratch.quotas.project = *config.quotas.of(&project);
        match (setting.set)(&mut scratch, &raw) {
            Ok(()) => {
                config
                    .quotas
                    .projects
                    .insert(project, scratch.quotas.project);
                origins.insert(key, origin);
            }
            Err(message) => problems.push(ConfigProblem {
                origin,
                key: Some(key),
                message,
            }),
        }
    }
    problems
}

fn env(name: &str) -> SettingOrigin {
    SettingOrigin::Env {
        name: name.to_owned(),
    }
}

/// Returns true for variables that Kubernetes adds to every pod for its services. For a service named `palimpsest`
/// they share our prefix, such as `PALIMPSEST_PORT_50051_TCP_ADDR`.
fn is_service_link(name: &str) -> bool {
    let after = |marker: &str| name.find(marker).map(|at| &name[at + marker.len()..]);
    let numbered = |rest: &str| {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        digits > 0 && rest[digits..].starts_with(['_'])
    };
    name.ends_with("_SERVICE_HOST")
        || name.ends_with("_PORT")
        || after("_SERVICE_PORT_").is_some()
        || after("_PORT_").is_some_and(numbered)
}
