//! What a project may use, and all of them together. `quotas.…` holds for every project,
//! `[projects.NAME.quotas]` for one, and `quotas.server.…` for all of them together.

use palimpsest_core::ids::ProjectId;

use crate::problem::SettingOrigin;
use crate::settings::{Setting, by_key};
use crate::value::Raw;

/// Before a setting's name, for every project.
pub(crate) const EVERY: &str = "quotas.";
/// Before it, for all of them together.
pub(crate) const TOGETHER: &str = "quotas.server.";

/// One quota that a file gives one project.
pub(crate) struct QuotaOverride {
    pub(crate) project: ProjectId,
    pub(crate) name: String,
    pub(crate) raw: Raw,
    pub(crate) origin: SettingOrigin,
}

/// The key of one project's setting.
pub(crate) fn key(project: &ProjectId, name: &str) -> String {
    format!("projects.{project}.quotas.{name}")
}

/// The setting of this name, which one project may have otherwise.
pub(crate) fn setting(name: &str) -> Option<&'static Setting> {
    by_key(&format!("{EVERY}{name}")).filter(|_| !name.contains('.'))
}
