//! The connections: so many at most, each as this engine needs it, and none that is in doubt given to anybody.

use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deadpool_postgres::{
    Hook, HookError, Manager, ManagerConfig, Object, PoolError, RecyclingMethod, Runtime,
    TimeoutType, Timeouts,
};
use tokio::runtime::Handle;
use tokio::time::timeout;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Config, Row, Socket, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::error::{Trouble, told};
use super::statements::Statements;
use super::{Connections, PostgresOptions, tls};
use crate::StoreError;

/// How much longer than the database itself this side waits for a statement's end.
const GRACE: Duration = Duration::from_secs(5);
/// A connection over which nothing comes back for so long is gone.
const SILENCE: Duration = Duration::from_secs(10);
/// A connection on which nothing goes on is looked at so often.
const KEEPALIVE: Duration = Duration::from_secs(30);

pub(super) struct Pool {
    connections: deadpool_postgres::Pool,
    statements: Statements,
    schema: String,
    statement: Duration,
    most: usize,
    config: Config,
    tls: MakeRustlsConnect,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}

impl Pool {
    /// Does not connect yet.
    pub(super) fn new(options: &PostgresOptions) -> Result<Self, StoreError> {
        let config = config(options)?;
        let client = options.client_cert.as_ref();
        let tls = tls::connector(options.ca_file.as_deref(), client)?;
        let manager = ManagerConfig {
            recycling_method: RecyclingMethod::Fast,
        };
        let manager = Manager::from_config(config.clone(), tls.clone(), manager);
        let settings = format!(
            "SET statement_timeout = {}; SET lock_timeout = {}; \
             SET idle_in_transaction_session_timeout = {}; \
             SET default_transaction_isolation = 'read committed'",
            options.statement.as_millis(),
            options.statement.as_millis(),
            (options.statement + GRACE).as_millis(),
        );
        let set = Hook::async_fn(move |client: &mut deadpool_postgres::ClientWrapper, _| {
            let settings = settings.clone();
            Box::pin(async move {
                let set = client.batch_execute(&settings).await;
                set.map_err(HookError::Backend)
            })
        });
        let pool = deadpool_postgres::Pool::builder(manager)
            .max_size(options.connections)
            .timeouts(Timeouts {
                wait: Some(options.wait),
                create: Some(options.connect + GRACE),
                recycle: Some(options.connect),
            })
            .runtime(Runtime::Tokio1)
            .post_create(set)
            .build()
            .map_err(|error| StoreError::Setup(error.to_string()))?;
        let schema = quoted(&options.schema);
        Ok(Self {
            connections: pool,
            statements: Statements::new(&schema),
            schema,
            statement: options.statement,
            most: options.connections,
            config,
            tls,
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
    pub(super) async fn client(&self) -> Result<Client, Trouble> {
        let object = self.connections.get().await.map_err(|error| match error {
            PoolError::Timeout(TimeoutType::Wait) => Trouble::Final(StoreError::Unreachable(
                format!("all {} connections are in use", self.most),
            )),
            PoolError::Timeout(_) => Trouble::Passing("it does not answer".into()),
            PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)) => {
                error.into()
            }
            PoolError::Closed => Trouble::Final(StoreError::Closed),
            error => Trouble::Final(StoreError::Unreachable(error.to_string())),
        })?;
        Ok(Client {
            object: Some(object),
            is_broken: AtomicBool::new(false),
            is_waiting: AtomicBool::new(false),
            limit: self.statement + GRACE,
        })
    }

    /// A connection beside those of the pool.
    pub(super) async fn connect(
        &self,
    ) -> Result<(tokio_postgres::Client, Connection), tokio_postgres::Error> {
        self.config.connect(self.tls.clone()).await
    }

    pub(super) fn connections(&self) -> Connections {
        let status = self.connections.status();
        Connections {
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

/// Whether the way to a host may be listened on.
fn is_elsewhere(host: &Host) -> bool {
    match host {
        Host::Tcp(name) => {
            let address = name.parse::<IpAddr>();
            name != "localhost" && !address.is_ok_and(|address| address.is_loopback())
        }
        Host::Unix(_) => false,
    }
}

/// Whether a text says where a database is, and holds no password.
pub fn is_address(text: &str) -> bool {
    let config = text.parse::<Config>();
    config.is_ok_and(|it| !it.get_hosts().is_empty() && it.get_password().is_none())
}

fn config(options: &PostgresOptions) -> Result<Config, StoreError> {
    let mut config: Config = options.url.parse().map_err(|error| {
        // The parser's own words may quote a part of the string, and that may be the password.
        let _: tokio_postgres::Error = error;
        StoreError::Setup(
            "the database's address cannot be understood: say postgres://user@host:5432/database, \
             or key=value pairs as in host=db user=palimpsest dbname=palimpsest; of TLS only \
             sslmode=disable, prefer or require belongs there"
                .into(),
        )
    })?;
    if let Some(password) = &options.password {
        config.password(password);
    }
    if config.get_ssl_mode() == SslMode::Prefer && config.get_hosts().iter().any(is_elsewhere) {
        tracing::warn!(
            "sslmode is not said in the database's address: the connection is in the clear where the database \
             offers no TLS, and whoever answers may be it. Say sslmode=require"
        );
    }
    if config.get_application_name().is_none() {
        config.application_name("palimpsest");
    }
    // A replica of the database may be behind: what it says was true once.
    if config.get_target_session_attrs() == TargetSessionAttrs::Any {
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(options.connect);
    }
    config.keepalives_idle(KEEPALIVE);
    config.tcp_user_timeout(SILENCE);
    Ok(config)
}

/// The other half of a connection, which its owner has to drive.
pub(super) type Connection =
    tokio_postgres::Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

/// A connection, for one call.
pub(super) struct Client {
    object: Option<Object>,
    /// Whether it is not to be used again.
    is_broken: AtomicBool,
    /// Whether an answer is still to come.
    is_waiting: AtomicBool,
    limit: Duration,
}

impl Client {
    pub(super) async fn execute(
        &self,
        statement: &str,
        parameters: Parameters<'_>,
    ) -> Result<u64, Trouble> {
        let statement = self.prepared(statement).await?;
        self.within(self.object()?.execute(&statement, parameters))
            .await
    }

    pub(super) async fn query(
        &self,
        statement: &str,
        parameters: Parameters<'_>,
    ) -> Result<Vec<Row>, Trouble> {
        let statement = self.prepared(statement).await?;
        self.within(self.object()?.query(&statement, parameters))
            .await
    }

    pub(super) async fn query_opt(
        &self,
        statement: &str,
        parameters: Parameters<'_>,
    ) -> Result<Option<Row>, Trouble> {
        let statement = self.prepared(statement).await?;
        self.within(self.object()?.query_opt(&statement, parameters))
            .await
    }

    /// Statements without parameters, one after another.
    pub(super) async fn batch(&self, statements: &str) -> Result<(), Trouble> {
        self.within(self.object()?.batch_execute(statements)).await
    }

    async fn prepared(&self, statement: &str) -> Result<Statement, Trouble> {
        self.within(self.object()?.prepare_cached(statement)).await
    }

    fn object(&self) -> Result<&Object, Trouble> {
        let object = self.object.as_ref();
        object.ok_or(Trouble::Final(StoreError::Closed))
    }

    async fn within<T>(
        &self,
        work: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Trouble> {
        self.is_waiting.store(true, Ordering::Relaxed);
        let done = timeout(self.limit, work).await;
        self.is_waiting.store(false, Ordering::Relaxed);
        let trouble = match done {
            Ok(Ok(done)) => return Ok(done),
            Ok(Err(error)) => {
                tracing::debug!(error = told(&error), "a statement failed");
                Trouble::from(error)
            }
            Err(_) => Trouble::Passing("it does not answer".into()),
        };
        // Another one may lead to another machine, and nobody waits behind what hangs.
        if matches!(trouble, Trouble::Passing(_)) {
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
async fn answered(object: Object, limit: Duration) {
    let answered = timeout(limit, object.batch_execute("")).await;
    if !matches!(answered, Ok(Ok(()))) {
        drop(Object::take(object));
    }
}
