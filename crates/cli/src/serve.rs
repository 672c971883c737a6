//! `palimpsest serve`: runs the server.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use palimpsest_edge::metrics::Metrics;
use palimpsest_edge::port::Port as _;
use palimpsest_edge::{net, telemetry};
use palimpsest_gateway::Gateway;
use palimpsest_server::serve::Server;
use palimpsest_server::{app, signals};
use palimpsest_settings::{Config, LoadedConfig};

use super::allocator::return_free_memory_at_once;
use super::settings::Settings;

/// The time limit for tasks that still run after the server has closed. Nothing depends on their result.
const RUNTIME_CLOSE: Duration = Duration::from_secs(1);

/// Run a server: gRPC, and health and metrics over HTTP
#[derive(Debug, Args)]
#[command(
    after_help = "`palimpsest config` prints every setting. SIGTERM or SIGINT drains calls in flight and then ends \
the server. A second signal ends the server immediately.

Examples:
  palimpsest serve
  palimpsest serve --data-dir /var/lib/palimpsest --blobs s3://bucket/palimpsest
  palimpsest serve --listen 0.0.0.0:50051 --insecure-listen-anywhere
  palimpsest serve --role server --config palimpsest.toml
  PALIMPSEST_LOG_LEVEL=debug palimpsest serve --config palimpsest.toml"
)]
pub(super) struct ServeCommand {
    #[command(flatten)]
    settings: Settings,
}

impl ServeCommand {
    pub(super) fn run(self) -> anyhow::Result<()> {
        // This call may restart the program, so it precedes all other work.
        return_free_memory_at_once();
        run(self.settings.load()?)
    }
}

/// Runs the roles of a configuration until a signal.
pub(super) fn run(loaded: LoadedConfig) -> anyhow::Result<()> {
    let telemetry = telemetry::init(&loaded.config)?;
    // Each connection takes a file handle, and the usual soft limit is 1,024.
    net::raise_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(async {
        let stop = signals::stop_on_signals()?;
        let (server, _) = bind(loaded.config, telemetry.metrics()).await?;
        Ok(server.run(app::build, stop).await?)
    });
    runtime.shutdown_timeout(RUNTIME_CLOSE);
    // Telemetry ends last, so that the last spans and metrics are exported.
    telemetry.shutdown();
    outcome
}

/// Binds the ports of a server. Returns the address of its gateway too, if the gateway is on.
pub(super) async fn bind(
    config: Config,
    metrics: Metrics,
) -> anyhow::Result<(Server, Option<SocketAddr>)> {
    let gateway = (config.gateway.enabled && config.role.serves()).then(|| config.gateway.clone());
    let server = Server::bind(config).await?.with_metrics(metrics);
    let Some(gateway) = gateway else {
        return Ok((server, None));
    };
    // Bound before the store is opened, so that a conflict does not cost that time.
    let gateway = Gateway::bind(gateway).await?;
    let address = gateway.address()?;
    Ok((server.with_port(Box::new(gateway)), Some(address)))
}
