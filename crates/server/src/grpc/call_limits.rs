//! Which calls are taken. What does not fit is refused, at once or after it waited for a moment: a queue that
//! stands would only make every answer late.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use palimpsest_engine::call::Deadline;
use palimpsest_settings::GrpcConfig;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::admission::{AdmissionControl, AdmissionError, Lane, WorkPermit};
use super::budget::{BudgetKind, BudgetShare, ShareGroups, SharedBudget};
use crate::access::Authentication;
use crate::errors::ServiceError;
use crate::net::ShareGroup;

/// When a refused caller may try again: most calls take far less.
const RETRY_AFTER: Duration = Duration::from_millis(250);
/// When the next replica may have started.
const RESTART_AFTER: Duration = Duration::from_secs(1);

/// What a call is, as far as taking it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallKind {
    /// Asks how we are: always answered, most of all under load.
    Probe,
    /// A stream without an end: it does little, and must not take the place of a call.
    Watch,
    /// The same of those who may say nothing of themselves. It must not take the place of a session's watcher.
    Status,
    /// Reads a little, and is cheap.
    Read,
    /// Everything else.
    Call,
}

impl CallKind {
    /// The kind of a method, by its path.
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
            | "/palimpsest.context.v1.SessionService/ListSessions" => Self::Read,
            _ => Self::Call,
        }
    }

    /// Where it is worked on; what does not work has no lane.
    const fn lane(self) -> Option<Lane> {
        match self {
            Self::Probe | Self::Watch | Self::Status => None,
            Self::Read => Some(Lane::Read),
            Self::Call => Some(Lane::Change),
        }
    }
}

/// Calls that are there, for each that has a place: the bodies of the others are still coming, or their replies are
/// on their way.
const PRESENT: usize = 4;
const MIN_PRESENT: usize = 256;
/// Probes at one time.
const PROBES: usize = 1_024;

/// How many calls are taken at one time.
#[derive(Debug, Clone)]
pub struct CallLimits {
    max_calls: usize,
    max_watches: usize,
    max_status: usize,
    calls: Arc<Semaphore>,
    watches: Arc<Semaphore>,
    status: Arc<Semaphore>,
    /// Calls from their headers to the last byte of their replies.
    present: Arc<SharedBudget>,
    probes: Arc<SharedBudget>,
    admission: Arc<AdmissionControl>,
    requests: Arc<SharedBudget>,
    replies: Arc<SharedBudget>,
    parties: Arc<ShareGroups>,
    draining: CancellationToken,
}

/// How many calls there are now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InFlight {
    /// Calls.
    pub calls: usize,
    /// Watches.
    pub watches: usize,
}

/// A call's place; gives it back when dropped.
pub(super) type Permit = Option<OwnedSemaphorePermit>;

impl CallLimits {
    /// Takes calls until `draining`, and counts the changes that are worked on.
    pub fn new(
        config: &GrpcConfig,
        changes: Arc<AtomicUsize>,
        draining: CancellationToken,
    ) -> Self {
        let present = (config.max_concurrent_requests * PRESENT).max(MIN_PRESENT);
        Self {
            max_calls: config.max_concurrent_requests,
            max_watches: config.max_watches,
            max_status: config.max_health_watches,
            calls: Arc::new(Semaphore::new(config.max_concurrent_requests)),
            watches: Arc::new(Semaphore::new(config.max_watches)),
            status: Arc::new(Semaphore::new(config.max_health_watches)),
            present: SharedBudget::new(BudgetKind::Calls, present),
            probes: SharedBudget::new(BudgetKind::Calls, PROBES),
            admission: AdmissionControl::new(
                config.max_concurrent_requests,
                config.max_slowdown_percent,
                changes,
            ),
            requests: SharedBudget::new(BudgetKind::Requests, config.max_request_bytes_in_flight),
            replies: SharedBudget::new(BudgetKind::Replies, config.max_reply_bytes_in_flight),
            parties: Arc::default(),
            draining,
        }
    }

    /// How many calls there are now, with those whose replies are on their way.
    pub fn in_flight(&self) -> InFlight {
        let watches = self.max_watches - self.watches.available_permits();
        let status = self.max_status - self.status.available_permits();
        InFlight {
            calls: self.present.used(),
            watches: watches + status,
        }
    }

    /// How many there may be.
    pub fn most(&self) -> InFlight {
        InFlight {
            calls: self.max_calls,
            watches: self.max_watches + self.max_status,
        }
    }

    /// How many calls may be worked on at one time, as it is now.
    pub fn limit(&self) -> usize {
        self.admission.limit()
    }

    /// How many calls were turned away because others would have become slower.
    pub fn shed(&self) -> u64 {
        self.admission.refused()
    }

    /// Bytes of requests in memory.
    pub fn request_bytes(&self) -> usize {
        self.requests.used()
    }

    /// Whether calls are refused now before anything is known of them. Probes and watches never are.
    pub(super) fn refuses(&self, kind: CallKind) -> bool {
        kind.lane().is_some_and(|lane| self.admission.refuses(lane))
    }

    /// What those are told.
    pub(super) fn refusal() -> ServiceError {
        AdmissionError::Saturated.into()
    }

    /// The party of a call: its tenant where that is known, or else its connection.
    pub(super) fn party(
        &self,
        pass: Option<&Authentication>,
        connection: Option<&Arc<ShareGroup>>,
    ) -> Arc<ShareGroup> {
        match pass {
            Some(pass) => self.parties.of(pass.caller.tenant()),
            None => connection.map(Arc::clone).unwrap_or_default(),
        }
    }

    /// Lets a call be there, which costs little. Refused where there are too many, of all or of its party.
    pub(super) fn enter(
        &self,
        kind: CallKind,
        party: &Arc<ShareGroup>,
    ) -> Result<BudgetShare, ServiceError> {
        if kind != CallKind::Probe && self.draining.is_cancelled() {
            return Err(ServiceError::ShuttingDown {
                retry_after: RESTART_AFTER,
            });
        }
        match kind {
            CallKind::Probe => BudgetShare::take(&self.probes, party, 1),
            // It has a place from its beginning.
            CallKind::Status => Ok(BudgetShare::default()),
            CallKind::Watch | CallKind::Read | CallKind::Call => {
                BudgetShare::take(&self.present, party, 1)
            }
        }
    }

    /// The part of the memory for requests that a call of a party may have.
    pub(super) fn request_share(&self, party: &Arc<ShareGroup>) -> BudgetShare {
        BudgetShare::new(&self.requests, party)
    }

    /// The memory for replies.
    pub(super) fn replies(&self) -> &Arc<SharedBudget> {
        &self.replies
    }

    /// Bytes of replies in memory that are on their way.
    pub fn reply_bytes(&self) -> usize {
        self.replies.used()
    }

    /// A place among the calls that are worked on; none for what does no work.
    pub(super) async fn work(
        &self,
        kind: CallKind,
        method: &str,
        deadline: Deadline,
    ) -> Result<Option<WorkPermit>, ServiceError> {
        let Some(lane) = kind.lane() else {
            return Ok(None);
        };
        let patience = deadline.remaining();
        Ok(Some(self.admission.enter(lane, method, patience).await?))
    }

    pub(super) fn draining(&self) -> &CancellationToken {
        &self.draining
    }

    /// The permit of a call whose request is there. A call that was let in before the drain began is finished.
    pub(super) fn admit(&self, kind: CallKind) -> Result<Permit, ServiceError> {
        let places = match kind {
            CallKind::Probe => return Ok(None),
            CallKind::Watch => &self.watches,
            CallKind::Status => &self.status,
            CallKind::Read | CallKind::Call => &self.calls,
        };
        let permit = Arc::clone(places).try_acquire_owned();
        permit.map(Some).map_err(|_| ServiceError::Overloaded {
            retry_after: RETRY_AFTER,
        })
    }
}

impl From<AdmissionError> for ServiceError {
    fn from(refused: AdmissionError) -> Self {
        match refused {
            AdmissionError::Saturated => Self::Overloaded {
                retry_after: RETRY_AFTER,
            },
            AdmissionError::TooLate => Self::DeadlineExceeded,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_given_back_and_none_is_given_when_draining() {
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
        let present = admission.enter(CallKind::Call, &Arc::default()).unwrap();
        assert_eq!(admission.in_flight().calls, 1);
        drop(present);
        assert!(matches!(
            refused(CallKind::Call),
            ServiceError::Overloaded { .. }
        ));
        assert!(matches!(
            refused(CallKind::Watch),
            ServiceError::Overloaded { .. }
        ));
        // Those who only ask how the server is have a lane of their own.
        let status = admission.admit(CallKind::Status).unwrap();
        assert!(admission.admit(CallKind::Status).is_err());
        drop((first, status));
        assert!(admission.admit(CallKind::Call).is_ok());

        let under_way = admission.enter(CallKind::Call, &Arc::default()).unwrap();
        draining.cancel();
        for kind in [CallKind::Call, CallKind::Watch, CallKind::Status] {
            let late = admission.enter(kind, &Arc::default()).unwrap_err();
            assert!(matches!(late, ServiceError::ShuttingDown { .. }));
        }
        assert!(admission.enter(CallKind::Probe, &Arc::default()).is_ok());
        assert!(
            admission.admit(CallKind::Call).is_ok(),
            "its body came later"
        );
        drop(under_way);
    }
}
