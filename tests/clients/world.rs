//! The servers for one client, with keys, certificates, a model and a hook.

use std::path::{Path, PathBuf};

use palimpsest_fake_provider::FakeProvider;
use palimpsest_tests::{Server, palimpsest};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use serde_json::json;
use tempfile::TempDir;

use crate::{beside, hook};

/// More free space than a memory disk has. A server with this minimum rejects all writes.
const TOO_MUCH_BYTES: &str = "store.min_free_bytes=1099511627776";
/// The projects for which the keys have rights.
const PROJECTS: [&str; 6] = ["p", "lists", "few", "rate", "bytes", "watch"];

/// Servers, a model and a hook. They end when this value is dropped.
pub(crate) struct World {
    /// The file that lists all addresses for the client.
    pub(crate) file: PathBuf,
    _servers: [Server; 2],
    _provider: FakeProvider,
    _folders: [TempDir; 2],
}

impl World {
    /// Starts all servers with empty stores.
    pub(crate) async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let provider = FakeProvider::start().await.unwrap();
        let at = folder.path();
        let authority = certify(at);
        let keys = json!({
            "agent": key(at, &PROJECTS, "read,write,compact"),
            "admin": key(at, &PROJECTS, "read,write,compact,admin"),
            "reader": key(at, &["p"], "read"),
            "unknown": revoked(at),
        });
        let full = full_folder();
        let servers = [
            main(at, &provider, &hook::start()),
            full_server(at, full.path()),
        ];
        let file = at.join("world.json");
        let world = json!({
            "servers": {"main": servers[0].address(), "full": servers[1].address()},
            "ca_file": authority,
            "keys": keys,
        });
        std::fs::write(&file, world.to_string()).unwrap();
        Self {
            file,
            _servers: servers,
            _provider: provider,
            _folders: [folder, full],
        }
    }
}

/// Returns the settings that both servers share.
fn usual(folder: &Path) -> Vec<String> {
    let file = |name: &str| folder.join(name).display().to_string();
    vec![
        format!("auth.keys_file={}", file("keys.toml")),
        format!("tls.cert_file={}", file("tls.crt")),
        format!("tls.key_file={}", file("tls.key")),
    ]
}

fn main(folder: &Path, provider: &FakeProvider, hook: &str) -> Server {
    let mut settings = usual(folder);
    settings.extend([
        "summarizer.provider=anthropic".to_owned(),
        format!("summarizer.base_url={}", provider.url()),
        "summarizer.model=claude-fake".to_owned(),
        "summarizer.api_key_env=MODEL_KEY".to_owned(),
        format!("hooks.endpoints.veto.url={hook}"),
        // No process listens on this port.
        "hooks.endpoints.gone.url=http://127.0.0.1:1".to_owned(),
    ]);
    let config = beside("main.toml").display().to_string();
    let mut args = vec!["--config", config.as_str()];
    args.extend(settings.iter().flat_map(|it| ["--set", it.as_str()]));
    Server::start_with(&folder.join("main"), &args, &[("MODEL_KEY", "key")])
}

fn full_server(folder: &Path, data: &Path) -> Server {
    let mut settings = usual(folder);
    settings.push(TOO_MUCH_BYTES.to_owned());
    let args: Vec<_> = settings
        .iter()
        .flat_map(|it| ["--set", it.as_str()])
        .collect();
    Server::start_unready(&data.join("full"), &args)
}

/// Returns a folder on a memory disk if one exists, because that disk is smaller than the largest allowed value of the
/// setting.
fn full_folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

fn keys(folder: &Path, args: &[&str]) -> String {
    let file = folder.join("keys.toml");
    let args = [&["keys"], args, &["--keys-file", file.to_str().unwrap()]].concat();
    let output = palimpsest(&args);
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn key(folder: &Path, projects: &[&str], rights: &str) -> String {
    let mut args = vec!["create", "--right", rights];
    args.extend(projects.iter().flat_map(|project| ["--project", project]));
    keys(folder, &args)
}

/// Returns a key that was valid and is revoked.
fn revoked(folder: &Path) -> String {
    let key = key(folder, &["p"], "read");
    keys(folder, &["revoke", &key[4..20]]);
    key
}

/// Writes a certificate, its key and the certificate of its CA. Returns the path of the CA's certificate.
fn certify(folder: &Path) -> PathBuf {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // The names must differ, because OpenSSL treats a certificate as self-signed if issuer and subject are equal.
    let name = &mut params.distinguished_name;
    name.push(DnType::CommonName, "the authority of these tests");
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(names).unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap();
    let ca = folder.join("ca.pem");
    std::fs::write(&ca, authority.pem()).unwrap();
    std::fs::write(folder.join("tls.crt"), certificate.pem()).unwrap();
    std::fs::write(folder.join("tls.key"), key.serialize_pem()).unwrap();
    ca
}
