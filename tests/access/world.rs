//! What the tests share: a server with keys, calls with a credential, certificates.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use palimpsest_proto::context::v1::session_service_client::SessionServiceClient;
use palimpsest_proto::context::v1::{ListSessionsRequest, WatchSessionRequest};
use palimpsest_tests::{Server, binary};
use rcgen::{CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use tempfile::TempDir;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Status, Streaming};

/// How often the servers of these tests look at files, and how long a change may take to be in force.
const RELOAD: &str = "auth.reload_ms=100";
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// A server's folder, with the files that say who may enter.
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

    /// Runs `palimpsest keys`.
    pub(crate) fn keys(&self, args: &[&str]) -> String {
        let output = Command::new(binary())
            .arg("keys")
            .args(args)
            .arg("--keys-file")
            .arg(self.at("keys.toml"))
            .env_clear()
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{args:?}: {stderr}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Makes a key.
    pub(crate) fn key(&self, project: &str, rights: &str) -> String {
        self.keys(&["create", "--project", project, "--right", rights])
    }

    /// A server that takes the keys, with more settings.
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

/// The id in a key.
pub(crate) fn id_of(key: &str) -> &str {
    &key[4..20]
}

/// A request with a credential.
pub(crate) fn with<T>(credential: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    let bearer = format!("Bearer {credential}");
    let metadata = request.metadata_mut();
    metadata.insert("authorization", bearer.parse().unwrap());
    request
}

/// Asks for a list, which a right to read is enough for.
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

/// Opens a stream that goes on for ever.
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

/// Waits until something is as it should be.
pub(crate) async fn soon<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
    let waited = tokio::time::timeout(SOON, async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    assert!(waited.await.is_ok(), "{what} takes too long");
}

/// An authority, and what it signs.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate and its key, as PEM.
    pub(crate) fn sign(&self, name: &str) -> (String, String) {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.0).unwrap();
        (cert.pem(), key.serialize_pem())
    }

    /// Writes a certificate for `localhost` where a server finds it.
    pub(crate) fn write(&self, folder: &Path) -> String {
        let (cert, key) = self.sign("localhost");
        std::fs::write(folder.join("tls.key"), &key).unwrap();
        std::fs::write(folder.join("tls.crt"), cert).unwrap();
        key
    }
}

/// A connection over TLS that trusts an authority, and may show a certificate.
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
