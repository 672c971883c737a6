//! The limits on concurrent calls. A call above a limit is rejected, immediately or after a short wait, because a
//! standing queue would only delay every response.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use palimpsest_edge::admission::{AdmissionControl, AdmissionError, WorkClass, WorkPermit};
use palimpsest_edge::budget::{BudgetKind, BudgetShare, ShareGroups, SharedBudget};
use palimpsest_engine::call::Deadline;
use palimpsest_settings::GrpcConfig;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::access::Authentication;
use crate::errors::ServiceError;
use crate::net::ShareGroup;

/// The retry delay of a rejected call. Most calls finish in far less time.
const RETRY_AFTER: Duration = Duration::from_millis(250);
/// The retry delay during a shutdown: the expected start time of the next replica.
const RETRY_AFTER_DRAIN: Duration = Duration::from_secs(1);

/// The class of a call for admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallKind {
    /// A health check. It is always answered, above all under load.
    Probe,
    /// An endless stream of a session. It does little work and must not use the permit of a call.
    Watch,
    /// An endless stream that callers without a credential may open. It must not use the permit of a session's watcher.
    Status,
    /// A cheap read.
    Read,
    /// Any other call.
    Call,
}

impl CallKind {
    /// Returns the class of a method path.
    pub(super) fn of(path: &str) -> Self {
        match path {
            "/grpc.health.v1.Health/Check" => Self::Probe,
            "/grpc.health.v1.Health/Watch"
            | "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
            | "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo" => Self::Status,
            "/palimpsest.context.v1.SessionService/WatchSession" => Self::Watch,
            "/palimpsest.context.v1.ContextService/GetSessionMemory"
            | "/palimpsest.context.v1.ContextService/ListTools"
            | "/palimpsest.context.v1.ContextService/ReadToolResult"
            | "/palimpsest.context.v1.SessionService/GetSession"
            | "/palimpsest.context.v1.SessionService/ListEvents"
            | "/palimpsest.context.v1.SessionService/ListMessages"
            | "/palimpsest.context.v1.SessionService/GetView"
            | "/palimpsest.context.v1.SessionService/ListSessions" => Self::Read,
            _ => Self::Call,
        }
    }

    /// Returns the class of the work. Kinds without work have none.
    const fn work_class(self) -> Option<WorkClass> {
        match self {
            // These do little or no work, so admission control does not apply to them.
            Self::Probe | Self::Watch | Self::Status => None,
            Self::Read => Some(WorkClass::Read),
            Self::Call => Some(WorkClass::Change),
        }
    }
}

/// The number of calls in flight per call with a permit, and its minimum. Calls beyond the permits are receiving their
/// request or sending their response.
const PRESENT_FACTOR: usize = 4;
const MIN_BUDGET_CALLS: usize = 256;
/// The maximum number of concurrent health checks.
const MAX_PROBES: usize = 1_024;

/// The limits on concurrent calls, and the calls in flight.
#[derive(Debug, Clone)]
pub struct CallLimits {
    max_calls: usize,
    max_watches: usize,
    max_status: usize,
    calls: Arc<Semaphore>,
    watches: Arc<Semaphore>,
    status: Arc<Semaphore>,
    /// Calls in flight, from their headers to the last byte of the response.
    calls_budget: Arc<SharedBudget>,
    probe_budget: Arc<SharedBudget>,
    admission: Arc<AdmissionControl>,
    request_budget: Arc<SharedBudget>,
    reply_budget: Arc<SharedBudget>,
    share_groups: Arc<ShareGroups>,
    draining: CancellationToken,
}

/// A number of calls, by class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InFlight {
    /// Calls with an end.
    pub calls: usize,
    /// Endless streams.
    pub watches: usize,
}

/// The permit of a call. `None` for classes without a limit. It is released on drop.
pub(super) type Permit = Option<OwnedSemaphorePermit>;

impl CallLimits {
    /// Creates the limits. New calls are rejected after `draining`. `changes` counts the changes in progress.
    pub fn new(
        config: &GrpcConfig,
        changes: Arc<AtomicUsize>,
        draining: CancellationToken,
    ) -> Self {
        // Slow uploads and slow readers need no permit, so more calls may be in flight than may run.
        let present = (config.max_concurrent_requests * PRESENT_FACTOR).max(MIN_BUDGET_CALLS);
        Self {
            max_calls: config.max_concurrent_requests,
            max_watches: config.max_watches,
            max_status: config.max_health_watches,
            calls: Arc::new(Semaphore::new(config.max_concurrent_requests)),
            watches: Arc::new(Semaphore::new(config.max_watches)),
            status: Arc::new(Semaphore::new(config.max_health_watches)),
            calls_budget: SharedBudget::new(BudgetKind::Calls, present),
            probe_budget: SharedBudget::new(BudgetKind::Calls, MAX_PROBES),
            admission: AdmissionControl::new(
                config.max_concurrent_requests,
                config.max_slowdown_percent,
                changes,
            ),
            request_budget: SharedBudget::new(
                BudgetKind::Requests,
                config.max_request_bytes_in_flight,
            ),
            reply_budget: SharedBudget::new(BudgetKind::Replies, config.max_reply_bytes_in_flight),
            share_groups: Arc::default(),
            draining,
        }
    }

    /// Returns the number of calls in flight, including those that are sending their response.
    pub fn in_flight(&self) -> InFlight {
        let watches = self.max_watches - self.watches.available_permits();
        let status = self.max_status - self.status.available_permits();
        InFlight {
            calls: self.calls_budget.used(),
            watches: watches + status,
        }
    }

    /// Returns the configured maximum of calls with a permit.
    pub fn max_in_flight(&self) -> InFlight {
        InFlight {
            calls: self.max_calls,
            watches: self.max_watches + self.max_status,
        }
    }

    /// Returns the current limit of concurrent changes.
    pub fn limit(&self) -> usize {
        self.admission.limit()
    }

    /// Returns the number of calls that load shedding rejected.
    pub fn shed_count(&self) -> u64 {
        self.admission.shed_count()
    }

    /// Returns the bytes of requests in memory.
    pub fn request_bytes(&self) -> usize {
        self.request_budget.used()
    }

    /// Returns true if a call of this class is shed before it is examined. Health checks and streams are never shed.
    pub(super) fn should_shed(&self, kind: CallKind) -> bool {
        kind.work_class()
            .is_some_and(|class| self.admission.should_shed(class))
    }

    pub(super) fn shed_error() -> ServiceError {
        AdmissionError::Saturated.into()
    }

    /// Returns the fair-share group of a call: its tenant if authenticated, otherwise its connection.
    pub(super) fn share_group(
        &self,
        authentication: Option<&Authentication>,
        connection: Option<&Arc<ShareGroup>>,
    ) -> Arc<ShareGroup> {
        match authentication {
            Some(authentication) => self.share_groups.of(authentication.principal.tenant()),
            None => connection.map(Arc::clone).unwrap_or_default(),
        }
    }

    /// Counts a call as in flight. Fails if all calls together, or those of its group, are too many.
    pub(super) fn reserve_call(
        &self,
        kind: CallKind,
        share_group: &Arc<ShareGroup>,
    ) -> Result<BudgetShare, ServiceError> {
        // Health checks are answered during a drain too, so that load balancers see the change of readiness.
        if kind != CallKind::Probe && self.draining.is_cancelled() {
            return Err(ServiceError::shutting_down(RETRY_AFTER_DRAIN));
        }
        let budget = match kind {
            CallKind::Probe => &self.probe_budget,
            // A status stream takes its permit at the beginning, in `admit`.
            CallKind::Status => return Ok(BudgetShare::default()),
            CallKind::Watch | CallKind::Read | CallKind::Call => &self.calls_budget,
        };
        Ok(BudgetShare::take(budget, share_group, 1)?)
    }

    /// Returns an empty share of the request memory for a call of the group.
    pub(super) fn request_share(&self, share_group: &Arc<ShareGroup>) -> BudgetShare {
        BudgetShare::new(&self.request_budget, share_group)
    }

    /// Returns the budget of reply memory.
    pub(super) fn replies(&self) -> &Arc<SharedBudget> {
        &self.reply_budget
    }

    /// Returns the bytes of replies in memory that callers have not received yet.
    pub fn reply_bytes(&self) -> usize {
        self.reply_budget.used()
    }

    /// Returns the admission permit of a call, or `None` for a kind without work.
    pub(super) async fn acquire_worker_slot(
        &self,
        kind: CallKind,
        method: &str,
        deadline: Deadline,
    ) -> Result<Option<WorkPermit>, ServiceError> {
        let Some(class) = kind.work_class() else {
            return Ok(None);
        };
        let max_wait = deadline.remaining();
        Ok(Some(self.admission.acquire(class, method, max_wait).await?))
    }

    pub(super) fn draining(&self) -> &CancellationToken {
        &self.draining
    }

    /// Returns the permit of a completely received call. Draining does not affect it, because the call is already
    /// accepted.
    pub(super) fn admit(&self, kind: CallKind) -> Result<Permit, ServiceError> {
        let places = match kind {
            CallKind::Probe => return Ok(None),
            CallKind::Watch => &self.watches,
            CallKind::Status => &self.status,
            CallKind::Read | CallKind::Call => &self.calls,
        };
        // No wait here: calls wait in admission only, which knows their deadlines.
        let permit = Arc::clone(places).try_acquire_owned();
        permit
            .map(Some)
            .map_err(|_| ServiceError::overloaded(RETRY_AFTER))
    }
}

impl From<AdmissionError> for ServiceError {
    fn from(refused: AdmissionError) -> Self {
        match refused {
            AdmissionError::Saturated => Self::overloaded(RETRY_AFTER),
            AdmissionError::DeadlineTooShort => Self::deadline_exceeded(),
        }
    }
}

#[cfg(test)]
mod tests {
    use palimpsest_proto::context::v1::ErrorReason;

    use super::*;

    #[test]
    fn permits_are_released_and_none_is_granted_while_draining() {
        let config = GrpcConfig {
            max_concurrent_requests: 1,
            max_watches: 0,
            max_health_watches: 1,
            ..GrpcConfig::default()
        };
        let draining = CancellationToken::new();
        let admission = CallLimits::new(&config, Arc::default(), draining.clone());
        let refused = |kind| admission.admit(kind).unwrap_err();

        let first = admission.admit(CallKind::Call).unwrap();
        let present = admission
            .reserve_call(CallKind::Call, &Arc::default())
            .unwrap();
        assert_eq!(admission.in_flight().calls, 1);
        drop(present);
        assert_eq!(refused(CallKind::Call).reason(), ErrorReason::Overloaded);
        assert_eq!(refused(CallKind::Watch).reason(), ErrorReason::Overloaded);
        // Status streams have a separate limit.
        let status = admission.admit(CallKind::Status).unwrap();
        assert!(admission.admit(CallKind::Status).is_err());
        drop((first, status));
        assert!(admission.admit(CallKind::Call).is_ok());

        let under_way = admission
            .reserve_call(CallKind::Call, &Arc::default())
            .unwrap();
        draining.cancel();
        for kind in [CallKind::Call, CallKind::Watch, CallKind::Status] {
            let late = admission.reserve_call(kind, &Arc::default()).unwrap_err();
            assert_eq!(late.reason(), ErrorReason::NotServing);
        }
        assert!(
            admission
                .reserve_call(CallKind::Probe, &Arc::default())
                .is_ok()
        );
        assert!(
            admission.admit(CallKind::Call).is_ok(),
            "a call reserved before the drain must be admitted"
        );
        drop(under_way);
    }
}
