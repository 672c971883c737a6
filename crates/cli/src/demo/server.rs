//! The server of the demo: a complete server on a temporary folder and free ports.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use palimpsest_core::ids::Timestamp;
use palimpsest_core::policy::Prices;
use palimpsest_engine::clock::{Clock, SystemClock};
use palimpsest_server::app;
use palimpsest_server::serve::{ServeError, Server};
use palimpsest_settings::Config;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint};

/// The pause between two attempts to connect to the starting server.
const CONNECT_PAUSE: Duration = Duration::from_millis(20);
const MAX_CONNECT_ATTEMPTS: u32 = 500;
/// The drain time at the end, in milliseconds.
const DRAIN_MS: u64 = 2_000;

/// A running server. `close` shuts it down. Dropping the value removes the folder in any case.
pub(super) struct DemoServer {
    pub(super) channel: Channel,
    pub(super) clock: Arc<OffsetClock>,
    pub(super) prices: Prices,
    stop: CancellationToken,
    serving: JoinHandle<Result<(), ServeError>>,
    folder: TempDir,
}

impl DemoServer {
    /// Starts a server like `serve`, with the default settings.
    pub(super) async fn open() -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("palimpsest-demo-")
            .tempdir()
            .context("cannot create a temporary folder: set TMPDIR to a writable folder")?;
        let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut config = Config {
            listen: any_port,
            data_dir: folder.path().to_owned(),
            ..Config::default()
        };
        config.admin.listen = any_port;
        config.shutdown.drain_ms = DRAIN_MS;
        let prices = config.prices;
        let clock = Arc::new(OffsetClock::default());
        let server = Server::bind(config).await?.with_clock(clock.clone());
        let address = server.address()?;
        let stop = CancellationToken::new();
        let serving = tokio::spawn(server.run(app::build, stop.clone()));
        let endpoint = Endpoint::from_shared(format!("http://{address}"))?.tcp_nodelay(true);
        let mut attempts = 0;
        let channel = loop {
            // The server binds its port before it opens the store. A connection can therefore precede readiness, and
            // calls wait until the server is ready.
            match endpoint.connect().await {
                Ok(channel) => break channel,
                Err(_) if serving.is_finished() => {
                    serving.await??;
                    return Err(anyhow!(
                        "the server of the demo ended while it was starting"
                    ));
                }
                Err(error) if attempts >= MAX_CONNECT_ATTEMPTS => {
                    return Err(anyhow!("the server of the demo does not answer: {error}"));
                }
                Err(_) => tokio::time::sleep(CONNECT_PAUSE).await,
            }
            attempts += 1;
        };
        Ok(Self {
            channel,
            clock,
            prices,
            stop,
            serving,
            folder,
        })
    }

    /// Shuts the server down and removes its folder.
    pub(super) async fn close(self) -> anyhow::Result<()> {
        let Self {
            channel,
            stop,
            serving,
            folder,
            ..
        } = self;
        drop(channel);
        stop.cancel();
        serving.await??;
        folder
            .close()
            .context("failed to remove the temporary folder of the demo: delete it by hand")
    }
}

/// The clock of the machine plus an offset, so that the demo skips the pauses of the session.
#[derive(Debug, Default)]
pub(super) struct OffsetClock {
    machine: SystemClock,
    offset_ms: AtomicI64,
}

impl OffsetClock {
    /// Advances the clock by a duration.
    pub(super) fn advance(&self, by: Duration) {
        let by = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        // No other data depends on the offset, so no ordering is needed.
        self.offset_ms.fetch_add(by, Ordering::Relaxed);
    }
}

impl Clock for OffsetClock {
    fn now(&self) -> Timestamp {
        let offset = self.offset_ms.load(Ordering::Relaxed);
        Timestamp::from_millis(self.machine.now().as_millis().saturating_add(offset))
    }

    fn monotonic(&self) -> Duration {
        self.machine.monotonic()
    }
}
