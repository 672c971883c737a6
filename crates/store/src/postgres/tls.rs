//! TLS for database connections: trusted authorities and the client certificate.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt as _;
use tokio::task::spawn_blocking;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::StoreError;

/// The PEM files of the TLS configuration. Connections made after a change use the new contents.
#[derive(Clone)]
struct TlsFiles {
    ca_file: Option<PathBuf>,
    /// The client certificate and its key.
    client_identity: Option<(PathBuf, PathBuf)>,
}

/// The modification time of each file. `None` if it is unavailable.
type FileTimes = Vec<Option<SystemTime>>;

/// The TLS configuration of new connections.
pub(super) struct PgTls {
    files: TlsFiles,
    cached_connector: Mutex<(FileTimes, MakeRustlsConnect)>,
}

impl PgTls {
    pub(super) fn new(
        ca_file: Option<PathBuf>,
        client_identity: Option<(PathBuf, PathBuf)>,
    ) -> Result<Self, StoreError> {
        let files = TlsFiles {
            ca_file,
            client_identity,
        };
        let made = (files.written(), files.connector()?);
        Ok(Self {
            files,
            cached_connector: Mutex::new(made),
        })
    }

    /// Returns a connector for the current files. If they are unusable, the previous connector is kept.
    pub(super) async fn connector(&self) -> MakeRustlsConnect {
        // The lock is not held while the files are read.
        let (before, made) = self.lock_cached_connector().clone();
        // Without configured files there is nothing to reload.
        if before.is_empty() {
            return made;
        }
        let files = self.files.clone();
        // File access blocks, so it runs on a blocking thread.
        let renewed = spawn_blocking(move || {
            // The times are read before the contents. A change in between is then noticed by the next connection.
            let now = files.written();
            (now != before).then(|| files.connector().map(|connector| (now, connector)))
        });
        match renewed.await {
            Ok(Some(Ok(renewed))) => {
                tracing::info!("the certificates for the database have changed");
                *self.lock_cached_connector() = renewed.clone();
                renewed.1
            }
            Ok(Some(Err(error))) => {
                tracing::warn!(%error, "the certificates for the database have changed, and those before are used");
                made
            }
            Ok(None) | Err(_) => made,
        }
    }

    fn lock_cached_connector(&self) -> std::sync::MutexGuard<'_, (FileTimes, MakeRustlsConnect)> {
        self.cached_connector
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl TlsFiles {
    fn written(&self) -> FileTimes {
        let shown = self
            .client_identity
            .iter()
            .flat_map(|(cert, key)| [cert, key]);
        let all = self.ca_file.iter().chain(shown);
        all.map(|file| fs::metadata(file).and_then(|it| it.modified()).ok())
            .collect()
    }

    /// Builds a connector. It trusts the configured authorities or those of the system, and presents the
    /// client certificate if one is configured.
    fn connector(&self) -> Result<MakeRustlsConnect, StoreError> {
        let broken =
            |error: rustls::Error| StoreError::Setup(format!("TLS cannot be set up: {error}"));
        // The provider is passed explicitly, so that no process-wide default is needed.
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(broken)?;
        let builder = match &self.ca_file {
            Some(path) => {
                let what = "the authorities in";
                let mut roots = RootCertStore::empty();
                for certificate in certificates(what, path)? {
                    roots
                        .add(certificate)
                        .map_err(|error| setup(what, path, error))?;
                }
                builder.with_root_certificates(roots)
            }
            None => builder.with_platform_verifier().map_err(broken)?,
        };
        let config = match &self.client_identity {
            Some((certificate, key)) => {
                let chain = certificates("the certificate in", certificate)?;
                let what = "the key in";
                let pem = fs::read(key).map_err(|error| setup(what, key, error))?;
                let private =
                    PrivateKeyDer::from_pem_slice(&pem).map_err(|error| setup(what, key, error))?;
                builder
                    .with_client_auth_cert(chain, private)
                    .map_err(|error| setup(what, key, error))?
            }
            None => builder.with_no_client_auth(),
        };
        Ok(MakeRustlsConnect::new(config))
    }
}

fn setup(what: &str, path: &Path, error: impl std::fmt::Display) -> StoreError {
    StoreError::Setup(format!("{what} {} cannot be used: {error}", path.display()))
}

fn certificates(what: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, StoreError> {
    let pem = fs::read(path).map_err(|error| setup(what, path, error))?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let certificates = certificates.map_err(|error| setup(what, path, error))?;
    // A file without certificates parses without an error.
    if certificates.is_empty() {
        return Err(setup(what, path, "the file contains no certificate"));
    }
    Ok(certificates)
}
