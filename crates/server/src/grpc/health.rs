//! Liveness and readiness of the server, under two service names.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};

use super::{ADMIN_SERVICE, CONTEXT_SERVICE, SESSION_SERVICE};

/// The health service name of readiness. The empty name and the service names report the same status.
pub const READINESS: &str = "palimpsest.readiness";
/// The health service name of liveness.
///
/// A draining server and a server whose store is unavailable are alive, because a restart would not help. A server
/// whose store failed permanently is not alive.
pub const LIVENESS: &str = "palimpsest.liveness";

/// The health of the server, for the gRPC health service and the admin port.
#[derive(Debug, Clone)]
pub struct Health {
    reporter: HealthReporter,
    ready: Arc<watch::Sender<bool>>,
    alive: Arc<AtomicBool>,
}

impl Health {
    /// Creates the health of a server that is alive and not ready.
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

    /// Sets readiness. Watchers are notified only of changes.
    pub async fn set_ready(&self, ready: bool) {
        // The canary reports each success. Watchers are notified only if the value changes.
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

    /// Ends liveness permanently: only a restart helps.
    pub async fn set_dead(&self) {
        self.alive.store(false, Ordering::Relaxed);
        let reporter = &self.reporter;
        reporter
            .set_service_status(LIVENESS, ServingStatus::NotServing)
            .await;
    }

    /// Returns true unless the process needs a restart.
    pub fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Relaxed)
    }

    async fn report(&self, status: ServingStatus) {
        for name in [
            "", READINESS, CONTEXT_SERVICE, SESSION_SERVICE, ADMIN_SERVICE,
        ] {
            self.reporter.set_service_status(name, status).await;
        }
    }

    /// Returns true if calls can be served.
    pub fn is_ready(&self) -> bool {
        *self.ready.borrow()
    }

    pub(super) fn service(&self) -> HealthServer<HealthService> {
        HealthServer::new(HealthService::from_health_reporter(self.reporter.clone()))
    }
}
