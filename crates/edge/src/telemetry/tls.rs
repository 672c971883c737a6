//! TLS to the collector: trusted authorities and the client certificate. Both transports use the same files.

use std::path::PathBuf;
use std::time::Duration;

use palimpsest_settings::OtlpConfig;
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use super::TelemetryError;

/// The contents of the TLS files. They are read once at startup.
pub(super) struct OtlpTls {
    /// The authority that replaces those of the system, as PEM.
    authority: Option<Vec<u8>>,
    /// The client certificate and its key, as PEM.
    client_identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl OtlpTls {
    pub(super) fn read(config: &OtlpConfig) -> Result<Self, TelemetryError> {
        let file = |path: &Option<PathBuf>, setting| {
            let read = path.as_ref().map(std::fs::read).transpose();
            read.map_err(|error| TelemetryError::Tls(setting, error.to_string()))
        };
        let cert = file(&config.client_cert_file, "otlp.client_cert_file")?;
        let key = file(&config.client_key_file, "otlp.client_key_file")?;
        Ok(Self {
            authority: file(&config.ca_file, "otlp.ca_file")?,
            client_identity: cert.zip(key),
        })
    }

    /// Returns the configuration for OTLP over gRPC.
    pub(super) fn of_channel(&self) -> ClientTlsConfig {
        let tls = match &self.authority {
            Some(pem) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem)),
            None => ClientTlsConfig::new().with_native_roots(),
        };
        match &self.client_identity {
            Some((cert, key)) => tls.identity(Identity::from_pem(cert, key)),
            None => tls,
        }
    }

    /// Builds the client for OTLP over HTTP.
    pub(super) fn client(&self, timeout: Duration) -> Result<reqwest::Client, TelemetryError> {
        let wrong = |setting| {
            move |error: reqwest::Error| TelemetryError::Tls(setting, error_chain(&error))
        };
        let mut client = reqwest::Client::builder()
            .timeout(timeout)
            // Requests contain secret headers for this collector, which a redirect could leak.
            .redirect(reqwest::redirect::Policy::none());
        if let Some(pem) = &self.authority {
            let authorities = reqwest::Certificate::from_pem_bundle(pem);
            client = client.tls_certs_only(authorities.map_err(wrong("otlp.ca_file"))?);
        }
        if let Some((cert, key)) = &self.client_identity {
            // reqwest expects certificate and key in one PEM text.
            let both = [cert.as_slice(), b"\n", key].concat();
            let shown = reqwest::Identity::from_pem(&both);
            client = client.identity(shown.map_err(wrong("otlp.client_cert_file"))?);
        }
        client.build().map_err(wrong("otlp.ca_file"))
    }
}

/// Returns the cause of an error, because the error text itself is generic.
fn error_chain(error: &reqwest::Error) -> String {
    let cause = std::error::Error::source(error);
    cause.map_or_else(|| error.to_string(), ToString::to_string)
}
