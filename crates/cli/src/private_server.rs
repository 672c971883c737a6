//! A complete server inside the process of a command.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::anyhow;
use palimpsest_server::app;
use palimpsest_server::serve::{ServeError, Server};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint};

/// The pause between two attempts to connect to the starting server.
const CONNECT_PAUSE: Duration = Duration::from_millis(20);
// With `CONNECT_PAUSE`, a start can take ten seconds.
const MAX_CONNECT_ATTEMPTS: u32 = 500;

/// A free loopback port that the system chooses.
pub(super) const ANY_PORT: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A running server, and a connection to it.
pub(super) struct PrivateServer {
    channel: Channel,
    address: SocketAddr,
    stop: CancellationToken,
    serving: JoinHandle<Result<(), ServeError>>,
}

impl PrivateServer {
    /// Starts a bound server and waits until it answers.
    pub(super) async fn start(server: Server) -> anyhow::Result<Self> {
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
                    return Err(anyhow!("the private server ended while it was starting"));
                }
                Err(error) if attempts >= MAX_CONNECT_ATTEMPTS => {
                    return Err(anyhow!("the private server does not answer: {error}"));
                }
                Err(_) => tokio::time::sleep(CONNECT_PAUSE).await,
            }
            attempts += 1;
        };
        Ok(Self {
            channel,
            address,
            stop,
            serving,
        })
    }

    /// Returns the connection to the server.
    pub(super) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// Returns the address of the gRPC services.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Drains the server and closes its store.
    pub(super) async fn close(self) -> anyhow::Result<()> {
        // An open connection delays the drain.
        drop(self.channel);
        self.stop.cancel();
        Ok(self.serving.await??)
    }
}
