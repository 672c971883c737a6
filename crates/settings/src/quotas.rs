//! Keys of quotas: `quotas.…` for every project, `[projects.NAME.quotas]` for one project, and `quotas.server.…` for
//! all projects together.

use palimpsest_core::ids::ProjectId;

use crate::problem::SettingOrigin;
use crate::settings::{Setting, by_key};
use crate::value::RawValue;

pub(crate) const EVERY_PROJECT_PREFIX: &str = "quotas.";
/// Prefix of the quotas of all projects together.
pub(crate) const ALL_PROJECTS_PREFIX: &str = "quotas.server.";

/// A quota of a single project in a file.
pub(crate) struct QuotaOverride {
    pub(crate) project: ProjectId,
    pub(crate) name: String,
    pub(crate) raw: RawValue,
    pub(crate) origin: SettingOrigin,
}

/// Returns the key of a project's quota.
pub(crate) fn key(project: &ProjectId, name: &str) -> String {
    format!("projects.{project}.quotas.{name}")
}

/// Returns the setting of a quota that projects can override.
pub(crate) fn setting(name: &str) -> Option<&'static Setting> {
    by_key(&format!("{EVERY_PROJECT_PREFIX}{name}")).filter(|_| !name.contains('.'))
}
