//! The interface of a port beside the gRPC services.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use palimpsest_engine::Engine;
use palimpsest_engine::quotas::QuotaTracker;
use palimpsest_engine::tools::ToolRunner;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::access::Authenticator;
use crate::metrics::Metrics;
use crate::net::Connections;

/// The parts that a port receives from the server.
#[derive(Debug)]
pub struct PortParts {
    /// The connections of the port. Their maximum is the port's share of the file handles.
    pub connections: Connections,
    /// The requests in flight. The server drains the port until none is left.
    pub requests: TaskTracker,
    /// The authentication. `None` if authentication is off.
    pub authenticator: Option<Arc<Authenticator>>,
    /// The quotas of projects. `None` if nothing is limited.
    pub quotas: Option<Arc<QuotaTracker>>,
    /// The sessions of the process. `None` in tests without sessions.
    pub engine: Option<Engine>,
    /// Runs the service's tools for models. `None` in tests without sessions.
    pub tools: Option<Arc<dyn ToolRunner>>,
    /// The metrics of the process.
    pub metrics: Metrics,
}

/// A port that is bound to its address and does not serve yet.
#[async_trait]
pub trait Port: fmt::Debug + Send {
    /// Returns the address of the port. Port 0 is replaced by the assigned port.
    fn address(&self) -> io::Result<SocketAddr>;

    /// Returns the configured maximum of connections.
    fn max_connections(&self) -> usize;

    /// Serves until `stop`, then until the last connection is closed.
    async fn serve(self: Box<Self>, parts: PortParts, stop: CancellationToken);
}
