//! What a project may use, and all of them together. `quotas.…` holds for every project,
//! `[projects.NAME.quotas]` for one, and `quotas.server.…` for all of them together.

use std::collections::BTreeMap;

use palimpsest_core::ids::ProjectId;

use super::problem::{Origin, Problem};
use super::settings::{SETTINGS, Setting, by_key};
use super::suggest::did_you_mean;
use super::value::Raw;
use super::{Config, Loaded};

/// What somebody may use. Zero means as much as there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Quotas {
    /// Calls a second, in the long run.
    pub requests_per_second: u64,
    /// Calls at once after a pause; zero for as many as a second has.
    pub request_burst: u64,
    /// Calls at one time.
    pub concurrent_requests: u64,
    /// Watches at one time.
    pub watches: u64,
    /// Bytes of requests a second, in the long run.
    pub bytes_per_second: u64,
    /// Bytes at once after a pause; zero for as many as a second has.
    pub byte_burst: u64,
    /// Sessions.
    pub sessions: u64,
    /// Bytes of their logs, snapshots and stored results.
    pub stored_bytes: u64,
}

impl Quotas {
    /// Whether nothing is limited.
    pub fn is_unlimited(&self) -> bool {
        let Self {
            requests_per_second,
            concurrent_requests,
            watches,
            bytes_per_second,
            sessions,
            stored_bytes,
            ..
        } = self;
        [
            requests_per_second,
            concurrent_requests,
            watches,
            bytes_per_second,
            sessions,
            stored_bytes,
        ]
        .iter()
        .all(|quota| **quota == 0)
    }
}

/// The quotas of everybody.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QuotasConfig {
    /// Those of a project that has none of its own.
    pub project: Quotas,
    /// Those of all projects together.
    pub server: Quotas,
    /// Those of single projects, whole.
    pub projects: BTreeMap<ProjectId, Quotas>,
}

impl QuotasConfig {
    /// A project's.
    pub fn of(&self, project: &ProjectId) -> &Quotas {
        self.projects.get(project).unwrap_or(&self.project)
    }
}

/// Before a setting's name, for every project.
const EVERY: &str = "quotas.";
/// Before it, for all of them together.
const TOGETHER: &str = "quotas.server.";

/// One quota that a file gives one project.
pub(super) struct GivenQuota {
    pub(super) project: ProjectId,
    pub(super) name: String,
    pub(super) raw: Raw,
    pub(super) origin: Origin,
}

/// The key of one project's setting.
fn key(project: &ProjectId, name: &str) -> String {
    format!("projects.{project}.quotas.{name}")
}

/// The setting of this name, which one project may have otherwise.
fn setting(name: &str) -> Option<&'static Setting> {
    by_key(&format!("{EVERY}{name}")).filter(|_| !name.contains('.'))
}

/// Lays what single projects are given over what every project has.
pub(super) fn lay_over(
    config: &mut Config,
    given: Vec<GivenQuota>,
    origins: &mut BTreeMap<String, Origin>,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    for GivenQuota {
        project,
        name,
        raw,
        origin,
    } in given
    {
        let key = key(&project, &name);
        let Some(setting) = setting(&name) else {
            let names = SETTINGS.iter().filter_map(|s| s.key.strip_prefix(EVERY));
            let names = names.filter(|name| !name.contains('.')).map(str::to_owned);
            let what = format!("{key} is not a setting{}", did_you_mean(&name, names));
            problems.push(Problem {
                origin,
                key: None,
                what,
            });
            continue;
        };
        // The setting is every project's: it is read into a configuration where that is this one's.
        let mut scratch = Config::default();
        scratch.quotas.project = *config.quotas.of(&project);
        match (setting.set)(&mut scratch, &raw) {
            Ok(()) => {
                config
                    .quotas
                    .projects
                    .insert(project, scratch.quotas.project);
                origins.insert(key, origin);
            }
            Err(what) => problems.push(Problem {
                origin,
                key: Some(key),
                what,
            }),
        }
    }
    problems
}

/// What single projects have otherwise, as TOML.
pub(super) fn render(loaded: &Loaded, out: &mut String) {
    use std::fmt::Write as _;
    for (project, quotas) in &loaded.config.quotas.projects {
        let mut scratch = Config::default();
        scratch.quotas.project = *quotas;
        let _ = write!(out, "\n[projects.{project}.quotas]\n");
        for setting in SETTINGS {
            let name = setting.key.strip_prefix(EVERY);
            let Some(name) = name.filter(|_| !setting.key.starts_with(TOGETHER)) else {
                continue;
            };
            let origin = loaded.origins.get(&key(project, name));
            if let (Some(origin), Some(value)) = (origin, (setting.toml)(&scratch)) {
                let _ = writeln!(out, "# {}\n{name} = {value} # {origin}", setting.doc);
            }
        }
    }
}
