//! Shared helpers: a server with keys, calls with a credential, and certificates.

use std::path::PathBuf;
use std::time::Duration;

use palimpsest_proto::context::v1::session_service_client::SessionServiceClient;
use palimpsest_proto::context::v1::{ListSessionsRequest, WatchSessionRequest};
use palimpsest_tests::Server;
pub(crate) use palimpsest_tests::authority::Authority;
use palimpsest_tests::tenant::keys;
pub(crate) use palimpsest_tests::tenant::with;
use tempfile::TempDir;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Status, Streaming};

/// The interval at which the servers of these tests check their files for changes.
const RELOAD: &str = "auth.reload_ms=100";
pub(crate) const SOON: Duration = Duration::from_mins(2);

/// The folder of a server, with the files that configure authentication.
pub(crate) struct World {
    pub(crate) folder: TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("keys.toml"), "").unwrap();
        Self { folder }
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn setting(&self, key: &str, file: &str) -> String {
        format!("{key}={}", self.at(file).display())
    }

    /// Runs `palimpsest keys` and returns its output.
    pub(crate) fn keys(&self, args: &[&str]) -> String {
        keys(&self.at("keys.toml"), args)
    }

    /// Creates a key and returns it.
    pub(crate) fn key(&self, project: &str, rights: &str) -> String {
        self.keys(&["create", "--project", project, "--right", rights])
    }

    /// Starts a server that accepts the keys, with additional settings.
    pub(crate) fn serve(&self, more: &[String]) -> Server {
        let mut all = vec![
            self.setting("auth.keys_file", "keys.toml"),
            RELOAD.to_owned(),
        ];
        all.extend(more.iter().cloned());
        all.push("worker.enabled=false".to_owned());
        let args: Vec<_> = all.iter().flat_map(|it| ["--set", it.as_str()]).collect();
        Server::start(&self.at("data"), &args)
    }
}

/// Returns the id within a key.
pub(crate) fn id_of(key: &str) -> &str {
    &key[4..20]
}

/// Lists sessions. This call requires the right `read`.
pub(crate) async fn list(channel: &Channel, credential: &str, project: &str) -> Result<(), Status> {
    let request = ListSessionsRequest {
        parent: format!("projects/{project}"),
        ..Default::default()
    };
    let mut client = SessionServiceClient::new(channel.clone());
    client
        .list_sessions(with(credential, request))
        .await
        .map(drop)
}

/// Opens a stream that does not end by itself.
pub(crate) async fn watch(
    channel: &Channel,
    credential: &str,
    session: &str,
) -> Result<Streaming<palimpsest_proto::context::v1::WatchSessionResponse>, Status> {
    let request = WatchSessionRequest {
        session: session.to_owned(),
        ..Default::default()
    };
    let mut client = SessionServiceClient::new(channel.clone());
    let watched = client.watch_session(with(credential, request)).await?;
    Ok(watched.into_inner())
}

/// Waits until the condition is true. Panics with `what` after a time limit.
pub(crate) async fn soon<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
    let waited = tokio::time::timeout(SOON, async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    assert!(waited.await.is_ok(), "timed out waiting for {what}");
}

/// Opens a TLS connection that trusts the authority. `shown` is an optional client certificate with its key.
pub(crate) async fn tls(
    server: &Server,
    authority: &Authority,
    shown: Option<(String, String)>,
) -> Result<Channel, tonic::transport::Error> {
    let port = server.address().rsplit_once(':').unwrap().1;
    let mut tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(authority.pem()))
        .domain_name("localhost");
    if let Some((cert, key)) = shown {
        tls = tls.identity(Identity::from_pem(cert, key));
    }
    let endpoint = Endpoint::from_shared(format!("https://127.0.0.1:{port}")).unwrap();
    endpoint.tcp_nodelay(true).tls_config(tls)?.connect().await
}
