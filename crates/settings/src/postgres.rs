//! Settings of the PostgreSQL database: connection, credentials and timeouts.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use palimpsest_store::postgres::is_address;

use crate::summarizer::{VariableName, texts};
use crate::value::{RawValue, SettingValue, quoted, with_defaults};

with_defaults! {
    /// The PostgreSQL database that several processes share. Without a URL the embedded store is used.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct PostgresConfig {
        /// URL of the database, without a password.
        pub url: Option<DatabaseUrl>,
        /// Environment variable with the password.
        pub password_env: Option<VariableName>,
        /// File with the password.
        pub password_file: Option<PathBuf>,
        /// Schema of the tables. Default: `palimpsest`.
        pub schema: Option<SchemaName>,
        /// CA certificate of the database.
        pub ca_file: Option<PathBuf>,
        /// Client certificate for the database.
        pub client_cert_file: Option<PathBuf>,
        /// Private key of the client certificate.
        pub client_key_file: Option<PathBuf>,
        /// Maximum concurrent connections. Default: 16.
        pub connections: usize = 16,
        /// Maximum time in milliseconds that a call waits for a connection of the pool. Default: 2,000.
        pub pool_timeout_ms: u64 = 2_000,
        /// Timeout of a connection attempt in milliseconds. Default: 5,000.
        pub connect_timeout_ms: u64 = 5_000,
        /// Timeout of a statement in milliseconds. Default: 30,000.
        pub statement_timeout_ms: u64 = 30_000,
        /// Maximum time in milliseconds of retries while the database is unreachable. Default: 5,000.
        pub retry_timeout_ms: u64 = 5_000,
        /// True if processes notify each other of changes. Default: true.
        pub notify: bool = true,
        /// True if the schema is created and migrated at startup. Default: true.
        pub auto_migrate: bool = true,
    }
}

impl PostgresConfig {
    /// The schema of the tables.
    pub fn schema(&self) -> &str {
        self.schema.as_ref().map_or("palimpsest", |it| it.as_str())
    }
}

texts! {
    /// URL of a database without a password.
    DatabaseUrl: is_address, "the address of a database (PostgreSQL) without a password in it, such as \"postgres://palimpsest@db:5432/palimpsest?sslmode=require\"; store.postgres.password_env or password_file has the password, and sslmode is disable, prefer or require (require also verifies the certificate and the host name)";
    /// Name of a schema.
    SchemaName: |text| (1..=63).contains(&text.len()) && !text.contains(char::is_control),
        "the name of a schema, at most 63 bytes";
}
