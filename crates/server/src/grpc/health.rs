//! Whether the server lives and whether it can serve: two questions, two names.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};

use super::{CONTEXT_SERVICE, SESSION_SERVICE};

/// The name under which health says whether calls can be served. The empty name and those of the
/// services say the same.
pub const READINESS: &str = "palimpsest.readiness";
/// The name under which health says whether the process should go on living. A server that drains,
/// or whose store is down, lives: to restart it would help nobody. One whose store has ended for good does not.
pub const LIVENESS: &str = "palimpsest.liveness";

/// The state of the server, for the gRPC health service and the admin port.
#[derive(Debug, Clone)]
pub struct Health {
    reporter: HealthReporter,
    ready: Arc<watch::Sender<bool>>,
    alive: Arc<AtomicBool>,
}

impl Health {
    /// A server that lives and is not ready yet.
    pub async fn new() -> Self {
        let health = Self {
            reporter: HealthReporter::new(),
            ready: Arc::new(watch::Sender::new(false)),
            alive: Arc::new(AtomicBool::new(true)),
        };
        health
            .reporter
            .set_service_status(LIVENESS, ServingStatus::Serving)
            .await;
        health.report(ServingStatus::NotServing).await;
        health
    }

    /// Says whether calls can be served. Who watches hears of it only when it changes.
    pub async fn set_ready(&self, ready: bool) {
        if self.ready.send_replace(ready) == ready {
            return;
        }
        let status = if ready {
            ServingStatus::Serving
        } else {
            ServingStatus::NotServing
        };
        self.report(status).await;
    }

    /// Notes that only a restart helps. There is no way back.
    pub async fn set_dead(&self) {
        self.alive.store(false, Ordering::Relaxed);
        let reporter = &self.reporter;
        reporter
            .set_service_status(LIVENESS, ServingStatus::NotServing)
            .await;
    }

    /// Whether the process should go on living.
    pub fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Relaxed)
    }

    async fn report(&self, status: ServingStatus) {
        for name in ["", READINESS, CONTEXT_SERVICE, SESSION_SERVICE] {
            self.reporter.set_service_status(name, status).await;
        }
    }

    /// Whether calls can be served.
    pub fn is_ready(&self) -> bool {
        *self.ready.borrow()
    }

    pub(super) fn service(&self) -> HealthServer<HealthService> {
        HealthServer::new(HealthService::from_health_reporter(self.reporter.clone()))
    }
}
