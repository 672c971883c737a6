//! What a project may use, and all of them together. `quotas.…` holds for every project,
//! `[projects.NAME.quotas]` for one, and `quotas.server.…` for all of them together.

use palimpsest_core::ids::ProjectId;

use super::problem::Origin;
use super::settings::{Setting, by_key};
use super::value::Raw;

/// Before a setting's name, for every project.
pub(super) const EVERY: &str = "quotas.";
/// Before it, for all of them together.
pub(super) const TOGETHER: &str = "quotas.server.";

/// One quota that a file gives one project.
pub(super) struct GivenQuota {
    pub(super) project: ProjectId,
    pub(super) name: String,
    pub(super) raw: Raw,
    pub(super) origin: Origin,
}

/// The key of one project's setting.
pub(super) fn key(project: &ProjectId, name: &str) -> String {
    format!("projects.{project}.quotas.{name}")
}

/// The setting of this name, which one project may have otherwise.
pub(super) fn setting(name: &str) -> Option<&'static Setting> {
    by_key(&format!("{EVERY}{name}")).filter(|_| !name.contains('.'))
}
