//! How a connection is made: to one host after another, first to the one that was right the last time, each within
//! its own time; with the password and the certificates as they are by then.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::timeout;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Config, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::error::PgError;
use super::options::PostgresOptions;
use super::tls::PgTls;
use crate::StoreError;

/// A connection whose other end gives no sign for so long, not even that it has got what was sent, is gone: less than a
/// call goes on trying by default. One whose machine lives and whose database does not answer is found out by
/// statements' own time.
const SILENCE: Duration = Duration::from_secs(4);
/// A connection on which nothing goes on is looked at after so long, and again, until [`SILENCE`] is over.
const KEEPALIVE: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// What is secret and may change while the store is open.
#[async_trait]
pub trait Secret: fmt::Debug + Send + Sync {
    /// As it is now; an error says where it was looked for.
    async fn read(&self) -> Result<String, String>;
}

/// A secret that does not change.
#[async_trait]
impl Secret for String {
    async fn read(&self) -> Result<String, String> {
        Ok(self.clone())
    }
}

/// The other half of a connection, which its owner has to drive.
pub(super) type PgConnection =
    tokio_postgres::Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

/// Makes connections.
pub(super) struct Connector {
    hosts: Vec<Config>,
    /// The host that was right the last time.
    last: AtomicUsize,
    password: Option<Arc<dyn Secret>>,
    tls: PgTls,
    limit: Duration,
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector")
            .field("hosts", &self.hosts.len())
            .finish_non_exhaustive()
    }
}

impl Connector {
    /// Connects to nothing yet.
    pub(super) fn new(options: &PostgresOptions) -> Result<Self, StoreError> {
        Ok(Self {
            hosts: hosts(&config(options)?),
            last: AtomicUsize::default(),
            password: options.password.clone(),
            tls: PgTls::new(options.ca_file.clone(), options.client_cert.clone())?,
            limit: options.connect,
        })
    }

    pub(super) async fn connect(&self) -> Result<(tokio_postgres::Client, PgConnection), PgError> {
        let password = match &self.password {
            Some(password) => Some(password.read().await.map_err(|error| {
                StoreError::Setup(format!("the database's password cannot be read: {error}"))
            })?),
            None => None,
        };
        let tls = self.tls.connector().await;
        let first = self.last.load(Ordering::Relaxed);
        let mut met = None;
        for number in (first..self.hosts.len()).chain(0..first) {
            let mut config = self.hosts[number].clone();
            if let Some(password) = &password {
                config.password(password);
            }
            let asking = HostAttempt {
                connector: self,
                number,
            };
            let trouble = match timeout(self.limit, config.connect(tls.clone())).await {
                Ok(Ok(connected)) => {
                    // Something came of it.
                    std::mem::forget(asking);
                    self.last.store(number, Ordering::Relaxed);
                    return Ok(connected);
                }
                Ok(Err(error)) => PgError::from(error),
                Err(_) => PgError::Lost("it takes connections and does not answer".into()),
            };
            // What one has against us says more than that another is not there.
            if !trouble.passes() || met.is_none() {
                met = Some(trouble);
            }
        }
        Err(met.unwrap_or_else(|| StoreError::Setup("its address names no host".into()).into()))
    }
}

/// A host that is asked. Where nothing comes of it, also because whoever asked gives up while it is silent, the next
/// who asks begins with the next one.
struct HostAttempt<'a> {
    connector: &'a Connector,
    number: usize,
}

impl Drop for HostAttempt<'_> {
    fn drop(&mut self) {
        let next = (self.number + 1) % self.connector.hosts.len();
        let last = &self.connector.last;
        let _ = last.compare_exchange(self.number, next, Ordering::Relaxed, Ordering::Relaxed);
    }
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
    // A name may stand for several addresses, of which the first is not there.
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(options.connect / 2);
    }
    config.keepalives_idle(KEEPALIVE);
    config.keepalives_interval(LOOK_AGAIN);
    config.tcp_user_timeout(SILENCE);
    Ok(config)
}

/// One for each of its hosts. Asked for all of them at one time, the first that takes a connection and then says
/// nothing would use up the time for all.
fn hosts(all: &Config) -> Vec<Config> {
    let (names, addresses, ports) = (all.get_hosts(), all.get_hostaddrs(), all.get_ports());
    let one = |number: usize| {
        let mut one = Config::new();
        match names.get(number) {
            Some(Host::Tcp(name)) => {
                one.host(name);
            }
            Some(Host::Unix(path)) => {
                one.host_path(path);
            }
            None => {}
        }
        if let Some(address) = addresses.get(number) {
            one.hostaddr(*address);
        }
        if let Some(port) = ports.get(number).or(ports.first()) {
            one.port(*port);
        }
        if let Some(user) = all.get_user() {
            one.user(user);
        }
        if let Some(password) = all.get_password() {
            one.password(password);
        }
        if let Some(database) = all.get_dbname() {
            one.dbname(database);
        }
        if let Some(options) = all.get_options() {
            one.options(options);
        }
        if let Some(name) = all.get_application_name() {
            one.application_name(name);
        }
        if let Some(time) = all.get_connect_timeout() {
            one.connect_timeout(*time);
        }
        if let Some(time) = all.get_tcp_user_timeout() {
            one.tcp_user_timeout(*time);
        }
        if let Some(time) = all.get_keepalives_interval() {
            one.keepalives_interval(time);
        }
        if let Some(times) = all.get_keepalives_retries() {
            one.keepalives_retries(times);
        }
        one.keepalives(all.get_keepalives())
            .keepalives_idle(all.get_keepalives_idle())
            .ssl_mode(all.get_ssl_mode())
            .ssl_negotiation(all.get_ssl_negotiation())
            .channel_binding(all.get_channel_binding())
            .target_session_attrs(all.get_target_session_attrs())
            .load_balance_hosts(all.get_load_balance_hosts());
        one
    };
    (0..names.len().max(addresses.len())).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_is_asked_with_all_that_was_said_but_the_others() {
        let url = "postgres://me:secret@one:1,two:2/db?application_name=a&options=-c%20x%3D1&sslmode=require\
                   &keepalives_idle=7&connect_timeout=3&target_session_attrs=any&channel_binding=disable";
        let options = PostgresOptions::new(url);
        let all = config(&options).unwrap();
        let both = hosts(&all);
        let expected = ["one:1", "two:2"].map(|host| {
            let options = PostgresOptions::new(url.replace("one:1,two:2", host));
            config(&options).unwrap()
        });
        assert_eq!(both, expected);
        let one = PostgresOptions::new("host=/run/postgresql,db port=5433 user=me");
        let both = hosts(&config(&one).unwrap());
        assert_eq!(both[0].get_hosts(), [Host::Unix("/run/postgresql".into())]);
        assert_eq!((both[1].get_ports(), both.len()), (&[5_433][..], 2));
    }
}
