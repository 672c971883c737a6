//! Connections to the database. Hosts are tried one after another, starting with the last working one,
//! each with its own timeout. The password and the certificates are read for every connection.

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
use super::node_address::NodeAddress;
use super::options::PostgresOptions;
use super::tls::PgTls;
use crate::StoreError;

/// The TCP user timeout: a peer that acknowledges nothing for this long is gone. It is shorter than the
/// default retry time of a call. `statement_timeout` detects a live machine with an unresponsive
/// database.
const SILENCE: Duration = Duration::from_secs(4);
/// The idle time before the first keepalive probe. Further probes follow every [`LOOK_AGAIN`] until
/// [`SILENCE`] is over.
const KEEPALIVE: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// A secret that may change while the store is open.
#[async_trait]
pub trait SecretProvider: fmt::Debug + Send + Sync {
    /// Returns the current value. The error text names the source of the secret.
    async fn read(&self) -> Result<String, String>;
}

/// A constant secret.
#[async_trait]
impl SecretProvider for String {
    async fn read(&self) -> Result<String, String> {
        Ok(self.clone())
    }
}

/// The I/O half of a connection. The owner must poll it.
pub(super) type PgConnection =
    tokio_postgres::Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

/// Opens connections to the configured hosts.
pub(super) struct Connector {
    hosts: Vec<Config>,
    /// The index of the host that worked last.
    last: AtomicUsize,
    password: Option<Arc<dyn SecretProvider>>,
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
    /// Creates a connector without connecting.
    pub(super) fn new(options: &PostgresOptions) -> Result<Self, StoreError> {
        Self::to(options, hosts(&config(options)?))
    }

    /// Creates a connector to one node of a distributed database, with all settings of the URL except its hosts.
    pub(super) fn to_node(
        options: &PostgresOptions,
        node: &NodeAddress,
    ) -> Result<Self, StoreError> {
        let host = Host::Tcp(node.host.clone());
        let config = with_host(&config(options)?, Some(&host), None, Some(node.port));
        Self::to(options, vec![config])
    }

    fn to(options: &PostgresOptions, hosts: Vec<Config>) -> Result<Self, StoreError> {
        Ok(Self {
            hosts,
            last: AtomicUsize::default(),
            password: options.password.clone(),
            tls: PgTls::new(options.ca_file.clone(), options.client_cert.clone())?,
            limit: options.connect,
        })
    }

    /// Returns the TLS configuration of a new connection.
    pub(super) async fn tls(&self) -> MakeRustlsConnect {
        self.tls.connector().await
    }

    pub(super) async fn connect(&self) -> Result<(tokio_postgres::Client, PgConnection), PgError> {
        let password = match &self.password {
            Some(password) => Some(password.read().await.map_err(|error| {
                StoreError::Setup(format!("the database's password cannot be read: {error}"))
            })?),
            None => None,
        };
        // Read the secrets before the timeout of the first host starts.
        let tls = self.tls().await;
        // Only a hint: a wrong start costs one attempt.
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
                    // The attempt succeeded, so its drop must not advance to the next host.
                    std::mem::forget(asking);
                    self.last.store(number, Ordering::Relaxed);
                    return Ok(connected);
                }
                Ok(Err(error)) => PgError::from(error),
                Err(_) => PgError::Lost("it accepts connections and does not answer".into()),
            };
            // A rejection is more informative than an unreachable host, so it is the error that is returned.
            if !trouble.is_transient() || met.is_none() {
                met = Some(trouble);
            }
        }
        Err(met.unwrap_or_else(|| StoreError::Setup("its address names no host".into()).into()))
    }
}

/// An attempt to connect to one host. If it fails or is cancelled, the drop makes the next attempt
/// start with the following host.
struct HostAttempt<'a> {
    connector: &'a Connector,
    number: usize,
}

impl Drop for HostAttempt<'_> {
    fn drop(&mut self) {
        let next = (self.number + 1) % self.connector.hosts.len();
        let last = &self.connector.last;
        // Compare and exchange: another attempt may have found a working host meanwhile.
        let _ = last.compare_exchange(self.number, next, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Returns true if the traffic to a host may be intercepted.
fn is_remote(host: &Host) -> bool {
    match host {
        Host::Tcp(name) => {
            let address = name.parse::<IpAddr>();
            // A host name other than `localhost` may resolve to any machine.
            name != "localhost" && !address.is_ok_and(|address| address.is_loopback())
        }
        Host::Unix(_) => false,
    }
}

/// Returns true if a text is a database address without a password.
pub fn is_address(text: &str) -> bool {
    let config = text.parse::<Config>();
    config.is_ok_and(|it| !it.get_hosts().is_empty() && it.get_password().is_none())
}

fn config(options: &PostgresOptions) -> Result<Config, StoreError> {
    let mut config: Config = options.url.parse().map_err(|error| {
        // The parser's error may quote a part of the address, which may be the password.
        let _: tokio_postgres::Error = error;
        StoreError::Setup(
            "store.postgres.url cannot be parsed: use postgres://user@host:5432/database, or pairs such \
             as host=db user=palimpsest dbname=palimpsest. The only TLS parameter is sslmode, with the \
             values disable, prefer and require"
                .into(),
        )
    })?;
    if config.get_ssl_mode() == SslMode::Prefer && config.get_hosts().iter().any(is_remote) {
        tracing::warn!(
            "store.postgres.url does not require TLS: without TLS at the database, the connection is unencrypted, \
             and the server is not verified. Set sslmode=require"
        );
    }
    if config.get_application_name().is_none() {
        config.application_name("palimpsest");
    }
    // A read replica may lag behind and return outdated data.
    if config.get_target_session_attrs() == TargetSessionAttrs::Any {
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    }
    // A host name may resolve to several addresses, and the first may be unreachable.
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(options.connect / 2);
    }
    config.keepalives_idle(KEEPALIVE);
    config.keepalives_interval(LOOK_AGAIN);
    config.tcp_user_timeout(SILENCE);
    Ok(config)
}

/// Splits a configuration into one per host. With a single configuration for all hosts, the first
/// unresponsive one would use up the timeout of all.
fn hosts(all: &Config) -> Vec<Config> {
    let (names, addresses, ports) = (all.get_hosts(), all.get_hostaddrs(), all.get_ports());
    let one = |number: usize| {
        // As in libpq, a single port applies to all hosts.
        let port = ports.get(number).or(ports.first());
        with_host(
            all,
            names.get(number),
            addresses.get(number).copied(),
            port.copied(),
        )
    };
    (0..names.len().max(addresses.len())).map(one).collect()
}

/// Returns a configuration with one host. `Config` cannot replace its hosts, so every other setting is copied.
fn with_host(
    all: &Config,
    host: Option<&Host>,
    address: Option<IpAddr>,
    port: Option<u16>,
) -> Config {
    let mut one = Config::new();
    match host {
        Some(Host::Tcp(name)) => {
            one.host(name);
        }
        Some(Host::Unix(path)) => {
            one.host_path(path);
        }
        None => {}
    }
    if let Some(address) = address {
        one.hostaddr(address);
    }
    if let Some(port) = port {
        one.port(port);
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_is_connected_with_all_settings_except_the_other_hosts() {
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
