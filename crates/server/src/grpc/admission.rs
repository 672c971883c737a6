//! Which calls are taken. What does not fit is refused, at once or after it waited for a moment: a queue that
//! stands would only make every answer late.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::budget::{Budget, Share};
use super::deadline::Deadline;
use super::pace::{Lane, Pace, Refused};
use super::span::CallSpan;
use super::ticket::Ticket;
use crate::config::GrpcConfig;
use crate::errors::ServiceError;

/// When a refused caller may try again: most calls take far less.
const RETRY_AFTER: Duration = Duration::from_millis(250);
/// When the next replica may have started.
const RESTART_AFTER: Duration = Duration::from_secs(1);

/// What a call is, as far as taking it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Asks how we are: always answered, most of all under load.
    Probe,
    /// A stream without an end: it does little, and must not take the place of a call.
    Watch,
    /// Reads a little, and is cheap.
    Read,
    /// Everything else.
    Call,
}

impl Kind {
    /// The kind of a method, by its path.
    pub(super) fn of(path: &str) -> Self {
        match path {
            "/grpc.health.v1.Health/Check" => Self::Probe,
            "/grpc.health.v1.Health/Watch"
            | "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
            | "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
            | "/palimpsest.context.v1.SessionService/WatchSession" => Self::Watch,
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
            Self::Probe | Self::Watch => None,
            Self::Read => Some(Lane::Read),
            Self::Call => Some(Lane::Change),
        }
    }
}

/// How many calls are taken at one time.
#[derive(Debug, Clone)]
pub struct Admission {
    max_calls: usize,
    max_watches: usize,
    calls: Arc<Semaphore>,
    watches: Arc<Semaphore>,
    pace: Arc<Pace>,
    requests: Arc<Budget>,
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

impl Admission {
    /// Takes calls until `draining`, and counts the changes that are worked on.
    pub fn new(
        config: &GrpcConfig,
        changes: Arc<AtomicUsize>,
        draining: CancellationToken,
    ) -> Self {
        Self {
            max_calls: config.max_concurrent_requests,
            max_watches: config.max_watches,
            calls: Arc::new(Semaphore::new(config.max_concurrent_requests)),
            watches: Arc::new(Semaphore::new(config.max_watches)),
            pace: Pace::new(
                config.max_concurrent_requests,
                config.max_slowdown_percent,
                changes,
            ),
            requests: Budget::new(config.max_request_bytes_in_flight),
            draining,
        }
    }

    /// How many calls there are now.
    pub fn in_flight(&self) -> InFlight {
        InFlight {
            calls: self.max_calls - self.calls.available_permits(),
            watches: self.max_watches - self.watches.available_permits(),
        }
    }

    /// How many there may be.
    pub fn most(&self) -> InFlight {
        InFlight {
            calls: self.max_calls,
            watches: self.max_watches,
        }
    }

    /// How many calls may be worked on at one time, as it is now.
    pub fn limit(&self) -> usize {
        self.pace.limit()
    }

    /// How many calls were turned away because others would have become slower.
    pub fn shed(&self) -> u64 {
        self.pace.refused()
    }

    /// Bytes of requests in memory.
    pub fn request_bytes(&self) -> usize {
        self.requests.used()
    }

    /// Whether calls are refused now before anything is known of them. Probes and watches never are.
    pub(super) fn refuses(&self, kind: Kind) -> bool {
        kind.lane().is_some_and(|lane| self.pace.refuses(lane))
    }

    /// What those are told.
    pub(super) fn refusal() -> ServiceError {
        Refused::NoPlace.into()
    }

    /// The ticket of a call that has its permit, if it is also to be worked on now.
    pub(super) async fn ticket(
        &self,
        (kind, method, deadline): (Kind, &str, Deadline),
        span: CallSpan,
    ) -> Result<Ticket, ServiceError> {
        let patience = deadline.remaining();
        let place = match kind.lane() {
            Some(lane) => Some(self.pace.enter(lane, method, patience).await?),
            None => None,
        };
        let share = Share::of(&self.requests);
        Ok(Ticket::new(
            span,
            share,
            place,
            kind == Kind::Watch,
            deadline,
        ))
    }

    pub(super) fn draining(&self) -> &CancellationToken {
        &self.draining
    }

    pub(super) fn admit(&self, kind: Kind) -> Result<Permit, ServiceError> {
        let places = match kind {
            Kind::Probe => return Ok(None),
            Kind::Watch => &self.watches,
            Kind::Read | Kind::Call => &self.calls,
        };
        if self.draining.is_cancelled() {
            return Err(ServiceError::ShuttingDown {
                retry_after: RESTART_AFTER,
            });
        }
        let permit = Arc::clone(places).try_acquire_owned();
        permit.map(Some).map_err(|_| ServiceError::Overloaded {
            retry_after: RETRY_AFTER,
        })
    }
}

impl From<Refused> for ServiceError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::NoPlace => Self::Overloaded {
                retry_after: RETRY_AFTER,
            },
            Refused::TooLate => Self::DeadlineExceeded,
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
            ..GrpcConfig::default()
        };
        let draining = CancellationToken::new();
        let admission = Admission::new(&config, Arc::default(), draining.clone());
        let refused = |kind| admission.admit(kind).unwrap_err();

        let first = admission.admit(Kind::Call).unwrap();
        assert_eq!(admission.in_flight().calls, 1);
        assert!(matches!(
            refused(Kind::Call),
            ServiceError::Overloaded { .. }
        ));
        assert!(matches!(
            refused(Kind::Watch),
            ServiceError::Overloaded { .. }
        ));
        drop(first);
        assert!(admission.admit(Kind::Call).is_ok());

        draining.cancel();
        for kind in [Kind::Call, Kind::Watch] {
            assert!(matches!(refused(kind), ServiceError::ShuttingDown { .. }));
        }
        assert!(admission.admit(Kind::Probe).is_ok());
    }
}
