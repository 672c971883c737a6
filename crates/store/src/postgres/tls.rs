//! How a connection to the database is encrypted, and whom it trusts.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt as _;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::StoreError;

fn setup(what: &str, path: &Path, error: impl std::fmt::Display) -> StoreError {
    StoreError::Setup(format!("{what} {} cannot be used: {error}", path.display()))
}

fn certificates(what: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, StoreError> {
    let pem = fs::read(path).map_err(|error| setup(what, path, error))?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let certificates = certificates.map_err(|error| setup(what, path, error))?;
    if certificates.is_empty() {
        return Err(setup(what, path, "there is no certificate in it"));
    }
    Ok(certificates)
}

/// Trusts the authorities of a file or of the system, and shows a certificate if there is one.
pub(super) fn connector(
    ca_file: Option<&Path>,
    client: Option<&(PathBuf, PathBuf)>,
) -> Result<MakeRustlsConnect, StoreError> {
    let broken = |error: rustls::Error| StoreError::Setup(format!("TLS cannot be set up: {error}"));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(broken)?;
    let builder = match ca_file {
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
    let config = match client {
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
