//! Startup and ordered shutdown of the server.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use async_trait::async_trait;
use palimpsest_edge::metrics::Metrics;
use palimpsest_edge::port::{Port, PortParts};
use palimpsest_edge::tls::ServerTls;
use palimpsest_engine::Engine;
use palimpsest_engine::clock::{Clock, IdSource, SystemClock};
use palimpsest_engine::maintenance;
use palimpsest_engine::quotas::QuotaTracker;
use palimpsest_engine::tools::ToolRunner;
use palimpsest_http::{AllowedOrigins, HttpApi, Mount, OpenTo};
use palimpsest_inspector::Inspector;
use palimpsest_mcp::McpApi;
use palimpsest_settings::Config;
use palimpsest_store::StoreError;
use palimpsest_worker::WorkerStats;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::service::Routes;

use crate::access::{Authenticator, LoadError};
use crate::admin::{self, AdminListener};
use crate::errors::BoxError;
use crate::grpc::{self, Authn, CallLimits, Edge, Health, InFlight, Mutations};
use crate::metrics::observe_server;
use crate::net::{self, Acceptor, Connections};

/// The maximum time for closing the admin port. Admin calls are short.
const ADMIN_CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The idle time after which a drain stops waiting for open connections, and the interval of the check.
const IDLE_CLOSE_TIMEOUT: Duration = Duration::from_millis(500);
const IDLE_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The reason for a failed start, run or shutdown of the server.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The server cannot listen on an address.
    #[error(
        "failed to listen on {address} ({setting}): {source}; choose another address, or stop the process that listens there"
    )]
    Listen {
        /// The setting that contains the address.
        setting: &'static str,
        /// The address to listen on.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The backend could not be started.
    #[error("failed to start: {0}")]
    Start(#[source] BoxError),
    /// The listener failed.
    #[error("failed to serve: {0}")]
    Serve(#[source] BoxError),
    /// The backend could not be closed cleanly.
    #[error("failed to close the store: {0}; acknowledged writes are safe")]
    Close(#[source] BoxError),
}

/// The shared dependencies of the handlers.
#[derive(Debug, Clone)]
pub struct ServerContext {
    /// The effective settings.
    pub config: Arc<Config>,
    /// The source of the current time.
    pub clock: Arc<dyn Clock>,
    /// The generator of ids.
    pub ids: Arc<IdSource>,
    /// Runs changes to completion, even if the client disconnects.
    pub mutations: Mutations,
    /// Cancelled when the shutdown begins. Long waits must end then.
    pub draining: CancellationToken,
    /// Statistics of the session-memory worker.
    pub summaries: WorkerStats,
    /// Statistics of the maintenance tasks.
    pub maintenance: maintenance::MaintenanceStats,
    /// The metrics registry of the server.
    pub metrics: Metrics,
    /// The number of changes in flight.
    pub changes: Arc<AtomicUsize>,
}

/// The store and the background tasks behind the services.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// Writes and reads a small probe. The server is ready only while this succeeds.
    async fn canary(&self) -> Result<(), BoxError>;

    /// Stops the worker, then flushes and closes the store.
    ///
    /// No call is in flight at this point, unless the drain timed out.
    async fn close(&self) -> Result<(), BoxError>;
}

/// The routes and the backend of a running server.
pub struct App {
    /// The routes to the handlers, from [`grpc::Services::into_routes`].
    pub routes: Routes,
    /// The quotas of projects. `None` means no quotas.
    pub quotas: Option<Arc<QuotaTracker>>,
    /// The sessions behind the handlers. `None` in tests without sessions.
    pub engine: Option<Engine>,
    /// Runs the service's tools for models. `None` in tests without sessions.
    pub tools: Option<Arc<dyn ToolRunner>>,
    /// The backend of the handlers.
    pub backend: Arc<dyn Backend>,
}

/// A server with bound ports that does not serve yet.
#[derive(Debug)]
pub struct Server {
    context: ServerContext,
    listener: TcpListener,
    admin: TcpListener,
    port: Option<Box<dyn Port>>,
}

impl Server {
    /// Binds the ports of the server.
    ///
    /// Binding is the first step. A conflict must not cost the time of opening the store. It must also not touch the
    /// store of the server that owns the port.
    pub async fn bind(config: Config) -> Result<Self, ServeError> {
        let listener = bind("listen", config.listen).await?;
        let admin = bind("admin.listen", config.admin.listen).await?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let context = ServerContext {
            config: Arc::new(config),
            ids: Arc::new(IdSource::random(Arc::clone(&clock))),
            clock,
            mutations: Mutations::default(),
            draining: CancellationToken::new(),
            summaries: WorkerStats::default(),
            maintenance: maintenance::MaintenanceStats::default(),
            metrics: Metrics::default(),
            changes: Arc::default(),
        };
        Ok(Self {
            context,
            listener,
            admin,
            port: None,
        })
    }

    /// Adds a port that is served and drained with the gRPC services.
    #[must_use]
    pub fn with_port(mut self, port: Box<dyn Port>) -> Self {
        self.port = Some(port);
        self
    }

    /// Replaces the system clock.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.context.ids = Arc::new(IdSource::random(Arc::clone(&clock)));
        self.context.clock = clock;
        self
    }

    /// Replaces the metrics, for example by metrics that are also exported.
    #[must_use]
    pub fn with_metrics(mut self, metrics: Metrics) -> Self {
        self.context.metrics = metrics;
        self
    }

    /// Returns the address of the gRPC services. Port 0 is replaced by the assigned port.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Returns the address of the admin port.
    pub fn admin_address(&self) -> io::Result<SocketAddr> {
        self.admin.local_addr()
    }

    /// Builds the app, serves until `stop` and then shuts down.
    ///
    /// The shutdown marks the server as not ready, rejects new calls and drains calls in flight. Then it closes worker
    /// and store.
    pub async fn run<B, F>(self, build: B, stop: CancellationToken) -> Result<(), ServeError>
    where
        B: FnOnce(ServerContext) -> F,
        F: Future<Output = Result<App, BoxError>>,
    {
        let addresses = Addresses {
            grpc: self.address().ok(),
            admin: self.admin_address().ok(),
            gateway: self.port.as_ref().and_then(|port| port.address().ok()),
        };
        let Self {
            context,
            listener,
            admin,
            port,
        } = self;
        let health = Health::new().await;
        let admission = CallLimits::new(
            &context.config.grpc,
            Arc::clone(&context.changes),
            context.draining.clone(),
        );
        // The ports share the file handles of the process.
        let share = net::ConnectionLimits::of_process(
            context.config.grpc.max_connections,
            port.as_ref().map_or(0, |port| port.max_connections()),
        );
        let connections = Connections::new(share.grpc);
        context.metrics.observe_connections(&connections);
        let acceptor = Acceptor::new(admin, Connections::new(share.admin), None);
        let admin = AdminServer::start(acceptor, &context, &health, &admission);

        // Before the store is opened: unusable keys or certificates must fail the start without that cost.
        let (access, tls) = load_auth(&context).await.map_err(ServeError::Start)?;
        context.metrics.observe_auth(access.as_ref(), tls.as_ref());
        let app = build(context.clone()).await.map_err(ServeError::Start)?;
        let backend = app.backend;
        let routes = grpc::with_standard_services(app.routes, &health)
            .map_err(|error| ServeError::Start(error.into()))?;
        let edge = Edge::new(
            &context.config,
            admission.clone(),
            Arc::clone(&context.clock),
            Arc::clone(&context.ids),
            (Authn::new(access.clone()), app.quotas.clone()),
            &context.metrics,
        );
        let http = http_api(&context.config).map_err(ServeError::Start)?;
        let config = Arc::clone(&context.config);
        let closing = CancellationToken::new();
        let accepting = closing.clone();
        let requests = TaskTracker::new();
        let parts = PortParts {
            connections: Connections::new(share.gateway),
            requests: requests.clone(),
            authenticator: access,
            quotas: app.quotas,
            engine: app.engine,
            tools: app.tools,
            metrics: context.metrics.clone(),
        };
        // A task of its own, which the drain can abort.
        let mut serving = tokio::spawn(async move {
            let listener = (listener, connections);
            let layers = (edge, http);
            let grpc = grpc::serve(
                listener,
                routes,
                layers,
                &config.grpc,
                tls,
                accepting.clone(),
            );
            match port {
                Some(port) => drop(tokio::join!(grpc, port.serve(parts, accepting))),
                None => grpc.await,
            }
        });
        print_addresses(&context.config, &addresses);
        let watching = CancellationToken::new();
        let canary = tokio::spawn(watch_store(
            Arc::clone(&backend),
            health.clone(),
            Duration::from_millis(context.config.store.canary_every_ms),
            watching.clone(),
        ));

        let broken = tokio::select! {
            () = stop.cancelled() => None,
            ended = &mut serving => Some(ended),
        };

        // The shutdown order matters. The canary stops first, because its next success would report readiness again.
        watching.cancel();
        if canary.await.is_err() {
            tracing::error!("the store canary panicked");
        }
        health.set_ready(false).await;
        // Ends watches and long waits first, so that they do not use up the time of the drain.
        context.draining.cancel();
        closing.cancel();
        let served = match broken {
            Some(ended) => ended.map_err(BoxError::from),
            None => drain(&context, (&admission, &requests), serving).await,
        };
        // The store closes after the drain, so that calls in flight can still commit. The admin port closes last and
        // keeps reporting health and metrics during the drain.
        let closed = backend.close().await;
        admin.close().await;
        served.map_err(ServeError::Serve)?;
        closed.map_err(ServeError::Close)?;
        tracing::info!("down");
        Ok(())
    }
}

/// Creates the HTTP API, if it is on and the process serves calls.
fn http_api(config: &Config) -> Result<HttpApi, BoxError> {
    if !config.http.enabled || !config.role.serves() {
        return Ok(HttpApi::off());
    }
    let origins = AllowedOrigins::new(config.http.allowed_origins.as_slice());
    let body_timeout = Duration::from_millis(config.grpc.body_timeout_ms);
    let is_open = !config.auth.is_on();
    let mut mounts: Vec<Arc<dyn Mount>> = Vec::new();
    if config.mcp.enabled {
        mounts.push(Arc::new(McpApi::new(config.mcp.allow_snip, body_timeout)));
    }
    if config.http.inspector {
        let has_tls = config.tls.cert_file.is_some();
        mounts.push(Arc::new(Inspector::new((is_open, has_tls), body_timeout)));
    }
    let open = match (is_open, config.listen.ip().is_loopback()) {
        (false, _) => OpenTo::Nobody,
        (true, true) => OpenTo::ThisMachine,
        (true, false) => OpenTo::Anyone,
    };
    Ok(HttpApi::new(origins, open, mounts)?)
}

async fn bind(setting: &'static str, address: SocketAddr) -> Result<TcpListener, ServeError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| ServeError::Listen {
            setting,
            address,
            source,
        })
}

/// Loads credentials and TLS certificates, and watches their files for changes until the drain.
async fn load_auth(
    context: &ServerContext,
) -> Result<(Option<Arc<Authenticator>>, Option<ServerTls>), BoxError> {
    let (config, clock) = (Arc::clone(&context.config), Arc::clone(&context.clock));
    let open = move || -> Result<_, LoadError> {
        Ok((
            Authenticator::open(&config.auth, clock)?,
            ServerTls::open(&config.tls)?,
        ))
    };
    // Reading files can block, so it runs outside of the async threads.
    let (access, tls) = spawn_blocking(open).await??;
    let (every, stop) = (&context.config.auth.reload_ms, &context.draining);
    let every = Duration::from_millis(*every);
    if let Some(access) = &access {
        access.watch(every, stop);
    }
    if let Some(tls) = &tls {
        tls.watch(every, stop);
    }
    warn_of_open_access(&context.config);
    Ok((access.map(Arc::new), tls))
}

/// Logs warnings for accepted but risky settings.
fn warn_of_open_access(config: &Config) {
    // Only this host can connect to a loopback address.
    if config.listen.ip().is_loopback() {
        return;
    }
    if !config.auth.is_on() {
        tracing::warn!(
            "insecure_listen_anywhere is set: every host that can connect can read and change all sessions"
        );
    } else if config.tls.cert_file.is_none() {
        tracing::warn!(
            "auth.allow_plaintext is set: credentials are received without TLS; encrypt them in front of this server"
        );
    }
}

/// The addresses of the ports. An unknown address is `None`.
struct Addresses {
    grpc: Option<SocketAddr>,
    admin: Option<SocketAddr>,
    gateway: Option<SocketAddr>,
}

fn print_addresses(config: &Config, addresses: &Addresses) {
    tracing::info!(
        grpc = addresses.grpc.map(tracing::field::display),
        admin = addresses.admin.map(tracing::field::display),
        gateway = addresses.gateway.map(tracing::field::display),
        tls = config.tls.cert_file.is_some(),
        authenticated = config.auth.is_on(),
        data_dir = %config.data_dir.display(),
        blobs = config.blobs.url.as_deref().unwrap_or("in data_dir"),
        version = env!("CARGO_PKG_VERSION"),
        "serving"
    );
}

/// Runs the canary every `every` until `end`, and updates readiness and liveness.
///
/// The first outcome and each change are logged. `end` takes effect between two updates, never within one.
async fn watch_store(
    backend: Arc<dyn Backend>,
    health: Health,
    every: Duration,
    end: CancellationToken,
) {
    // Readiness cannot replace this value: it is false before the first check, so a first failure would be no change.
    let mut was_healthy = None;
    loop {
        let checked = timeout(every, backend.canary());
        let Some(checked) = end.run_until_cancelled(checked).await else {
            return;
        };
        // A canary without an answer counts as a failure: a hanging store cannot serve calls.
        let outcome = checked.unwrap_or_else(|elapsed| Err(elapsed.into()));
        if was_healthy.replace(outcome.is_ok()) != Some(outcome.is_ok()) {
            match &outcome {
                Ok(()) => tracing::info!("ready"),
                Err(error) => {
                    tracing::error!(%error, "the store canary failed; the server is not ready");
                }
            }
        }
        health.set_ready(outcome.is_ok()).await;
        // `Failed` is permanent: the store cannot recover within this process, so liveness ends too.
        let has_ended = |error: &BoxError| {
            let error = error.downcast_ref::<StoreError>();
            matches!(error, Some(StoreError::Failed(_)))
        };
        if outcome.as_ref().is_err_and(has_ended) && health.is_alive() {
            tracing::error!("the store failed permanently; restart the server");
            health.set_dead().await;
        }
        if end.run_until_cancelled(sleep(every)).await.is_none() {
            return;
        }
    }
}

type Serving = JoinHandle<()>;

/// Waits for calls and changes in flight, at most `shutdown.drain_ms`.
async fn drain(
    context: &ServerContext,
    (admission, requests): (&CallLimits, &TaskTracker),
    serving: Serving,
) -> Result<(), BoxError> {
    // Mutations can outlive their calls, so both are awaited. Idle connections of clients that ignore GOAWAY must not
    // delay the shutdown.
    let limit = Duration::from_millis(context.config.shutdown.drain_ms);
    // Dropping a join handle does not end its task, so the abort needs a handle of its own.
    let stop = serving.abort_handle();
    let finished = async {
        let served = serving.await;
        context.mutations.finished().await;
        served
    };
    let finished = async {
        tokio::select! {
            served = finished => Some(served),
            () = wait_until_idle(context, admission, requests) => None,
        }
    };
    let Ok(served) = timeout(limit, finished).await else {
        stop.abort();
        let calls = admission.in_flight().calls;
        let mutations = context.mutations.count();
        tracing::warn!(
            calls,
            mutations,
            requests = requests.len(),
            "calls did not finish within shutdown.drain_ms and were aborted"
        );
        return Ok(());
    };
    if let Some(served) = served {
        return Ok(served?);
    }
    stop.abort();
    Ok(())
}

/// Returns after no call, watch, change or request of the gateway was in flight for [`IDLE_CLOSE_TIMEOUT`]. Open
/// connections do not count, because a client that keeps its connection open must not delay the shutdown.
async fn wait_until_idle(context: &ServerContext, admission: &CallLimits, requests: &TaskTracker) {
    let mut quiet = Duration::ZERO;
    while quiet < IDLE_CLOSE_TIMEOUT {
        sleep(IDLE_POLL_INTERVAL).await;
        let InFlight { calls, watches } = admission.in_flight();
        let is_quiet =
            calls == 0 && watches == 0 && context.mutations.count() == 0 && requests.is_empty();
        quiet = if is_quiet {
            quiet + IDLE_POLL_INTERVAL
        } else {
            Duration::ZERO
        };
    }
}

/// The admin port. It opens before the store and closes after it.
struct AdminServer {
    stop: CancellationToken,
    serving: JoinHandle<io::Result<()>>,
}

impl AdminServer {
    fn start(
        acceptor: Acceptor,
        context: &ServerContext,
        health: &Health,
        admission: &CallLimits,
    ) -> Self {
        let stop = CancellationToken::new();
        observe_server(
            &context.metrics,
            (health, &context.clock),
            (admission, &context.mutations),
            &context.summaries,
        );
        context.metrics.observe_maintenance(&context.maintenance);
        context.metrics.observe_runtime(Handle::current().metrics());
        let subject = admin::AdminState {
            health: health.clone(),
            metrics: context.metrics.clone(),
        };
        let serving = tokio::spawn(admin::serve(
            AdminListener::new(acceptor),
            subject,
            stop.clone(),
        ));
        Self { stop, serving }
    }

    async fn close(self) {
        self.stop.cancel();
        if timeout(ADMIN_CLOSE_TIMEOUT, self.serving).await.is_err() {
            tracing::debug!("the admin port closed with open connections");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Level, Metadata, Subscriber};

    use super::*;

    /// A store whose canary has these outcomes. The watch ends after the last one.
    struct Outcomes(Mutex<VecDeque<bool>>, CancellationToken);

    #[async_trait]
    impl Backend for Outcomes {
        async fn canary(&self) -> Result<(), BoxError> {
            let mut outcomes = self.0.lock().unwrap();
            let outcome = outcomes.pop_front().unwrap();
            if outcomes.is_empty() {
                self.1.cancel();
            }
            outcome.then_some(()).ok_or_else(|| "no space".into())
        }

        async fn close(&self) -> Result<(), BoxError> {
            Ok(())
        }
    }

    /// The levels of the log lines of this module.
    #[derive(Clone, Default)]
    struct Levels(Arc<Mutex<Vec<Level>>>);

    impl Subscriber for Levels {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.target() == module_path!().trim_end_matches("::tests")
        }

        fn event(&self, event: &Event<'_>) {
            self.0.lock().unwrap().push(*event.metadata().level());
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    async fn logged(outcomes: &[bool]) -> Vec<Level> {
        let levels = Levels::default();
        let _guard = tracing::subscriber::set_default(levels.clone());
        let end = CancellationToken::new();
        let outcomes = Mutex::new(outcomes.iter().copied().collect());
        let backend = Arc::new(Outcomes(outcomes, end.clone()));
        // An outcome counts as late after this time, so the time is far longer than a test.
        let every = Duration::from_mins(10);
        let health = Health::new().await;
        watch_store(backend, health, every, end).await;
        let logged = levels.0.lock().unwrap();
        logged.clone()
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_outcome_of_the_canary_and_each_change_are_logged() {
        let (failed, ready) = (Level::ERROR, Level::INFO);
        assert_eq!(logged(&[false]).await, [failed]);
        assert_eq!(logged(&[true, true]).await, [ready]);
        let outcomes = [false, false, true, true, false, true];
        assert_eq!(logged(&outcomes).await, [failed, ready, failed, ready]);
    }
}
