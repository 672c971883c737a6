//! Runs the conformance suite on every store engine.
#![expect(
    clippy::unwrap_used,
    reason = "helpers outside of a test function fail by panicking too"
)]

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use palimpsest_conformance::{self as conformance, Harness, MemoryLog};
use palimpsest_store::Store;
use palimpsest_store::postgres::{self, Distribution, LeaseClock, PostgresLog, PostgresOptions};
use palimpsest_store::sled::{SledLog, SledOptions};
use palimpsest_test_servers::Cluster;

struct Memory;

#[async_trait]
impl Harness for Memory {
    async fn fresh(&self) -> Arc<dyn Store> {
        Arc::new(MemoryLog::new())
    }

    async fn reopen(&self, log: Arc<dyn Store>) -> Arc<dyn Store> {
        log
    }
}

/// Opens stores in subfolders of one temporary folder. Only the newest store can be reopened.
struct Sled {
    root: tempfile::TempDir,
    stores: AtomicU32,
    newest: Mutex<PathBuf>,
}

impl Sled {
    fn new() -> Self {
        Self {
            root: tempfile::tempdir().unwrap(),
            stores: AtomicU32::new(0),
            newest: Mutex::default(),
        }
    }

    fn open(&self) -> Arc<dyn Store> {
        let dir = self.newest.lock().unwrap().clone();
        Arc::new(SledLog::open(&SledOptions::new(dir)).unwrap())
    }
}

#[async_trait]
impl Harness for Sled {
    async fn fresh(&self) -> Arc<dyn Store> {
        let n = self.stores.fetch_add(1, Ordering::Relaxed);
        *self.newest.lock().unwrap() = self.root.path().join(format!("store-{n}"));
        self.open()
    }

    async fn reopen(&self, log: Arc<dyn Store>) -> Arc<dyn Store> {
        log.close().await.unwrap();
        drop(log);
        self.open()
    }
}

/// Opens stores in schemas of one database. Only the newest store can be reopened.
struct Postgres {
    url: String,
    distribution: Option<Distribution>,
    stores: AtomicU32,
}

impl Postgres {
    fn of(cluster: &Cluster) -> Self {
        Self {
            url: cluster.url(),
            distribution: None,
            stores: AtomicU32::new(0),
        }
    }

    /// The address of the coordinator is in a variable, because no package of CI has Citus. Its database must have few
    /// shards: each store has seven tables of so many. `ALTER DATABASE … SET citus.shard_count = 4`.
    fn citus() -> Self {
        Self {
            url: std::env::var("PALIMPSEST_TEST_CITUS").unwrap(),
            distribution: Some(Distribution::Citus),
            stores: AtomicU32::new(0),
        }
    }

    async fn open(&self) -> Arc<dyn Store> {
        let number = self.stores.load(Ordering::Relaxed);
        // A database that a variable names keeps the schemas of earlier runs.
        let schema = format!("store-{}-{number}", std::process::id());
        let options = options(&self.url, schema);
        if self.distribution.is_some() {
            postgres::apply(&options, self.distribution).await.unwrap();
        }
        Arc::new(PostgresLog::open(&options).await.unwrap())
    }
}

#[async_trait]
impl Harness for Postgres {
    async fn fresh(&self) -> Arc<dyn Store> {
        self.stores.fetch_add(1, Ordering::Relaxed);
        self.open().await
    }

    async fn reopen(&self, log: Arc<dyn Store>) -> Arc<dyn Store> {
        log.close().await.unwrap();
        self.open().await
    }
}

/// Returns the options of a store whose checks use simulated times.
fn options(url: &str, schema: String) -> PostgresOptions {
    PostgresOptions {
        schema,
        // The checks need a new count after every change, so caching is off.
        usage_age: Duration::ZERO,
        usage_max_wait: Duration::from_secs(30),
        // A slow machine must not cause pool timeouts.
        wait: Duration::from_mins(5),
        clock: LeaseClock::Caller,
        ..PostgresOptions::new(url)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_conforms() {
    conformance::run(&Memory).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sled_conforms() {
    conformance::run(&Sled::new()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_conforms() {
    let cluster = Cluster::start();
    conformance::run(&Postgres::of(&cluster)).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a Citus cluster in PALIMPSEST_TEST_CITUS"]
async fn citus_conforms() {
    conformance::run(&Postgres::citus()).await;
}

#[test]
#[ignore = "needs a Citus cluster in PALIMPSEST_TEST_CITUS"]
fn citus_matches_the_model() {
    conformance::properties(&Postgres::citus(), 4);
}

/// The engine must not depend on defaults that a database administrator may have changed.
#[tokio::test(flavor = "multi_thread")]
async fn postgres_conforms_under_any_database_defaults() {
    let cluster = Cluster::start();
    for setting in [
        "default_transaction_isolation = 'serializable'",
        "default_transaction_deferrable = on",
        "search_path = 'nowhere'",
        "enable_hashjoin = off",
        "bytea_output = 'escape'",
        "DateStyle = 'German'",
        "extra_float_digits = 0",
        "standard_conforming_strings = off",
        "default_toast_compression = 'lz4'",
        "statement_timeout = '1ms'",
    ] {
        let set = format!("ALTER DATABASE postgres SET {setting}");
        cluster.psql(&set);
    }
    conformance::run(&Postgres::of(&cluster)).await;
}

#[test]
fn memory_matches_the_model() {
    conformance::properties(&Memory, 256);
}

#[test]
fn sled_matches_the_model() {
    conformance::properties(&Sled::new(), 24);
}

#[test]
fn postgres_matches_the_model() {
    let cluster = Cluster::start();
    conformance::properties(&Postgres::of(&cluster), 24);
}
