//! All settings as plain values, with their defaults.

use palimpsest_core::ids::ProjectId;
use palimpsest_core::limits::Limits;
use palimpsest_core::models::ModelEntry;
use palimpsest_core::policy::{Overlay, Prices};
use palimpsest_engine::maintenance::{RetentionConfig, SweepConfig};
use palimpsest_engine::quotas::QuotasConfig;
use palimpsest_worker::WorkerConfig;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::value::with_defaults;
use crate::{
    AuthConfig, GatewayConfig, HooksConfig, HttpConfig, LogFilter, LogFormat, McpConfig,
    OtlpConfig, PostgresConfig, Role, SummarizerConfig, TlsConfig,
};

with_defaults! {
    /// All settings of the server.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Config {
        /// The part of the work that this process does. Default: all.
        pub role: Role,
        /// Address of the gRPC services. Default: `127.0.0.1:50051`.
        pub listen: SocketAddr = SocketAddr::from((Ipv4Addr::LOCALHOST, 50051)),
        /// True if a non-loopback address is allowed without authentication. Default: false.
        pub insecure_listen_anywhere: bool,
        /// Data directory of the embedded store. Default: `data`.
        pub data_dir: PathBuf = "data".into(),
        /// The HTTP port for operators.
        pub admin: AdminConfig,
        /// Authentication.
        pub auth: AuthConfig,
        /// TLS of the gRPC services.
        pub tls: TlsConfig,
        /// Storage of results and summaries.
        pub blobs: BlobsConfig,
        /// Logging.
        pub log: LogConfig,
        /// The audit log.
        pub audit: AuditConfig,
        /// Export of spans and metrics.
        pub otlp: OtlpConfig,
        /// Limits of a single call.
        pub limits: Limits,
        /// Quotas of projects.
        pub quotas: QuotasConfig,
        /// Memory for sessions.
        pub sessions: SessionsConfig,
        /// The gRPC server.
        pub grpc: GrpcConfig,
        /// The HTTP API on the port of gRPC.
        pub http: HttpConfig,
        /// The Model Context Protocol over HTTP.
        pub mcp: McpConfig,
        /// The HTTP gateway.
        pub gateway: GatewayConfig,
        /// Shutdown.
        pub shutdown: ShutdownConfig,
        /// Storage of sessions.
        pub store: StoreConfig,
        /// The worker that keeps session memory up to date.
        pub worker: WorkerConfig,
        /// Retention of sessions.
        pub retention: RetentionConfig,
        /// The sweep of orphaned files.
        pub sweep: SweepConfig,
        /// The models that write summaries.
        pub summarizer: SummarizerConfig,
        /// The hook services of users.
        pub hooks: HooksConfig,
        /// Policies of new sessions.
        pub policy: PolicyConfig,
        /// Prices of tokens.
        pub prices: Prices,
        /// Models that the table of models does not have, or has with other values.
        pub models: Vec<ModelEntry>,
    }

    /// The HTTP port for operators.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct AdminConfig {
        /// Address of the port. Default: `127.0.0.1:50052`.
        pub listen: SocketAddr = SocketAddr::from((Ipv4Addr::LOCALHOST, 50052)),
        /// True if a non-loopback address is allowed. The port has no authentication. Default: false.
        pub listen_anywhere: bool,
    }
}

/// Storage of results and summaries.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BlobsConfig {
    /// A URL such as `s3://bucket/prefix`. Default: a folder in the data directory.
    pub url: Option<String>,
}

/// The audit log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuditConfig {
    /// The file to which the audit log is appended. `-` is standard output. Default: no audit log.
    pub file: Option<PathBuf>,
}

/// Logging.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogConfig {
    /// Format of log lines. Default: auto.
    pub format: LogFormat,
    /// Levels of logged events. Default: info.
    pub level: LogFilter,
}

with_defaults! {
    /// Memory for sessions.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct SessionsConfig {
        /// Approximate limit of bytes of loaded sessions. Least recently used sessions are evicted above it. Default: 256
        /// MiB.
        pub cache_bytes: u64 = 256 * MIB,
    }

    /// The gRPC server.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct GrpcConfig {
        /// Maximum concurrent calls. Further calls are rejected. Default: 1,024.
        pub max_concurrent_requests: usize = 1_024,
        /// Duration of calls, in percent of the duration without load, above which concurrency is reduced. Default: 300.
        pub max_slowdown_percent: u32 = 300,
        /// Maximum open connections. Default: 4,096.
        pub max_connections: usize = 4_096,
        /// Maximum bytes of requests in memory. Default: 256 MiB.
        pub max_request_bytes_in_flight: usize = 256 << 20,
        /// Maximum bytes of replies in memory that are being sent. Default: 256 MiB.
        pub max_reply_bytes_in_flight: usize = 256 << 20,
        /// Maximum time in milliseconds without progress in the body of a request or a reply. Default: 30,000.
        pub stall_timeout_ms: u64 = 30_000,
        /// Maximum duration of receiving the body of a request, in milliseconds. Default: 60,000.
        pub body_timeout_ms: u64 = 60_000,
        /// Maximum time in milliseconds that a connection stays open without an accepted call. Default: 60,000.
        pub first_call_timeout_ms: u64 = 60_000,
        /// Maximum concurrent watches, which are streams without an end. Default: 1,024.
        pub max_watches: usize = 1_024,
        /// Maximum concurrent health watches and reflection streams. Default: 256.
        pub max_health_watches: usize = 256,
        /// Maximum concurrent streams of one connection. Default: 256.
        pub max_streams_per_connection: u32 = 256,
        /// Timeout in milliseconds of calls without a deadline. Default: 60,000.
        pub request_timeout_ms: u64 = 60_000,
        /// Maximum deadline in milliseconds. Longer deadlines are shortened. Default: 600,000.
        pub max_request_timeout_ms: u64 = 600_000,
        /// Age in milliseconds at which a connection is asked to close, so that load spreads over new replicas. Default:
        /// 30 minutes.
        pub max_connection_age_ms: u64 = 30 * 60_000,
        /// Time in milliseconds after `max_connection_age_ms` at which the connection is closed. Default: 60,000.
        pub max_connection_age_grace_ms: u64 = 60_000,
        /// Interval in milliseconds of keepalive pings on an idle connection. Default: 30,000.
        pub keepalive_ms: u64 = 30_000,
        /// Maximum time in milliseconds for the reply to a keepalive ping. Default: 20,000.
        pub keepalive_timeout_ms: u64 = 20_000,
    }

    /// Shutdown.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ShutdownConfig {
        /// Maximum time in milliseconds for calls in flight to finish. Default: 25,000.
        pub drain_ms: u64 = 25_000,
    }

    /// Storage of sessions.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct StoreConfig {
        /// The PostgreSQL database. Used instead of the embedded store if it has a URL.
        pub postgres: PostgresConfig,
        /// Bytes of the embedded store's page cache. Default: 64 MiB.
        pub cache_bytes: u64 = 64 * MIB,
        /// Interval in milliseconds of background flushes and garbage collection in the embedded store. Default: 200.
        pub flush_every_ms: u64 = 200,
        /// Interval in milliseconds of the test writes that readiness depends on. Default: 5,000.
        pub canary_every_ms: u64 = 5_000,
        /// Free bytes on the disk below which writes are rejected. Default: 128 MiB.
        pub min_free_bytes: u64 = 128 * MIB,
    }
}

/// Policies of new sessions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PolicyConfig {
    /// The overlay of the server.
    pub server: Overlay,
    /// The overlays of projects. They override the server's overlay.
    pub projects: BTreeMap<ProjectId, Overlay>,
}

const MIB: u64 = 1024 * 1024;

impl GrpcConfig {
    /// Returns the timeout of a call with a requested deadline, or the default timeout without one.
    pub fn timeout(&self, asked: Option<Duration>) -> Duration {
        let longest = Duration::from_millis(self.max_request_timeout_ms);
        // A check between the settings keeps the default at or below the maximum.
        asked.map_or(Duration::from_millis(self.request_timeout_ms), |asked| {
            asked.min(longest)
        })
    }
}
