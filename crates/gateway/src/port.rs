//! The port of the gateway.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use palimpsest_edge::net::Acceptor;
use palimpsest_edge::port::{Port, PortParts};
use palimpsest_engine::clock::{IdSource, SystemClock};
use palimpsest_settings::{GatewayConfig, ProviderCompaction};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::caller::Callers;
use super::client::{self, UpstreamClient};
use super::compress::{Compression, CompressionMetrics};
use super::context::ContextPort;
use super::exchange::Readings;
use super::forward::Forwarder;
use super::held_key::KeyError;
use super::listen;
use super::manage::Manager;
use super::managed::EngineContext;
use super::metrics::{ContextMetrics, ResponseMetrics, observe_in_flight};
use super::reading::ReadMemory;
use super::upstream::Upstreams;

/// The reason for a gateway that cannot start.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The gateway cannot listen on its address.
    #[error(
        "failed to listen on {address} (gateway.listen): {source}; choose another address, or stop the process that \
         listens there"
    )]
    Listen {
        /// The address to listen on.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The base URL of an upstream cannot be an address of HTTP.
    #[error("failed to use a base URL of gateway.upstreams: {0}")]
    Upstream(#[from] http::Error),
    /// A key that the gateway holds cannot be read.
    #[error(
        "failed to read the key of an upstream: {setting}: {cause}; correct the setting or its source"
    )]
    Key {
        /// The setting of the key.
        setting: String,
        /// The failure. It contains nothing of the key.
        cause: String,
    },
    /// The authorities of the system, which sign the certificates of upstreams, cannot be used.
    #[error("failed to read the certificate authorities of the system: {0}")]
    Authorities(#[from] rustls::Error),
}

/// A gateway that is bound to its address and does not serve yet.
#[derive(Debug)]
pub struct Gateway {
    config: GatewayConfig,
    listener: TcpListener,
    client: UpstreamClient,
    upstreams: Upstreams,
    /// The context in place of the sessions of the process.
    context: Option<Arc<dyn ContextPort>>,
}

impl Gateway {
    /// Binds the port of the gateway.
    pub async fn bind(config: GatewayConfig) -> Result<Self, BindError> {
        let upstreams = Upstreams::of(&config.upstreams)?;
        // A missing key would otherwise appear with the first request.
        let keys = upstreams.check_keys().await;
        keys.map_err(|KeyError { setting, cause }| BindError::Key { setting, cause })?;
        let client = client::new(Duration::from_millis(config.connect_timeout_ms))?;
        let address = config.listen;
        let listener = TcpListener::bind(address).await;
        Ok(Self {
            listener: listener.map_err(|source| BindError::Listen { address, source })?,
            config,
            client,
            upstreams,
            context: None,
        })
    }

    /// Replaces the sessions of the process by another context.
    #[must_use]
    pub fn with_context(mut self, context: Arc<dyn ContextPort>) -> Self {
        self.context = Some(context);
        self
    }
}

#[async_trait]
impl Port for Gateway {
    fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    fn max_connections(&self) -> usize {
        self.config.max_connections
    }

    async fn serve(self: Box<Self>, parts: PortParts, stop: CancellationToken) {
        // The port has no TLS, so there are no handshakes to limit.
        let acceptor = Acceptor::new(self.listener, parts.connections, None);
        let prepare_timeout = Duration::from_millis(self.config.prepare_timeout_ms);
        let ids = parts.engine.as_ref().map(|engine| Arc::clone(&engine.ids));
        // Traces need ids, also in a process without an engine.
        let ids = ids.unwrap_or_else(|| IdSource::random(Arc::new(SystemClock::new())).into());
        // Without an engine, the gateway has no sessions and only forwards.
        let engine = parts.engine.filter(|_| self.config.manage);
        let context_with = |tools| {
            let engine = engine.clone()?;
            Some(EngineContext::new(engine, tools, prepare_timeout))
        };
        let compaction = self.config.upstreams.anthropic.compaction;
        // Requests to models and compression requests share this budget.
        let memory = ReadMemory::new(self.config.max_request_bytes_in_flight);
        // A guardrail gets messages only, so no tools can be offered with them.
        let compression = engine
            .clone()
            .zip(context_with(None))
            .map(|(engine, context)| Compression {
                engine,
                context,
                metrics: CompressionMetrics::new(&parts.metrics),
                memory: memory.clone(),
                max_bytes: self.config.max_request_bytes,
                prepare_timeout,
                stall: Duration::from_millis(self.config.stall_timeout_ms),
                requires_session: self.config.require_session,
            });
        let of_process = context_with(parts.tools);
        let of_process = of_process.map(|context| {
            let context = context.serving_edits(compaction == ProviderCompaction::Served);
            Arc::new(context) as Arc<dyn ContextPort>
        });
        let context = self.context.or(of_process);
        let manager = context.clone().map(|context| Manager {
            context,
            metrics: ContextMetrics::new(&parts.metrics),
            memory,
            max_bytes: self.config.max_request_bytes,
        });
        let readings = Readings {
            context,
            metrics: ResponseMetrics::new(&parts.metrics),
            memory: ReadMemory::new(self.config.max_response_bytes_in_flight),
            max_bytes: self.config.max_response_bytes,
            hold_timeout: Duration::from_millis(self.config.hold_timeout_ms),
            tasks: parts.requests.clone(),
        };
        let streams = Arc::new(Semaphore::new(self.config.max_streams));
        observe_in_flight(&parts.metrics, &streams, self.config.max_streams);
        let forwarder = Arc::new(Forwarder {
            client: self.client,
            upstreams: self.upstreams,
            streams,
            requests: parts.requests,
            stall: Duration::from_millis(self.config.stall_timeout_ms),
            readings: Arc::new(readings),
            manager,
            compression,
            requires_session: self.config.require_session,
            callers: Callers {
                authenticator: parts.authenticator,
                quotas: parts.quotas,
            },
            ids,
            metrics: parts.metrics,
        });
        let idle_timeout = Duration::from_millis(self.config.idle_timeout_ms);
        listen::serve(acceptor, forwarder, idle_timeout, stop).await;
    }
}
