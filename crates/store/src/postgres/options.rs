//! The settings of a PostgreSQL store, and the state of its pool.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::connect::Secret;

/// How a store is reached.
#[derive(Clone)]
pub struct PostgresOptions {
    /// A connection string as PostgreSQL's own clients take it, or a `postgres://` URL.
    pub url: String,
    /// The password, when it is not in the URL: read for each connection.
    pub password: Option<Arc<dyn Secret>>,
    /// The schema that holds the tables.
    pub schema: String,
    /// The authorities whose certificates are trusted, as PEM; without it those of the system.
    pub ca_file: Option<PathBuf>,
    /// The certificate that is shown to the database, as PEM, and its key.
    pub client_cert: Option<(PathBuf, PathBuf)>,
    /// How many connections there are at most.
    pub connections: usize,
    /// How long a call waits for one of them.
    pub wait: Duration,
    /// How long connecting to one host may take.
    pub connect: Duration,
    /// How long one statement may take.
    pub statement: Duration,
    /// How long a call goes on trying while the database cannot be reached.
    pub retry: Duration,
    /// For how long a count of what projects hold may be used again at most.
    pub usage_age: Duration,
    /// How long a call waits for a new count where there is an old one.
    pub usage_patience: Duration,
    /// Whether processes tell each other what changes, over one connection more each.
    pub notify: bool,
    /// Who this process is among those that share the store.
    pub name: String,
    /// Whether tables that are missing or old are made or changed when the store is opened.
    pub auto_migrate: bool,
}

impl PostgresOptions {
    /// The settings that were measured to be good.
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
            usage_patience: Duration::from_millis(250),
            notify: true,
            name: format!("process {}", std::process::id()),
            auto_migrate: true,
        }
    }
}

/// Without anything secret.
impl fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresOptions")
            .field("schema", &self.schema)
            .field("connections", &self.connections)
            .finish_non_exhaustive()
    }
}

/// What a pool of connections does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolStatus {
    /// Connections that are open.
    pub open: usize,
    /// Those of them that nobody uses now.
    pub idle: usize,
    /// Calls that wait for one.
    pub waiting: usize,
    /// How many there may be.
    pub most: usize,
}
