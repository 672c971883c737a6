//! Credentials and TLS of the commands.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use secrecy::{ExposeSecret as _, SecretString};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status};
use url::{Host, Url};

/// The environment variable of the API key. No flag takes the key, because every user of the machine can read flags.
const KEY_VARIABLE: &str = "PALIMPSEST_API_KEY";

/// The flags for credentials and TLS.
#[derive(Debug, Clone, Args)]
#[expect(clippy::doc_markdown, reason = "shown by --help as it is")]
pub(super) struct Security {
    /// File with the API key or JWT to send [default: the value of PALIMPSEST_API_KEY]
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// PEM file of certificate authorities to trust [default: those of this machine]
    #[arg(
        long,
        value_name = "FILE",
        env = "PALIMPSEST_TLS_CA",
        hide_env_values = true
    )]
    tls_ca: Option<PathBuf>,
    /// PEM file of the client certificate, for a server that requires one
    #[arg(
        long,
        value_name = "FILE",
        env = "PALIMPSEST_TLS_CERT",
        hide_env_values = true,
        requires = "tls_key"
    )]
    tls_cert: Option<PathBuf>,
    /// PEM file of the private key of --tls-cert
    #[arg(
        long,
        value_name = "FILE",
        env = "PALIMPSEST_TLS_KEY",
        hide_env_values = true,
        requires = "tls_cert"
    )]
    tls_key: Option<PathBuf>,
    /// Name that the certificate of the server must contain [default: the host of --server]
    #[arg(
        long,
        value_name = "NAME",
        env = "PALIMPSEST_TLS_SERVER_NAME",
        hide_env_values = true
    )]
    tls_server_name: Option<String>,
    /// Send the API key without TLS to another machine, for example inside an encrypted network
    #[arg(long)]
    allow_plaintext: bool,
}

/// Adds the credential to each call.
#[derive(Debug, Clone, Default)]
pub(crate) struct Credential(Option<MetadataValue<Ascii>>);

impl Interceptor for Credential {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = &self.0 {
            let value = value.clone();
            request.metadata_mut().insert("authorization", value);
        }
        Ok(request)
    }
}

impl Security {
    /// True if a flag or a variable configures TLS.
    pub(super) fn has_tls(&self) -> bool {
        self.tls_ca.is_some() || self.tls_cert.is_some() || self.tls_server_name.is_some()
    }

    /// Returns the credential for calls to a server. Rejects a key that would leave this machine without TLS.
    pub(super) fn credential(&self, server: &str) -> anyhow::Result<Credential> {
        let Some(key) = self.key()? else {
            return Ok(Credential::default());
        };
        if !is_confidential(server) && !self.allow_plaintext {
            bail!(
                "the API key would be sent to {server} without encryption: use https://, or pass --allow-plaintext \
                 if the network encrypts the connection"
            );
        }
        let bearer = format!("Bearer {}", key.expose_secret());
        let mut value: MetadataValue<Ascii> = bearer.parse().map_err(|_| {
            anyhow!(
                "the API key contains a character that no key has, such as a line break: check --api-key-file or \
                 {KEY_VARIABLE}"
            )
        })?;
        // A sensitive value is neither added to the compression table of HTTP/2 nor printed by `Debug`.
        value.set_sensitive(true);
        Ok(Credential(Some(value)))
    }

    fn key(&self) -> anyhow::Result<Option<SecretString>> {
        let text = match &self.api_key_file {
            Some(path) => Some(fs::read_to_string(path).with_context(|| read_context(path))?),
            None => std::env::var(KEY_VARIABLE).ok(),
        };
        // A key file usually ends with a line break, which is not part of the key.
        let text = text.map(|text| text.trim().to_owned());
        Ok(text.filter(|text| !text.is_empty()).map(SecretString::from))
    }

    /// Configures TLS if the address begins with `https://`.
    pub(super) fn apply(&self, endpoint: Endpoint, server: &str) -> anyhow::Result<Endpoint> {
        if !server.starts_with("https://") {
            if self.has_tls() {
                bail!(
                    "{server} is not an address with TLS: write https://, or remove --tls-ca, --tls-cert and \
                     --tls-server-name"
                );
            }
            return Ok(endpoint);
        }
        let mut tls =
            match &self.tls_ca {
                Some(path) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(
                    read_pem(path, "--tls-ca", Pem::Certificate)?,
                )),
                None => ClientTlsConfig::new().with_native_roots(),
            };
        if let (Some(cert), Some(key)) = (&self.tls_cert, &self.tls_key) {
            tls = tls.identity(Identity::from_pem(
                read_pem(cert, "--tls-cert", Pem::Certificate)?,
                read_pem(key, "--tls-key", Pem::PrivateKey)?,
            ));
        }
        // A server can be reached under a name that its certificate does not contain, such as that of a Service.
        if let Some(name) = &self.tls_server_name {
            tls = tls.domain_name(name);
        }
        endpoint.tls_config(tls).map_err(|error| {
            // tonic hides the type of the cause, so the text of rustls is compared.
            if causes(&error).contains("KeyMismatch") {
                return anyhow!(
                    "--tls-key is not the private key of the certificate in --tls-cert: pass the two files of one pair"
                );
            }
            anyhow::Error::new(error).context(
                "--tls-ca, --tls-cert or --tls-key is not valid PEM: check these files",
            )
        })
    }
}

/// The kind of a PEM section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pem {
    Certificate,
    PrivateKey,
}

impl Pem {
    const fn name(self) -> &'static str {
        match self {
            Self::Certificate => "certificate",
            Self::PrivateKey => "private key",
        }
    }
}

/// Reads a PEM file and checks that it has a section of the expected kind.
///
/// TLS libraries skip sections of another kind. Without the check, a key in place of a certificate would only cause an
/// error about an untrusted peer.
fn read_pem(path: &Path, flag: &str, expected: Pem) -> anyhow::Result<Vec<u8>> {
    let bytes = fs::read(path).with_context(|| read_context(path))?;
    let text = String::from_utf8_lossy(&bytes);
    let labels = text.lines().filter_map(|line| {
        line.trim()
            .strip_prefix("-----BEGIN ")?
            .strip_suffix("-----")
    });
    let mut found = None;
    for label in labels {
        // Labels have prefixes, such as `RSA PRIVATE KEY` and `EC PRIVATE KEY`.
        let kind = if label.ends_with("PRIVATE KEY") {
            Pem::PrivateKey
        } else if label.ends_with("CERTIFICATE") {
            Pem::Certificate
        } else {
            // A file can have other parts too, such as `EC PARAMETERS` before a key.
            continue;
        };
        if kind == expected {
            return Ok(bytes);
        }
        found = Some(kind);
    }
    let (path, expected) = (path.display(), expected.name());
    match found {
        Some(other) => bail!(
            "{flag} {path} contains a {} instead of a {expected}: pass the file with the {expected}",
            other.name()
        ),
        None => {
            bail!("{flag} {path} contains no PEM {expected}: pass the file with the {expected}")
        }
    }
}

fn read_context(path: &Path) -> String {
    format!("failed to read {}", path.display())
}

/// Returns true if the address has TLS or is on this machine.
fn is_confidential(server: &str) -> bool {
    let Ok(url) = Url::parse(server) else {
        return false;
    };
    let is_local = match url.host() {
        // Only `localhost` is reserved for this machine. Other names can resolve to any address.
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    url.scheme() == "https" || is_local
}

/// Describes a failed connection and the next step.
pub(super) fn connect_error(server: &str, error: &tonic::transport::Error) -> anyhow::Error {
    // tonic hides the type of the cause, so the texts of rustls and of the system are compared.
    let text = causes(error);
    if text.contains("invalid peer certificate") {
        let reason = if text.contains("UnknownIssuer") {
            "its authority is not trusted: pass the authority with --tls-ca"
        } else if text.contains("NotValidForName") || text.contains("not valid for name") {
            // rustls describes this error by its name, or by a sentence if it knows the names of the certificate.
            "it is for another host name: use a name that the certificate contains, or pass that name with \
             --tls-server-name"
        } else if text.contains("expired") || text.contains("Expired") {
            "it has expired: renew the certificate of the server"
        } else {
            "it is not valid"
        };
        return anyhow!("the certificate of {server} was rejected: {reason}");
    }
    // A server without TLS answers the handshake with HTTP, in which rustls finds no TLS record.
    if text.contains("InvalidContentType") {
        return anyhow!("{server} does not use TLS: write http:// instead of https://");
    }
    if text.contains("CertificateRequired") || text.contains("alert") {
        return anyhow!(
            "{server} ended the TLS handshake: it may require a client certificate (--tls-cert and --tls-key)"
        );
    }
    // The search omits the first letter, whose case differs between texts.
    if text.contains("onnection refused") {
        return anyhow!(
            "no server answers at {server} (connection refused): start one with `palimpsest serve`, \
             or pass --server with the address that the server logs when it starts"
        );
    }
    // The last error of the chain is the cause. The first one is only "transport error".
    let cause = text.rsplit(": ").next().unwrap_or_default();
    anyhow!("no server answers at {server} ({cause}): check the host and the port of --server")
}

/// Returns the next step after a rejected call, or an empty text.
pub(super) fn hint(status: &Status, is_from_server: bool) -> String {
    if status.code() == Code::Unauthenticated {
        return format!(
            "; this command reads the credential from --api-key-file or {KEY_VARIABLE}"
        );
    }
    // An error with a reason comes from the server itself. Only a failed transport can have TLS as its cause.
    if is_from_server
        || !matches!(
            status.code(),
            Code::Cancelled | Code::Unknown | Code::Unavailable | Code::Internal
        )
    {
        return String::new();
    }
    // With TLS 1.3, a missing client certificate is rejected after the handshake. The first call then fails instead of
    // the connection.
    let text = std::error::Error::source(status).map_or_else(String::new, causes);
    if text.contains("CertificateRequired") || text.contains("UnknownCA") {
        return ": the server requires a client certificate of its own authority: pass one with --tls-cert \
                and --tls-key"
            .to_owned();
    }
    // A server that rejects the client certificate can also close the connection before its alert is read. The status
    // does not contain the address, so the text covers both schemes.
    ": the connection was lost. If the address in --server begins with http://, the server may use TLS: write https://. \
     If it begins with https://, the server may require a client certificate of its own authority: pass one with \
     --tls-cert and --tls-key"
        .to_owned()
}

fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let all = std::iter::successors(Some(error), |cause| cause.source());
    all.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_connection_names_tls_and_the_client_certificate() {
        let lost = Status::unknown("transport error");
        let text = hint(&lost, false);
        assert!(text.contains("write https://"), "{text}");
        assert!(text.contains("--tls-cert and --tls-key"), "{text}");
        // A reply of the server itself needs no advice about the connection.
        assert_eq!(hint(&lost, true), "");
        assert_eq!(hint(&Status::not_found("no session"), false), "");
    }
}
