//! TLS of the gRPC port: the server certificate and the authorities for client certificates. Both are reloaded when
//! their files change. Open connections keep their certificate.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use palimpsest_settings::TlsConfig;
use rustls::RootCertStore;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use crate::access::{LoadError, Reloadable};

/// The ALPN names of HTTP/2, which gRPC requires, and of HTTP/1.1.
const HTTP2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";

/// The TLS configuration of handshakes.
#[derive(Debug, Clone)]
pub struct ServerTls {
    config: Arc<Reloadable<ServerConfig>>,
    handshake_timeout: Duration,
    max_handshakes: usize,
}

impl ServerTls {
    /// Reads the files. Returns `None` if no certificate is configured.
    pub fn open(config: &TlsConfig) -> Result<Option<Self>, LoadError> {
        let (Some(cert), Some(key)) = (config.cert_file.clone(), config.key_file.clone()) else {
            return Ok(None);
        };
        let files: Vec<PathBuf> = [cert, key]
            .into_iter()
            .chain(config.client_ca_file.clone())
            .collect();
        // One value is built from all files, so a new certificate is never used with the old key.
        let make = |files: &[Vec<u8>], _: Option<&ServerConfig>| server_config(files);
        Ok(Some(Self {
            config: Reloadable::load("tls.cert_file", files, make)?,
            handshake_timeout: Duration::from_millis(config.handshake_timeout_ms),
            max_handshakes: config.max_handshakes,
        }))
    }

    /// Reloads changed files every `every`, until `stop`.
    pub fn watch(&self, every: Duration, stop: &CancellationToken) {
        tokio::spawn(Arc::clone(&self.config).watch(every, stop.clone()));
    }

    /// Returns true if the current files are invalid and the previous certificate stays in use.
    pub fn is_stale(&self) -> bool {
        self.config.is_stale()
    }

    /// Returns the maximum number of concurrent handshakes.
    pub fn max_handshakes(&self) -> usize {
        self.max_handshakes
    }

    /// Performs the handshake of a connection. Fails on a timeout.
    pub async fn handshake(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let acceptor = TlsAcceptor::from(self.config.current());
        let shaken = timeout(self.handshake_timeout, acceptor.accept(stream));
        let stream = shaken.await;
        // The outer result is that of the timeout, the inner one that of the handshake.
        let stream = stream.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        Ok(stream)
    }
}

/// Builds the configuration from the contents of certificate, key and optional client authorities, in this order.
fn server_config(files: &[Vec<u8>]) -> Result<ServerConfig, String> {
    let chain =
        certificates(&files[0]).map_err(|error| format!("the file of tls.cert_file {error}"))?;
    // The message of the parser is dropped, because it could quote the key.
    let key = PrivateKeyDer::from_pem_slice(&files[1])
        .map_err(|_| "the key file contains no private key as PEM".to_owned())?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = match files.get(2) {
        None => builder.with_no_client_auth(),
        Some(authorities) => {
            let mut roots = RootCertStore::empty();
            let authorities = certificates(authorities)
                .map_err(|error| format!("the file of tls.client_ca_file {error}"))?;
            for certificate in authorities {
                roots.add(certificate).map_err(|error| {
                    format!("an authority of tls.client_ca_file cannot be used: {error}")
                })?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .map_err(|error| {
                    format!("the authorities of tls.client_ca_file cannot be used: {error}")
                })?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                format!("certificate and key do not go together: {error}")
            }
            error => format!("the certificate cannot be used: {error}"),
        })?;
    // The first name that the client offers too is selected, so HTTP/2 takes precedence.
    config.alpn_protocols = vec![HTTP2.to_vec(), HTTP1.to_vec()];
    Ok(config)
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match read {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) => Err("contains no certificate as PEM".to_owned()),
        Err(_) => Err("is broken PEM".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertifiedKey, generate_simple_self_signed};

    use super::*;

    #[test]
    fn a_certificate_with_another_key_is_rejected() {
        let make = || generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (CertifiedKey { cert, signing_key }, other) = (make(), make());
        let pem = |text: String| text.into_bytes();
        let (cert, key) = (pem(cert.pem()), pem(signing_key.serialize_pem()));
        let other = pem(other.signing_key.serialize_pem());
        let config = server_config(&[cert.clone(), key.clone()]).unwrap();
        assert_eq!(config.alpn_protocols, [HTTP2, HTTP1]);
        assert!(server_config(&[cert.clone(), key.clone(), cert.clone()]).is_ok());
        let wrong = [
            vec![cert.clone(), other],
            vec![key.clone(), cert.clone()],
            vec![cert.clone(), vec![]],
            vec![vec![], key.clone()],
            vec![cert, key, b"none".to_vec()],
        ];
        for files in wrong {
            let error = server_config(&files).unwrap_err();
            assert!(!error.contains("MII"), "{error}");
        }
    }
}
