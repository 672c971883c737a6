//! The connections: so many at most, each as this engine needs it, and none that is in doubt given to anybody.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deadpool::Runtime;
use deadpool::managed::{
    self, Metrics, Object, PoolError, RecycleError, RecycleResult, TimeoutType, Timeouts,
};
use deadpool_postgres::ClientWrapper;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, SimpleQueryMessage, Statement};

use super::connect::{Connector, PgConnection};
use super::durability::Durability;
use super::error::{PgError, error_chain};
use super::options::{PoolStatus, PostgresOptions};
use super::statements::Statements;
use crate::StoreError;

/// How much longer than the database itself this side waits for a statement's end.
const GRACE: Duration = Duration::from_secs(5);

pub(super) struct Pool {
    connections: managed::Pool<Manager>,
    connector: Arc<Connector>,
    statements: Statements,
    durability: Arc<Durability>,
    schema: String,
    statement: Duration,
    wait: Duration,
    most: usize,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}

/// Makes the pool's connections, and says which may be used again.
#[derive(Debug)]
struct Manager {
    connector: Arc<Connector>,
    /// The statements that begin each connection: its settings, then the query for unsafe ones.
    settings: String,
    durability: Arc<Durability>,
    limit: Duration,
}

impl managed::Manager for Manager {
    type Type = ClientWrapper;
    type Error = PgError;

    async fn create(&self) -> Result<ClientWrapper, PgError> {
        // On the heap: most calls find a connection and should not carry this.
        Box::pin(self.make()).await
    }

    async fn recycle(&self, client: &mut ClientWrapper, _: &Metrics) -> RecycleResult<PgError> {
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
                tracing::debug!(
                    error = error_chain(&error),
                    "a connection to the database ended"
                );
            }
        });
        let client = ClientWrapper::new(client, task);
        let answers = match timeout(self.limit, client.simple_query(&self.settings)).await {
            Ok(answers) => answers?,
            Err(_) => return Err(PgError::silence()),
        };
        // It may lead to another machine than the last one, as after a failover.
        for answer in answers {
            if let SimpleQueryMessage::Row(row) = answer {
                let found = row.try_get(0)?;
                self.durability.note(found.map(ToOwned::to_owned));
            }
        }
        Ok(client)
    }
}

impl Pool {
    /// Does not connect yet.
    pub(super) fn new(options: &PostgresOptions) -> Result<Self, StoreError> {
        let connector = Arc::new(Connector::new(options)?);
        let schema = quoted(&options.schema);
        let statements = Statements::new(&schema);
        let settings = format!(
            "SET statement_timeout = {}; SET lock_timeout = {}; \
             SET idle_in_transaction_session_timeout = {}; \
             SET default_transaction_isolation = 'read committed'; {}",
            options.statement.as_millis(),
            options.statement.as_millis(),
            (options.statement + GRACE).as_millis(),
            statements.unsafe_settings,
        );
        let durability = Arc::new(Durability::default());
        let manager = Manager {
            connector: Arc::clone(&connector),
            settings,
            durability: Arc::clone(&durability),
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
            statements,
            durability,
            schema,
            statement: options.statement,
            wait: options.wait,
            most: options.connections,
        })
    }

    pub(super) fn statements(&self) -> &Statements {
        &self.statements
    }

    /// The schema's name, quoted.
    pub(super) fn schema(&self) -> &str {
        &self.schema
    }

    /// A connection that nobody else uses.
    pub(super) async fn client(&self) -> Result<Client, PgError> {
        self.client_within(self.wait).await
    }

    /// A connection for a change that will be acknowledged. Fails while a crash could lose such a change.
    pub(super) async fn writer(&self) -> Result<Client, PgError> {
        let client = self.client().await?;
        self.durability.check()?;
        Ok(client)
    }

    /// The state of the settings on which durability depends.
    pub(super) fn durability(&self) -> &Durability {
        &self.durability
    }

    /// A connection, for somebody who waits only so long until one is free.
    pub(super) async fn client_within(&self, wait: Duration) -> Result<Client, PgError> {
        let timeouts = Timeouts {
            wait: Some(wait),
            create: None,
            recycle: None,
        };
        let object = self.connections.timeout_get(&timeouts).await;
        let object = object.map_err(|error| match error {
            PoolError::Timeout(TimeoutType::Wait) => PgError::Full(self.most),
            PoolError::Backend(trouble) => trouble,
            PoolError::Closed => PgError::Final(StoreError::Closed),
            // Nothing else is waited for or asked of a connection before it is given away.
            error => PgError::Final(StoreError::Unreachable(format!("{error:?}"))),
        })?;
        Ok(Client {
            object: Some(object),
            is_broken: AtomicBool::new(false),
            is_waiting: AtomicBool::new(false),
            taken: Instant::now().into_std(),
            limit: self.statement + GRACE,
        })
    }

    /// A connection beside those of the pool.
    pub(super) async fn connect(&self) -> Result<(tokio_postgres::Client, PgConnection), PgError> {
        Box::pin(self.connector.connect()).await
    }

    pub(super) fn connections(&self) -> PoolStatus {
        let status = self.connections.status();
        PoolStatus {
            open: status.size,
            idle: status.available,
            waiting: status.waiting,
            most: self.most,
        }
    }

    pub(super) fn close(&self) {
        self.connections.close();
    }
}

/// A name as it stands in a statement.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

/// A connection, for one call.
pub(super) struct Client {
    object: Option<Object<Manager>>,
    /// Whether it is not to be used again.
    is_broken: AtomicBool,
    /// Whether an answer is still to come.
    is_waiting: AtomicBool,
    /// Since when it is this call's.
    taken: std::time::Instant,
    limit: Duration,
}

impl Client {
    /// The same for statements that may take so long.
    pub(super) fn with_limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    pub(super) async fn execute(
        &self,
        statement: &str,
        parameters: Parameters<'_>,
    ) -> Result<u64, PgError> {
        let statement = self.prepared(statement).await?;
        self.within(self.object()?.execute(&statement, parameters))
            .await
    }

    pub(super) async fn query(
        &self,
        statement: &str,
        parameters: Parameters<'_>,
    ) -> Result<Vec<Row>, PgError> {
        let statement = self.prepared(statement).await?;
        self.within(self.object()?.query(&statement, parameters))
            .await
    }

    pub(super) async fn query_opt(
        &self,
        statement: &str,
        parameters: Parameters<'_>,
    ) -> Result<Option<Row>, PgError> {
        let statement = self.prepared(statement).await?;
        self.within(self.object()?.query_opt(&statement, parameters))
            .await
    }

    /// Statements without parameters, one after another.
    pub(super) async fn batch(&self, statements: &str) -> Result<(), PgError> {
        self.within(self.object()?.batch_execute(statements)).await
    }

    async fn prepared(&self, statement: &str) -> Result<Statement, PgError> {
        self.within(self.object()?.prepare_cached(statement)).await
    }

    fn object(&self) -> Result<&Object<Manager>, PgError> {
        let object = self.object.as_ref();
        object.ok_or(PgError::Final(StoreError::Closed))
    }

    async fn within<T>(
        &self,
        work: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, PgError> {
        self.is_waiting.store(true, Ordering::Relaxed);
        let done = timeout(self.limit, work).await;
        self.is_waiting.store(false, Ordering::Relaxed);
        let trouble = match done {
            Ok(Ok(done)) => return Ok(done),
            Ok(Err(error)) => {
                tracing::debug!(error = error_chain(&error), "a statement failed");
                PgError::from(error)
            }
            Err(_) => PgError::silence(),
        };
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
            // Those that nobody uses now lead where this one does, unless they were made since it was asked.
            if let Some(pool) = Object::pool(&object) {
                pool.retain(|_, metrics| metrics.created > self.taken);
            }
            drop(Object::take(object));
        } else if self.is_waiting.load(Ordering::Relaxed) {
            // Whoever asked has gone away. Nobody else is to wait behind what he asked for, and to connect again for
            // each such call would be more work for a database that is slow already.
            match Handle::try_current() {
                Ok(runtime) => drop(runtime.spawn(answered(object, self.limit))),
                Err(_) => drop(Object::take(object)),
            }
        }
    }
}

/// Keeps a connection until nothing is asked of it any more.
async fn answered(object: Object<Manager>, limit: Duration) {
    let answered = timeout(limit, object.batch_execute("")).await;
    if !matches!(answered, Ok(Ok(()))) {
        drop(Object::take(object));
    }
}
