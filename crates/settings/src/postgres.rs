//! The database that many machines share: how it is reached, and what it may be asked.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use palimpsest_store::postgres::is_address;

use crate::summarizer::{VariableName, texts};
use crate::value::{Raw, Value, quoted};

/// The database that many machines share. Without a URL sessions are kept in the data folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostgresConfig {
    /// Where it is.
    pub url: Option<DatabaseUrl>,
    /// The variable that holds the password.
    pub password_env: Option<VariableName>,
    /// The file that holds it.
    pub password_file: Option<PathBuf>,
    /// The schema that holds the tables.
    pub schema: Option<SchemaName>,
    /// The authority of the database's certificate.
    pub ca_file: Option<PathBuf>,
    /// The certificate that is shown to the database.
    pub client_cert_file: Option<PathBuf>,
    /// Its key.
    pub client_key_file: Option<PathBuf>,
    /// Connections at one time.
    pub connections: usize,
    /// How long a call waits for one.
    pub pool_timeout_ms: u64,
    /// How long connecting may take.
    pub connect_timeout_ms: u64,
    /// How long a statement may take.
    pub statement_timeout_ms: u64,
    /// How long a call goes on trying while the database cannot be reached.
    pub retry_timeout_ms: u64,
    /// Whether processes tell each other what changes.
    pub notify: bool,
    /// Whether the tables are made and changed at a start.
    pub auto_migrate: bool,
}

impl Default for PostgresConfig {
    fn default() -> Self {
        Self {
            url: None,
            password_env: None,
            password_file: None,
            schema: None,
            ca_file: None,
            client_cert_file: None,
            client_key_file: None,
            connections: 16,
            pool_timeout_ms: 2_000,
            connect_timeout_ms: 5_000,
            statement_timeout_ms: 30_000,
            retry_timeout_ms: 5_000,
            notify: true,
            auto_migrate: true,
        }
    }
}

impl PostgresConfig {
    /// The schema that holds the tables.
    pub fn schema(&self) -> &str {
        self.schema.as_ref().map_or("palimpsest", |it| it.as_str())
    }
}

texts! {
    /// Where a database is, without a password.
    DatabaseUrl: is_address, "the address of a database without a password in it, such as \"postgres://palimpsest@db:5432/palimpsest?sslmode=require\"; store.postgres.password_env or password_file has the password";
    /// The name of a schema.
    SchemaName: |text| (1..=63).contains(&text.len()) && !text.contains(char::is_control),
        "the name of a schema, of at most 63 bytes";
}
