//! The settings of the PostgreSQL engine, their defaults, and the state of its pool.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::connect::SecretProvider;

/// The settings for opening a PostgreSQL store.
#[derive(Clone)]
pub struct PostgresOptions {
    /// A connection string: key and value pairs as for `libpq`, or a `postgres://` URL.
    pub url: String,
    /// The password, if the URL contains none. It is read for every connection. Default: none.
    pub password: Option<Arc<dyn SecretProvider>>,
    /// The schema of the tables. Default: `palimpsest`.
    pub schema: String,
    /// A PEM file with the trusted certificate authorities. Default: those of the system.
    pub ca_file: Option<PathBuf>,
    /// The PEM files of the client certificate and its key. Default: none.
    pub client_cert: Option<(PathBuf, PathBuf)>,
    /// The maximum number of connections in the pool. Default: 16.
    pub connections: usize,
    /// The maximum time that a call waits for a connection. Default: 2 s.
    pub wait: Duration,
    /// The timeout of connecting to one host. Default: 5 s.
    pub connect: Duration,
    /// The timeout of one statement. Default: 30 s.
    pub statement: Duration,
    /// The time for which a call is retried while the database is unavailable. Default: 5 s.
    pub retry: Duration,
    /// The maximum age of a cached storage usage. Default: 1 min.
    pub usage_age: Duration,
    /// The maximum time that a call waits for a new usage count if an older one is cached. Default: 250 ms.
    pub usage_max_wait: Duration,
    /// True if processes exchange hints, which needs one more connection per process. Default: true.
    pub notify: bool,
    /// The name of this process among those that share the store. Default: `process` and the process id.
    pub name: String,
    /// The clock of leases and due times. Default: the clock of the database.
    pub clock: LeaseClock,
    /// True if missing or older tables are created or migrated on open. Default: true.
    pub auto_migrate: bool,
}

impl PostgresOptions {
    /// Returns the default settings for a database. The defaults are based on measurements.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            password: None,
            schema: "palimpsest".into(),
            ca_file: None,
            client_cert: None,
            connections: 16,
            wait: Duration::from_secs(2),
            connect: Duration::from_secs(5),
            statement: Duration::from_secs(30),
            retry: Duration::from_secs(5),
            usage_age: Duration::from_mins(1),
            usage_max_wait: Duration::from_millis(250),
            notify: true,
            name: format!("process {}", std::process::id()),
            clock: LeaseClock::Database,
            auto_migrate: true,
        }
    }
}

/// The clock that decides which leases are valid and which sessions are due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseClock {
    /// The clock of the database, so that processes with wrong clocks take no leases from others.
    Database,
    /// The time that each call passes. For tests with simulated time.
    Caller,
}

/// Omits all secrets.
impl fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL may contain a password.
        f.debug_struct("PostgresOptions")
            .field("schema", &self.schema)
            .field("connections", &self.connections)
            .finish_non_exhaustive()
    }
}

/// The state of a connection pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolStatus {
    /// The number of open connections.
    pub open: usize,
    /// The number of idle connections.
    pub idle: usize,
    /// The number of calls that wait for a connection.
    pub waiting: usize,
    /// The maximum number of connections.
    pub max_connections: usize,
}
