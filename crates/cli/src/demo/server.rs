//! The server of the demo: a complete server on a temporary folder and free ports.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use palimpsest_core::ids::Timestamp;
use palimpsest_core::policy::Prices;
use palimpsest_engine::clock::{Clock, SystemClock};
use palimpsest_server::serve::Server;
use palimpsest_settings::Config;
use tempfile::TempDir;
use tonic::transport::Channel;

use crate::private_server::{ANY_PORT, PrivateServer};

/// The drain time at the end, in milliseconds.
const DRAIN_MS: u64 = 2_000;

/// A running server. `close` shuts it down. Dropping the value removes the folder in any case.
pub(super) struct DemoServer {
    pub(super) channel: Channel,
    pub(super) clock: Arc<OffsetClock>,
    pub(super) prices: Prices,
    server: PrivateServer,
    folder: TempDir,
}

impl DemoServer {
    /// Starts a server like `serve`, with the default settings.
    pub(super) async fn open() -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("palimpsest-demo-")
            .tempdir()
            .context("cannot create a temporary folder: set TMPDIR to a writable folder")?;
        let mut config = Config {
            listen: ANY_PORT,
            data_dir: folder.path().to_owned(),
            ..Config::default()
        };
        config.admin.listen = ANY_PORT;
        config.shutdown.drain_ms = DRAIN_MS;
        let prices = config.prices;
        let clock = Arc::new(OffsetClock::default());
        let server = Server::bind(config).await?.with_clock(clock.clone());
        let server = PrivateServer::start(server).await?;
        Ok(Self {
            channel: server.channel(),
            clock,
            prices,
            server,
            folder,
        })
    }

    /// Returns the address of the server.
    pub(super) fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Shuts the server down and removes its folder.
    pub(super) async fn close(self) -> anyhow::Result<()> {
        let Self {
            channel,
            server,
            folder,
            ..
        } = self;
        // An open connection delays the drain of the server.
        drop(channel);
        server.close().await?;
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
        // Timers measure real time. Only the dates of events skip the pauses.
        self.machine.monotonic()
    }
}
