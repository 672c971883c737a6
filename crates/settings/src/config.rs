//! All settings, as plain values with their defaults.

use palimpsest_core::ids::ProjectId;
use palimpsest_core::limits::Limits;
use palimpsest_core::policy::{Overlay, Prices};
use palimpsest_engine::maintenance::{RetentionConfig, SweepConfig};
use palimpsest_engine::quotas::QuotasConfig;
use palimpsest_worker::WorkerConfig;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::{
    AuthConfig, HooksConfig, LogFilter, LogFormat, OtlpConfig, PostgresConfig, Role,
    SummarizerConfig, TlsConfig,
};

/// Every setting of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// What this process does.
    pub role: Role,
    /// Where the gRPC services listen.
    pub listen: SocketAddr,
    /// Whether listening beyond this machine is allowed although nothing asks callers who they are.
    pub insecure_listen_anywhere: bool,
    /// The folder of the embedded store.
    pub data_dir: PathBuf,
    /// The HTTP port for those who run the server.
    pub admin: AdminConfig,
    /// Who may enter.
    pub auth: AuthConfig,
    /// How connections are kept private.
    pub tls: TlsConfig,
    /// Where tool results and summaries are kept.
    pub blobs: BlobsConfig,
    /// What is logged, and how.
    pub log: LogConfig,
    /// Where spans and metrics are sent.
    pub otlp: OtlpConfig,
    /// How much one call may bring.
    pub limits: Limits,
    /// What projects may use.
    pub quotas: QuotasConfig,
    /// Sessions in memory.
    pub sessions: SessionsConfig,
    /// The gRPC server.
    pub grpc: GrpcConfig,
    /// Going down.
    pub shutdown: ShutdownConfig,
    /// Where sessions are kept.
    pub store: StoreConfig,
    /// The worker that keeps summaries.
    pub worker: WorkerConfig,
    /// How long sessions are kept.
    pub retention: RetentionConfig,
    /// Files that no event names.
    pub sweep: SweepConfig,
    /// The model that writes summaries.
    pub summarizer: SummarizerConfig,
    /// The users' own hook services.
    pub hooks: HooksConfig,
    /// What new sessions start with.
    pub policy: PolicyConfig,
    /// What tokens cost.
    pub prices: Prices,
}

/// The HTTP port for those who run the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminConfig {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Whether other machines may reach it, which it asks nothing.
    pub listen_anywhere: bool,
}

/// Where tool results and summaries are kept.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BlobsConfig {
    /// A URL such as `s3://bucket/prefix`; without one, a folder in the data folder.
    pub url: Option<String>,
}

/// What is logged, and how.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogConfig {
    /// How a line looks.
    pub format: LogFormat,
    /// What is logged.
    pub level: LogFilter,
}

/// Sessions in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionsConfig {
    /// Bytes of loaded sessions; past it the ones unused longest are dropped from memory.
    pub cache_bytes: u64,
}

/// The gRPC server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrpcConfig {
    /// Calls at one time; one more is refused, not queued.
    pub max_concurrent_requests: usize,
    /// How long calls may take, in percent of what they take without load, before fewer are taken.
    pub max_slowdown_percent: u32,
    /// Connections at one time.
    pub max_connections: usize,
    /// Bytes of requests in memory at one time.
    pub max_request_bytes_in_flight: usize,
    /// Bytes of replies in memory that are on their way.
    pub max_reply_bytes_in_flight: usize,
    /// How long the body of a request or a reply may stand still.
    pub stall_timeout_ms: u64,
    /// How long the body of a request may take.
    pub body_timeout_ms: u64,
    /// How long a connection may be open without a call that is accepted.
    pub first_call_timeout_ms: u64,
    /// Watches (streams without an end) at one time.
    pub max_watches: usize,
    /// Health watches and reflection at one time.
    pub max_health_watches: usize,
    /// Streams of one connection at one time.
    pub max_streams_per_connection: u32,
    /// How long a call may take whose caller gives no deadline.
    pub request_timeout_ms: u64,
    /// The longest deadline that a caller is given.
    pub max_request_timeout_ms: u64,
    /// After this time a connection is asked to close, so that load spreads over new replicas.
    pub max_connection_age_ms: u64,
    /// After this much more it is closed.
    pub max_connection_age_grace_ms: u64,
    /// How often a silent connection is asked whether it still lives.
    pub keepalive_ms: u64,
    /// How long it may take to answer.
    pub keepalive_timeout_ms: u64,
}

/// Going down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShutdownConfig {
    /// How long calls in flight may take to finish.
    pub drain_ms: u64,
}

/// Where sessions are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreConfig {
    /// The database that many machines share, if there is one.
    pub postgres: PostgresConfig,
    /// Bytes of the embedded store's page cache.
    pub cache_bytes: u64,
    /// How often it writes to disk what nobody waits for, and collects garbage.
    pub flush_every_ms: u64,
    /// How often readiness writes to it to see whether it can.
    pub canary_every_ms: u64,
    /// Bytes of its disk that stay free.
    pub min_free_bytes: u64,
}

/// What new sessions start with.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PolicyConfig {
    /// What the server sets.
    pub server: Overlay,
    /// What projects want otherwise.
    pub projects: BTreeMap<ProjectId, Overlay>,
}

const MIB: u64 = 1024 * 1024;

impl Default for Config {
    fn default() -> Self {
        Self {
            role: Role::default(),
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 50051)),
            insecure_listen_anywhere: false,
            data_dir: "data".into(),
            admin: AdminConfig {
                listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 50052)),
                listen_anywhere: false,
            },
            auth: AuthConfig::default(),
            tls: TlsConfig::default(),
            blobs: BlobsConfig::default(),
            log: LogConfig::default(),
            otlp: OtlpConfig::default(),
            limits: Limits::default(),
            quotas: QuotasConfig::default(),
            sessions: SessionsConfig {
                cache_bytes: 256 * MIB,
            },
            grpc: GrpcConfig::default(),
            shutdown: ShutdownConfig { drain_ms: 25_000 },
            store: StoreConfig {
                postgres: PostgresConfig::default(),
                cache_bytes: 64 * MIB,
                flush_every_ms: 200,
                canary_every_ms: 5_000,
                min_free_bytes: 128 * MIB,
            },
            worker: WorkerConfig::default(),
            retention: RetentionConfig::default(),
            sweep: SweepConfig::default(),
            summarizer: SummarizerConfig::default(),
            hooks: HooksConfig::default(),
            policy: PolicyConfig::default(),
            prices: Prices::default(),
        }
    }
}

impl Default for GrpcConfig {
    fn default() -> Self {
        Self {
            max_concurrent_requests: 1_024,
            max_slowdown_percent: 300,
            max_connections: 4_096,
            max_request_bytes_in_flight: 256 << 20,
            max_reply_bytes_in_flight: 256 << 20,
            stall_timeout_ms: 30_000,
            body_timeout_ms: 60_000,
            first_call_timeout_ms: 60_000,
            max_watches: 1_024,
            max_health_watches: 256,
            max_streams_per_connection: 256,
            request_timeout_ms: 60_000,
            max_request_timeout_ms: 600_000,
            max_connection_age_ms: 30 * 60_000,
            max_connection_age_grace_ms: 60_000,
            keepalive_ms: 30_000,
            keepalive_timeout_ms: 20_000,
        }
    }
}

impl GrpcConfig {
    /// How long a call may take that asks for `asked`, or for nothing.
    pub fn timeout(&self, asked: Option<Duration>) -> Duration {
        let longest = Duration::from_millis(self.max_request_timeout_ms);
        asked.map_or(Duration::from_millis(self.request_timeout_ms), |asked| {
            asked.min(longest)
        })
    }
}
