//! The connection pool. It limits the number of connections, configures each one, and discards
//! connections in an unknown state.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deadpool::Runtime;
use deadpool::managed::{
    self, Metrics, Object, PoolError, RecycleError, RecycleResult, TimeoutType, Timeouts,
};
use deadpool_postgres::ClientWrapper;
use palimpsest_core::ids::Timestamp;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, SimpleQueryMessage, Statement};

use super::connect::{Connector, PgConnection};
use super::durability::Durability;
use super::error::{PgError, error_chain};
use super::node_address::NodeAddress;
use super::options::{LeaseClock, PoolStatus, PostgresOptions};
use super::outage::Outage;
use super::statements::Statements;
use crate::{LONGEST_LEASE_MS, StoreError};

/// The additional time that the client waits for a statement after the server's own timeout.
const GRACE: Duration = Duration::from_secs(5);

/// The setting of connections to a distributed database. Citus 13.2 plans the statement of a cached plan again on each
/// execution and never frees the plan, so a connection would grow by 40 KB with each append.
const CUSTOM_PLANS: &str = "SET plan_cache_mode = force_custom_plan; ";

/// The maximum number of connections to one node for lists, the work queue and counts.
const LIST_CONNECTIONS: usize = 4;

pub(super) struct Pool {
    connections: managed::Pool<Manager>,
    connector: Arc<Connector>,
    /// The outage of the node, if all connections lead to one node of a distributed database.
    outage: Option<Arc<Outage>>,
    statements: Statements,
    durability: Arc<Durability>,
    schema: String,
    statement: Duration,
    clock: LeaseClock,
    wait: Duration,
    max_connections: usize,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}

/// Creates the connections of the pool and decides which ones can be reused.
#[derive(Debug)]
struct Manager {
    connector: Arc<Connector>,
    /// The statements that are run on a new connection: its settings, then the query for settings that
    /// endanger durability.
    settings: String,
    /// The statement whose commit confirms everything that a new connection can read.
    confirm: String,
    durability: Arc<Durability>,
    outage: Option<Arc<Outage>>,
    limit: Duration,
}

impl managed::Manager for Manager {
    type Type = ClientWrapper;
    type Error = PgError;

    async fn create(&self) -> Result<ClientWrapper, PgError> {
        // Boxed, because most calls find an idle connection and should not carry this large future.
        let made = Box::pin(self.make()).await;
        if let Some(outage) = &self.outage {
            match &made {
                Ok(_) => outage.ended(),
                Err(error) => outage.failed(error),
            }
        }
        made
    }

    async fn recycle(&self, client: &mut ClientWrapper, _: &Metrics) -> RecycleResult<PgError> {
        // No query is sent here, because it would cost a round trip per call.
        if client.is_closed() {
            return Err(RecycleError::message("it was closed"));
        }
        Ok(())
    }
}

impl Manager {
    async fn make(&self) -> Result<ClientWrapper, PgError> {
        let (client, connection) = self.connector.connect().await?;
        let task = tokio::spawn(async move {
            if let Err(error) = connection.await {
                // Not a warning: each call that uses the connection gets the error.
                tracing::debug!(
                    error = error_chain(&error),
                    "a connection to the database ended"
                );
            }
        });
        let client = ClientWrapper::new(client, task);
        // The simple protocol sends all settings in one round trip.
        let answers = match timeout(self.limit, client.simple_query(&self.settings)).await {
            Ok(answers) => answers?,
            Err(_) => return Err(PgError::timeout()),
        };
        // The connection may lead to another server than the last one, for example after a failover.
        for answer in answers {
            if let SimpleQueryMessage::Row(row) = answer {
                let found = row.try_get(0)?;
                self.durability.note(found.map(ToOwned::to_owned));
            }
        }
        self.confirm(&client).await?;
        Ok(client)
    }

    /// Waits until all that the connection can read is durable. After a crash, the primary shows commits that no standby
    /// has, and a failover would lose them. Such a crash ends all connections, so a check of each new one is enough.
    async fn confirm(&self, client: &ClientWrapper) -> Result<(), PgError> {
        let confirmed = timeout(self.limit, client.simple_query(&self.confirm)).await;
        if let Ok(confirmed) = confirmed {
            confirmed?;
            return Ok(());
        }
        // The database does not notice that a client has left during this wait, and would keep the connection.
        let cancel = client.cancel_token();
        let tls = self.connector.tls().await;
        let cancelled = timeout(self.limit, cancel.cancel_query(tls)).await;
        tracing::debug!(?cancelled, "a connection was not confirmed in time");
        Err(PgError::Lost(
            "its synchronous standby does not confirm earlier commits".into(),
        ))
    }
}

impl Pool {
    /// Creates a pool without connecting.
    pub(super) fn new(options: &PostgresOptions) -> Result<Self, StoreError> {
        Self::with(options, Connector::new(options)?, None, "")
    }

    /// Creates a pool of connections to any node of a distributed database.
    pub(super) fn distributed(options: &PostgresOptions) -> Result<Self, StoreError> {
        Self::with(options, Connector::new(options)?, None, CUSTOM_PLANS)
    }

    /// Creates two pools of connections to one node of a distributed database: for calls about sessions, and for lists.
    pub(super) fn of_node(
        options: &PostgresOptions,
        node: &NodeAddress,
    ) -> Result<(Self, Self), StoreError> {
        let outage = Arc::new(Outage::new(node.clone()));
        let connector = Connector::to_node(options, node)?;
        let sessions = Self::with(options, connector, Some(Arc::clone(&outage)), CUSTOM_PLANS)?;
        // Lists read the tables of shards, whose statements are long and worth a cached plan.
        let few = PostgresOptions {
            connections: options.connections.min(LIST_CONNECTIONS),
            ..options.clone()
        };
        let connector = Connector::to_node(options, node)?;
        let lists = Self::with(&few, connector, Some(outage), "")?;
        Ok((sessions, lists))
    }

    fn with(
        options: &PostgresOptions,
        connector: Connector,
        outage: Option<Arc<Outage>>,
        more_settings: &str,
    ) -> Result<Self, StoreError> {
        let connector = Arc::new(connector);
        let schema = quoted(&options.schema);
        let statements = Statements::new(&schema);
        // The isolation level is set explicitly, because the role or the database may have another default.
        // `idle_in_transaction_session_timeout` releases locks of a client that died within a transaction.
        let settings = format!(
            "SET statement_timeout = {}; SET lock_timeout = {}; \
             SET idle_in_transaction_session_timeout = {}; \
             SET default_transaction_isolation = 'read committed'; {more_settings}{}",
            options.statement.as_millis(),
            options.statement.as_millis(),
            (options.statement + GRACE).as_millis(),
            statements.unsafe_settings,
        );
        let durability = Arc::new(Durability::default());
        let manager = Manager {
            connector: Arc::clone(&connector),
            settings,
            confirm: statements.confirm.clone(),
            durability: Arc::clone(&durability),
            outage: outage.clone(),
            limit: options.connect,
        };
        let connections = managed::Pool::builder(manager)
            .max_size(options.connections)
            .runtime(Runtime::Tokio1)
            .build()
            .map_err(|error| StoreError::Setup(error.to_string()))?;
        Ok(Self {
            connections,
            connector,
            outage,
            statements,
            durability,
            schema,
            statement: options.statement,
            clock: options.clock,
            wait: options.wait,
            max_connections: options.connections,
        })
    }

    /// Returns the time that statements about leases and due times use, in milliseconds. `None` is the clock of the
    /// database.
    pub(super) fn simulated_time(&self, now: Timestamp) -> Option<i64> {
        match self.clock {
            LeaseClock::Database => None,
            // The margin keeps sums with this time in range.
            LeaseClock::Caller => Some(now.as_millis().min(i64::MAX - LONGEST_LEASE_MS)),
        }
    }

    pub(super) fn statements(&self) -> &Statements {
        &self.statements
    }

    /// Returns the quoted name of the schema.
    pub(super) fn schema(&self) -> &str {
        &self.schema
    }

    /// Takes a connection from the pool. It is returned on drop.
    pub(super) async fn client(&self) -> Result<Client, PgError> {
        self.client_within(self.wait).await
    }

    /// Takes a connection for a change. Fails while a crash of the database could lose acknowledged
    /// changes.
    pub(super) async fn durable_client(&self) -> Result<Client, PgError> {
        let client = self.client().await?;
        self.durability.check()?;
        Ok(client)
    }

    /// Returns the state of the settings on which durability depends.
    pub(super) fn durability(&self) -> &Durability {
        &self.durability
    }

    /// Takes a connection, with a maximum time to wait for a free one.
    pub(super) async fn client_within(&self, wait: Duration) -> Result<Client, PgError> {
        // An idle connection may work although the node accepts no further ones.
        if let Some(outage) = &self.outage
            && self.connections.status().available == 0
        {
            outage.check()?;
        }
        // The connector has its own timeout per host, so only the wait for a free connection is limited here.
        let timeouts = Timeouts {
            wait: Some(wait),
            create: None,
            recycle: None,
        };
        let object = self.connections.timeout_get(&timeouts).await;
        let object = object.map_err(|error| match error {
            PoolError::Timeout(TimeoutType::Wait) => PgError::Full(self.max_connections),
            PoolError::Backend(trouble) => trouble,
            PoolError::Closed => PgError::Final(StoreError::Closed),
            // No other timeout or hook is configured.
            error => PgError::Final(StoreError::Unreachable(format!("{error:?}"))),
        })?;
        Ok(Client {
            object: Some(object),
            is_broken: AtomicBool::new(false),
            is_waiting: AtomicBool::new(false),
            // Compared with the metrics of the pool, which have times of `std`.
            taken_at: Instant::now().into_std(),
            limit: self.statement + GRACE,
        })
    }

    /// Opens a connection outside the pool.
    pub(super) async fn connect(&self) -> Result<(tokio_postgres::Client, PgConnection), PgError> {
        Box::pin(self.connector.connect()).await
    }

    pub(super) fn connections(&self) -> PoolStatus {
        let status = self.connections.status();
        PoolStatus {
            open: status.size,
            idle: status.available,
            waiting: status.waiting,
            max_connections: self.max_connections,
        }
    }

    pub(super) fn close(&self) {
        self.connections.close();
    }
}

/// Quotes an identifier for use in a statement.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

/// A pooled connection in use by one call.
pub(super) struct Client {
    object: Option<Object<Manager>>,
    /// True if the connection must not be reused.
    is_broken: AtomicBool,
    /// True while a reply is outstanding.
    is_waiting: AtomicBool,
    /// The time at which the call took the connection.
    taken_at: std::time::Instant,
    limit: Duration,
}

impl Client {
    /// Replaces the timeout of a statement.
    pub(super) fn with_limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Calls a function of the schema that returns a boolean.
    pub(super) async fn call(
        &self,
        statement: &str,
        parameters: Parameters<'_>,
    ) -> Result<bool, PgError> {
        let row = self.query_opt(statement, parameters).await?;
        let row = row.ok_or_else(|| StoreError::Read("a function without a result".into()))?;
        let answer = row.try_get::<_, bool>(0);
        Ok(answer.map_err(|error| StoreError::Read(error.to_string()))?)
    }

    pub(super) async fn query(
        &self,
        statement: &str,
        parameters: Parameters<'_>,
    ) -> Result<Vec<Row>, PgError> {
        let statement = self.prepare(statement).await?;
        self.with_timeout(self.object()?.query(&statement, parameters))
            .await
    }

    pub(super) async fn query_opt(
        &self,
        statement: &str,
        parameters: Parameters<'_>,
    ) -> Result<Option<Row>, PgError> {
        let statement = self.prepare(statement).await?;
        self.with_timeout(self.object()?.query_opt(&statement, parameters))
            .await
    }

    /// Runs statements without parameters, one after another.
    pub(super) async fn batch(&self, statements: &str) -> Result<(), PgError> {
        self.with_timeout(self.object()?.batch_execute(statements))
            .await
    }

    async fn prepare(&self, statement: &str) -> Result<Statement, PgError> {
        self.with_timeout(self.object()?.prepare_cached(statement))
            .await
    }

    fn object(&self) -> Result<&Object<Manager>, PgError> {
        let object = self.object.as_ref();
        object.ok_or(PgError::Final(StoreError::Closed))
    }

    async fn with_timeout<T>(
        &self,
        work: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, PgError> {
        // If this future is dropped now, the flag remains set and the connection is not reused at once.
        self.is_waiting.store(true, Ordering::Relaxed);
        let done = timeout(self.limit, work).await;
        self.is_waiting.store(false, Ordering::Relaxed);
        let trouble = match done {
            Ok(Ok(done)) => return Ok(done),
            Ok(Err(error)) => {
                tracing::debug!(error = error_chain(&error), "a statement failed");
                PgError::from(error)
            }
            Err(_) => PgError::timeout(),
        };
        // After other errors the connection is in a known state and can be reused.
        if matches!(trouble, PgError::Lost(_)) {
            self.is_broken.store(true, Ordering::Relaxed);
        }
        Err(trouble)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let Some(object) = self.object.take() else {
            return;
        };
        if self.is_broken.load(Ordering::Relaxed) {
            // Idle connections lead to the same server and are discarded too, unless they are newer than this call.
            if let Some(pool) = Object::pool(&object) {
                pool.retain(|_, metrics| metrics.created > self.taken_at);
            }
            drop(Object::take(object));
        } else if self.is_waiting.load(Ordering::Relaxed) {
            // The caller was cancelled. The next user must not wait for its statement. Reconnecting for every
            // cancelled call would increase the load of a slow database.
            match Handle::try_current() {
                Ok(runtime) => drop(runtime.spawn(drain_before_reuse(object, self.limit))),
                // Without a runtime nothing can wait for the reply, so the connection is closed.
                Err(_) => drop(Object::take(object)),
            }
        }
    }
}

/// Keeps a connection out of the pool until its outstanding statement is complete. Discards the
/// connection on an error or timeout.
async fn drain_before_reuse(object: Object<Manager>, limit: Duration) {
    // The server replies in order. The reply to an empty query therefore follows that to the outstanding statement.
    let answered = timeout(limit, object.batch_execute("")).await;
    if !matches!(answered, Ok(Ok(()))) {
        drop(Object::take(object));
    }
}
