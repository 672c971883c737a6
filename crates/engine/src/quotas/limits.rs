//! The limits of projects, as plain values without behavior.

use std::collections::BTreeMap;

use palimpsest_core::ids::ProjectId;

/// The limits of one project, or of all projects together. 0: unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QuotaLimits {
    /// Calls per second, on average.
    pub requests_per_second: u64,
    /// Calls that may arrive at once after a pause. 0: as many as in one second.
    pub request_burst: u64,
    /// Concurrent calls.
    pub concurrent_requests: u64,
    /// Concurrent watches.
    pub watches: u64,
    /// Bytes of requests per second, on average.
    pub bytes_per_second: u64,
    /// Bytes of requests that may arrive at once after a pause. 0: as many as in one second.
    pub byte_burst: u64,
    /// Sessions that may exist.
    pub sessions: u64,
    /// Bytes of logs, snapshots and stored results.
    pub stored_bytes: u64,
}

impl QuotaLimits {
    /// Returns true if nothing is limited.
    pub fn is_unlimited(&self) -> bool {
        // The bursts are left out, because they limit nothing without their rates.
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
            requests_per_second, concurrent_requests, watches, bytes_per_second, sessions,
            stored_bytes,
        ]
        .iter()
        .all(|quota| **quota == 0)
    }
}

/// The configured quotas.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QuotasConfig {
    /// The limits of each project without limits of its own.
    pub project: QuotaLimits,
    /// The limits of all projects together.
    pub server: QuotaLimits,
    /// The limits of single projects. An entry replaces `project` completely.
    pub projects: BTreeMap<ProjectId, QuotaLimits>,
}

impl QuotasConfig {
    /// Returns the limits of a project.
    pub fn of(&self, project: &ProjectId) -> &QuotaLimits {
        self.projects.get(project).unwrap_or(&self.project)
    }
}
