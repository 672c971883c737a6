//! The limits of projects, as plain values.

use std::collections::BTreeMap;

use palimpsest_core::ids::ProjectId;

/// The limits of one project, or of all projects together. 0: unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QuotaLimits {
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

impl QuotaLimits {
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
    pub project: QuotaLimits,
    /// Those of all projects together.
    pub server: QuotaLimits,
    /// Those of single projects, whole.
    pub projects: BTreeMap<ProjectId, QuotaLimits>,
}

impl QuotasConfig {
    /// A project's.
    pub fn of(&self, project: &ProjectId) -> &QuotaLimits {
        self.projects.get(project).unwrap_or(&self.project)
    }
}
