//! A server of the demo's own: the real one, on a folder and ports that are gone afterwards.

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

/// How often it is looked whether the server answers, and how many times.
const CONNECT_PAUSE: Duration = Duration::from_millis(20);
const MAX_CONNECT_ATTEMPTS: u32 = 500;
/// How long calls in flight may take when it ends.
const DRAIN_MS: u64 = 2_000;

/// A running server. `close` ends it; its folder goes with the value, whatever happens.
pub(super) struct DemoServer {
    pub(super) channel: Channel,
    pub(super) clock: Arc<OffsetClock>,
    pub(super) prices: Prices,
    stop: CancellationToken,
    serving: JoinHandle<Result<(), ServeError>>,
    folder: TempDir,
}

impl DemoServer {
    /// Starts it as `serve` does, with every setting at its default.
    pub(super) async fn open() -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("palimpsest-demo-")
            .tempdir()
            .context("the demo needs a temporary folder; TMPDIR says where")?;
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
        let mut looks = 0;
        let channel = loop {
            // The port is taken before the store is open: a connection alone proves nothing, but calls
            // wait for the server.
            match endpoint.connect().await {
                Ok(channel) => break channel,
                Err(_) if serving.is_finished() => {
                    serving.await??;
                    return Err(anyhow!("the demo's server ended before it began"));
                }
                Err(error) if looks >= MAX_CONNECT_ATTEMPTS => {
                    return Err(anyhow!("the demo's server does not answer: {error}"));
                }
                Err(_) => tokio::time::sleep(CONNECT_PAUSE).await,
            }
            looks += 1;
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

    /// Ends the server in order and removes its folder.
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
            .context("failed to remove the demo's folder; it can be deleted by hand")
    }
}

/// The machine's clock, and how far the session is ahead of it: nobody wants to wait for its pauses.
#[derive(Debug, Default)]
pub(super) struct OffsetClock {
    machine: SystemClock,
    offset_ms: AtomicI64,
}

impl OffsetClock {
    /// Lets so much time pass at once.
    pub(super) fn advance(&self, by: Duration) {
        let by = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        self.offset_ms.fetch_add(by, Ordering::Relaxed);
    }
}

impl Clock for OffsetClock {
    fn now(&self) -> Timestamp {
        let ahead = self.offset_ms.load(Ordering::Relaxed);
        Timestamp::from_millis(self.machine.now().as_millis().saturating_add(ahead))
    }

    fn monotonic(&self) -> Duration {
        self.machine.monotonic()
    }
}
