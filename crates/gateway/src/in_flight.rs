//! The guard of a request in flight.

use palimpsest_edge::net::ActiveCall;
use palimpsest_engine::quotas::QuotaPermit;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::call::GatewayCall;

/// Counts a request until the last byte of its response was read from upstream, or until its agent is gone.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) call: GatewayCall,
    /// Its permit below `gateway.max_streams`.
    pub(crate) _permit: OwnedSemaphorePermit,
    /// Its part of the concurrent requests of its project.
    pub(crate) _quota: Option<QuotaPermit>,
    /// Protects its connection against eviction.
    pub(crate) _call: ActiveCall,
    /// Delays the end of a drain.
    pub(crate) _request: TaskTrackerToken,
}
