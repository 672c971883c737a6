//! Starts the server, and ends it in the order in which nothing is lost.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use async_trait::async_trait;
use palimpsest_engine::clock::{Clock, IdSource, SystemClock};
use palimpsest_engine::quotas::QuotaTracker;
use palimpsest_settings::Config;
use palimpsest_store::StoreError;
use palimpsest_worker::WorkerStats;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use crate::access::{Access, LoadError};
use crate::admin;
use crate::errors::BoxError;
use crate::grpc::{self, Authn, CallLimits, Edge, Health, InFlight, Mutations, ServerTls};
use crate::metrics::Metrics;
use crate::net::{self, Acceptor, AdminListener, Connections};
use crate::upkeep;

/// How long the admin port may take to close: its calls take no time.
const ADMIN_CLOSE: Duration = Duration::from_secs(1);

/// How long connections on which nothing goes on may take to close, and how often that is looked at.
const IDLE_CLOSE: Duration = Duration::from_millis(500);
const IDLE_LOOK: Duration = Duration::from_millis(20);

/// Why the server could not serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// An address cannot be listened on.
    #[error(
        "failed to listen on {address} ({setting}): {source}; choose another address, or stop what listens there"
    )]
    Listen {
        /// The setting that names the address.
        setting: &'static str,
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// What lies behind the services could not be started.
    #[error("failed to start: {0}")]
    Start(#[source] BoxError),
    /// The listener broke.
    #[error("failed to serve: {0}")]
    Serve(#[source] BoxError),
    /// What lies behind the services could not be closed well.
    #[error("failed to close the store: {0}; what was acknowledged is safe")]
    Close(#[source] BoxError),
}

/// What handlers are built with.
#[derive(Debug, Clone)]
pub struct ServerContext {
    /// The settings.
    pub config: Arc<Config>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// Makes ids.
    pub ids: Arc<IdSource>,
    /// Runs changes that a disconnect must not stop.
    pub mutations: Mutations,
    /// Cancelled when the server begins to go down: whoever waits for something should stop.
    pub draining: CancellationToken,
    /// What the worker has done.
    pub summaries: WorkerStats,
    /// What upkeep has done.
    pub upkeep: upkeep::MaintenanceStats,
    /// What is measured.
    pub metrics: Metrics,
    /// How many changes are worked on.
    pub changes: Arc<AtomicUsize>,
}

/// What lies behind the services.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// Writes and reads something small: only while this works can calls be served.
    async fn canary(&self) -> Result<(), BoxError>;

    /// Stops the worker, then flushes and closes the store. No call is in flight any more, unless
    /// the drain took too long.
    async fn close(&self) -> Result<(), BoxError>;
}

/// What is served.
pub struct App {
    /// The routes to the handlers, from [`grpc::Services::into_routes`].
    pub routes: Routes,
    /// What projects may use; without it, as much as there is.
    pub quotas: Option<Arc<QuotaTracker>>,
    /// What lies behind them.
    pub backend: Arc<dyn Backend>,
}

/// A server that has its ports and does not serve yet.
#[derive(Debug)]
pub struct Server {
    context: ServerContext,
    listener: TcpListener,
    admin: TcpListener,
}

impl Server {
    /// Takes the ports first of all: a port that is taken must not cost the time it takes to open a
    /// store, nor touch the store of the server that has it.
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
            upkeep: upkeep::MaintenanceStats::default(),
            metrics: Metrics::default(),
            changes: Arc::default(),
        };
        Ok(Self {
            context,
            listener,
            admin,
        })
    }

    /// Tells the time by another clock than the machine's.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.context.ids = Arc::new(IdSource::random(Arc::clone(&clock)));
        self.context.clock = clock;
        self
    }

    /// Measures into these metrics, which are sent somewhere too.
    #[must_use]
    pub fn with_metrics(mut self, metrics: Metrics) -> Self {
        self.context.metrics = metrics;
        self
    }

    /// Where the gRPC services listen, with the port that port 0 became.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Where the admin port listens.
    pub fn admin_address(&self) -> io::Result<SocketAddr> {
        self.admin.local_addr()
    }

    /// Builds what is served and serves it until `stop`, then goes down: not ready, no new calls,
    /// calls in flight finish, worker and store close.
    pub async fn run<B, F>(self, build: B, stop: CancellationToken) -> Result<(), ServeError>
    where
        B: FnOnce(ServerContext) -> F,
        F: Future<Output = Result<App, BoxError>>,
    {
        let addresses = (self.address().ok(), self.admin_address().ok());
        let Self {
            context,
            listener,
            admin,
        } = self;
        let health = Health::new().await;
        let admission = CallLimits::new(
            &context.config.grpc,
            Arc::clone(&context.changes),
            context.draining.clone(),
        );
        let share = net::ConnectionLimits::of_process(context.config.grpc.max_connections);
        let connections = Connections::new(share.grpc);
        context.metrics.watch_connections(&connections);
        let door = Acceptor::new(admin, Connections::new(share.admin), None);
        let admin = Admin::start(door, &context, &health, &admission);

        // Before the store is opened: keys or certificates that cannot be used must not cost that.
        let (access, tls) = entrance(&context).await.map_err(ServeError::Start)?;
        context
            .metrics
            .watch_entrance(access.as_ref(), tls.as_ref());
        let app = build(context.clone()).await.map_err(ServeError::Start)?;
        let backend = app.backend;
        let routes = grpc::with_standard_services(app.routes, &health)
            .map_err(|error| ServeError::Start(error.into()))?;
        let edge = Edge::new(
            &context.config,
            admission.clone(),
            Arc::clone(&context.clock),
            Arc::clone(&context.ids),
            (Authn::new(access), app.quotas),
            context.metrics.clone(),
        );
        let config = Arc::clone(&context.config);
        let closing = CancellationToken::new();
        let accepting = closing.clone();
        let mut serving = tokio::spawn(async move {
            let listener = (listener, connections);
            grpc::serve(listener, routes, edge, &config.grpc, tls, accepting).await;
        });
        announce(&context.config, addresses);
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

        // From here on the order matters. First the canary, which could say that all is well.
        watching.cancel();
        if canary.await.is_err() {
            tracing::error!("the watch over the store had panicked");
        }
        health.set_ready(false).await;
        context.draining.cancel();
        closing.cancel();
        let served = match broken {
            Some(ended) => ended.map_err(BoxError::from),
            None => drain(&context, &admission, serving).await,
        };
        let closed = backend.close().await;
        admin.close().await;
        served.map_err(ServeError::Serve)?;
        closed.map_err(ServeError::Close)?;
        tracing::info!("down");
        Ok(())
    }
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

/// Who may enter and how, from files that are looked at as long as the server runs.
async fn entrance(
    context: &ServerContext,
) -> Result<(Option<Arc<Access>>, Option<ServerTls>), BoxError> {
    let (config, clock) = (Arc::clone(&context.config), Arc::clone(&context.clock));
    let open = move || -> Result<_, LoadError> {
        Ok((
            Access::open(&config.auth, clock)?,
            ServerTls::open(&config.tls)?,
        ))
    };
    let (access, tls) = spawn_blocking(open).await??;
    let (every, stop) = (&context.config.auth.reload_ms, &context.draining);
    let every = Duration::from_millis(*every);
    if let Some(access) = &access {
        access.watch(every, stop);
    }
    if let Some(tls) = &tls {
        tls.watch(every, stop);
    }
    warn_of_what_is_open(&context.config);
    Ok((access.map(Arc::new), tls))
}

/// What was accepted in the configuration, and should be known to whoever reads the log.
fn warn_of_what_is_open(config: &Config) {
    if config.listen.ip().is_loopback() {
        return;
    }
    if !config.auth.is_on() {
        tracing::warn!(
            "insecure_listen_anywhere: every machine that reaches this one can read and change every session"
        );
    } else if config.tls.cert_file.is_none() {
        tracing::warn!(
            "auth.allow_plaintext: credentials come without TLS, and something else has to encrypt them"
        );
    }
}

fn announce(config: &Config, addresses: (Option<SocketAddr>, Option<SocketAddr>)) {
    let (grpc, admin) = addresses;
    tracing::info!(
        grpc = grpc.map(tracing::field::display),
        admin = admin.map(tracing::field::display),
        tls = config.tls.cert_file.is_some(),
        authenticated = config.auth.is_on(),
        data_dir = %config.data_dir.display(),
        blobs = config.blobs.url.as_deref().unwrap_or("in data_dir"),
        version = env!("CARGO_PKG_VERSION"),
        "serving"
    );
}

/// Ready is who can write. Said when it changes, not each time. It ends between two checks, so that
/// health is never left half told.
async fn watch_store(
    backend: Arc<dyn Backend>,
    health: Health,
    every: Duration,
    end: CancellationToken,
) {
    loop {
        let checked = timeout(every, backend.canary());
        let Some(checked) = end.run_until_cancelled(checked).await else {
            return;
        };
        let outcome = checked.unwrap_or_else(|elapsed| Err(elapsed.into()));
        match &outcome {
            Ok(()) if !health.is_ready() => tracing::info!("ready"),
            Err(error) if health.is_ready() => {
                tracing::error!(%error, "the store does not work: not ready until it does");
            }
            _ => {}
        }
        health.set_ready(outcome.is_ok()).await;
        let has_ended = |error: &BoxError| {
            let error = error.downcast_ref::<StoreError>();
            matches!(error, Some(StoreError::Failed(_)))
        };
        if outcome.as_ref().is_err_and(has_ended) && health.is_alive() {
            tracing::error!("the store has ended for good: not alive until a restart");
            health.set_dead().await;
        }
        if end.run_until_cancelled(sleep(every)).await.is_none() {
            return;
        }
    }
}

type Serving = JoinHandle<()>;

/// Waits for calls and changes in flight, though not for ever.
async fn drain(
    context: &ServerContext,
    admission: &CallLimits,
    serving: Serving,
) -> Result<(), BoxError> {
    let limit = Duration::from_millis(context.config.shutdown.drain_ms);
    let stop = serving.abort_handle();
    let finished = async {
        let served = serving.await;
        context.mutations.finished().await;
        served
    };
    let finished = async {
        tokio::select! {
            served = finished => Some(served),
            () = nothing_goes_on(context, admission) => None,
        }
    };
    let Ok(served) = timeout(limit, finished).await else {
        stop.abort();
        let calls = admission.in_flight().calls;
        let mutations = context.mutations.count();
        tracing::warn!(
            calls,
            mutations,
            "did not finish in shutdown.drain_ms: cut off"
        );
        return Ok(());
    };
    if let Some(served) = served {
        return Ok(served?);
    }
    stop.abort();
    Ok(())
}

/// Returns when nothing has been under way for a while, whatever connections are still open: a client that
/// does not close one when it is asked to must not hold up the end.
async fn nothing_goes_on(context: &ServerContext, admission: &CallLimits) {
    let mut quiet = Duration::ZERO;
    while quiet < IDLE_CLOSE {
        sleep(IDLE_LOOK).await;
        let InFlight { calls, watches } = admission.in_flight();
        let is_quiet = calls == 0 && watches == 0 && context.mutations.count() == 0;
        quiet = if is_quiet {
            quiet + IDLE_LOOK
        } else {
            Duration::ZERO
        };
    }
}

/// The admin port: up before the store is open, and until it is closed.
struct Admin {
    stop: CancellationToken,
    serving: JoinHandle<io::Result<()>>,
}

impl Admin {
    fn start(
        door: Acceptor,
        context: &ServerContext,
        health: &Health,
        admission: &CallLimits,
    ) -> Self {
        let stop = CancellationToken::new();
        context.metrics.watch_server(
            (health, &context.clock),
            (admission, &context.mutations),
            &context.summaries,
        );
        context.metrics.watch_upkeep(&context.upkeep);
        context.metrics.watch_runtime(Handle::current().metrics());
        let subject = admin::Subject {
            health: health.clone(),
            metrics: context.metrics.clone(),
        };
        let serving = tokio::spawn(admin::serve(
            AdminListener::new(door),
            subject,
            stop.clone(),
        ));
        Self { stop, serving }
    }

    async fn close(self) {
        self.stop.cancel();
        if timeout(ADMIN_CLOSE, self.serving).await.is_err() {
            tracing::debug!("the admin port had open connections");
        }
    }
}
