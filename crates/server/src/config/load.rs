//! Puts the layers on top of each other and gathers every mistake.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::problem::{ConfigErrors, Origin, Problem};
use super::settings::{SETTINGS, Setting, VARIABLE_PREFIX, by_key, by_variable, did_you_mean};
use super::source::Source;
use super::value::Raw;
use super::{Config, checks, file};

/// The variable that names the file.
const FILE_VARIABLE: &str = "PALIMPSEST_CONFIG";

/// Claude Code's variable that has an effect here already, and the setting that it stands for.
const OUTPUT_VARIABLE: (&str, &str) = (
    "CLAUDE_CODE_MAX_OUTPUT_TOKENS",
    "policy.budget.output_reserve_tokens",
);

/// Claude Code's variables that mean something here once compaction is there.
const VARIABLES_TO_COME: [&str; 6] = [
    "DISABLE_COMPACT",
    "DISABLE_AUTO_COMPACT",
    "CLAUDE_AUTO_COMPACT",
    "DISABLE_MICROCOMPACT",
    "CLAUDE_AUTOCOMPACT_PCT_OVERRIDE",
    "CLAUDE_CODE_BLOCKING_LIMIT_OVERRIDE",
];

/// What the command line says.
#[derive(Debug, Clone, Default)]
pub struct Flags {
    /// The file to read.
    pub file: Option<PathBuf>,
    /// Settings: the flag as it was written, the key, the value.
    pub settings: Vec<(String, String, String)>,
}

impl Flags {
    /// Adds the setting of a flag, where the flag was given.
    #[must_use]
    pub fn with(mut self, flag: &str, key: &str, value: Option<String>) -> Self {
        if let Some(value) = value {
            self.settings.push((flag.to_owned(), key.to_owned(), value));
        }
        self
    }
}

/// A configuration without mistakes.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The settings.
    pub config: Config,
    /// Where each came from that is not a default, by its key.
    pub origins: BTreeMap<&'static str, Origin>,
    /// What the user should know although it is no mistake.
    pub warnings: Vec<String>,
}

impl Loaded {
    /// Where a setting came from.
    pub fn origin(&self, key: &str) -> Origin {
        self.origins.get(key).cloned().unwrap_or(Origin::Default)
    }
}

/// Loads the configuration, or says everything that is wrong with it.
pub fn load(flags: &Flags, source: &dyn Source) -> Result<Loaded, ConfigErrors> {
    let vars = source.vars();
    let mut loader = Loader::default();
    loader.file(flags, &vars, source);
    loader.claude_code(&vars);
    loader.environment(&vars);
    loader.flags(flags);
    loader.finish()
}

#[derive(Default)]
struct Loader {
    config: Config,
    origins: BTreeMap<&'static str, Origin>,
    /// Settings that were given a value that does not fit, by whichever layer.
    faulty: BTreeSet<&'static str>,
    problems: Vec<Problem>,
    warnings: Vec<String>,
}

impl Loader {
    fn file(&mut self, flags: &Flags, vars: &BTreeMap<String, String>, source: &dyn Source) {
        let from_flag = flags.file.clone().map(|path| (path, "--config"));
        let from_var = || {
            let path = vars.get(FILE_VARIABLE).filter(|path| !path.is_empty())?;
            Some((PathBuf::from(path), FILE_VARIABLE))
        };
        let Some((path, named_by)) = from_flag.or_else(from_var) else {
            return;
        };
        match source.read(&path) {
            Ok(text) => {
                let (given, problems) = file::read(&path, &text);
                self.problems.extend(problems);
                for entry in given {
                    self.set(entry.setting, &entry.raw, entry.origin);
                }
            }
            Err(error) => self.problems.push(Problem {
                origin: Origin::Flag {
                    name: named_by.to_owned(),
                },
                key: None,
                what: format!("failed to read {}: {error}", path.display()),
            }),
        }
    }

    fn claude_code(&mut self, vars: &BTreeMap<String, String>) {
        let (name, key) = OUTPUT_VARIABLE;
        if let (Some(value), Some(setting)) = (vars.get(name), by_key(key)) {
            self.set(setting, &Raw::Text(value.clone()), env(name));
        }
        for name in VARIABLES_TO_COME {
            if vars.contains_key(name) {
                self.warnings.push(format!(
                    "{name} is set, and this version does not act on it yet"
                ));
            }
        }
    }

    fn environment(&mut self, vars: &BTreeMap<String, String>) {
        for (name, value) in vars {
            if !name.starts_with(VARIABLE_PREFIX) || name == FILE_VARIABLE {
                continue;
            }
            if let Some(setting) = by_variable(name) {
                self.set(setting, &Raw::Text(value.clone()), env(name));
            } else if !is_service_link(name) {
                let hint = did_you_mean(name, SETTINGS.iter().map(Setting::variable));
                self.problems.push(Problem {
                    origin: env(name),
                    key: None,
                    what: format!("is not a variable of any setting{hint}"),
                });
            }
        }
    }

    fn flags(&mut self, flags: &Flags) {
        for (flag, key, value) in &flags.settings {
            let origin = Origin::Flag { name: flag.clone() };
            if let Some(setting) = by_key(key) {
                self.set(setting, &Raw::Text(value.clone()), origin);
            } else {
                let hint = did_you_mean(key, SETTINGS.iter().map(|s| s.key.to_owned()));
                self.problems.push(Problem {
                    origin,
                    key: None,
                    what: format!("{key} is not a setting{hint}"),
                });
            }
        }
    }

    fn set(&mut self, setting: &'static Setting, raw: &Raw, origin: Origin) {
        match (setting.set)(&mut self.config, raw) {
            Ok(()) => {
                self.origins.insert(setting.key, origin);
            }
            Err(what) => {
                self.faulty.insert(setting.key);
                self.problems.push(Problem {
                    origin,
                    key: Some(setting.key),
                    what,
                });
            }
        }
    }

    fn finish(mut self) -> Result<Loaded, ConfigErrors> {
        for mismatch in checks::all(&self.config) {
            // A value that could not be read left its default behind, of which nothing follows.
            if !mismatch.keys.iter().any(|key| self.faulty.contains(key)) {
                let set_where = mismatch.keys.iter().find_map(|key| self.origins.get(key));
                self.problems.push(Problem {
                    origin: set_where.cloned().unwrap_or(Origin::Default),
                    key: Some(mismatch.keys[0]),
                    what: mismatch.what,
                });
            }
        }
        if !self.problems.is_empty() {
            self.problems.sort_by(|a, b| a.origin.cmp(&b.origin));
            return Err(ConfigErrors(self.problems));
        }
        Ok(Loaded {
            config: self.config,
            origins: self.origins,
            warnings: self.warnings,
        })
    }
}

fn env(name: &str) -> Origin {
    Origin::Env {
        name: name.to_owned(),
    }
}

/// Kubernetes puts the addresses of services into the environment of every pod, and for a service
/// named `palimpsest` those begin like ours: `PALIMPSEST_PORT_50051_TCP_ADDR`.
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
