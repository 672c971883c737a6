//! How commands show who asks, and how they keep it private.

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

/// The variable that holds the key. There is no flag for it: flags are seen by everybody on the machine.
const KEY_VARIABLE: &str = "PALIMPSEST_API_KEY";

/// How to show who asks, and to whom.
#[derive(Debug, Clone, Args)]
pub(super) struct Security {
    /// The file that holds the API key or JWT to show [default: the variable `PALIMPSEST_API_KEY`]
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// The authorities to trust, as PEM [default: those of this machine]
    #[arg(long, value_name = "FILE", env = "PALIMPSEST_TLS_CA")]
    tls_ca: Option<PathBuf>,
    /// The certificate to show where the server asks for one, as PEM
    #[arg(
        long,
        value_name = "FILE",
        env = "PALIMPSEST_TLS_CERT",
        requires = "tls_key"
    )]
    tls_cert: Option<PathBuf>,
    /// Its private key, as PEM
    #[arg(
        long,
        value_name = "FILE",
        env = "PALIMPSEST_TLS_KEY",
        requires = "tls_cert"
    )]
    tls_key: Option<PathBuf>,
    /// Send the key without TLS to another machine too, where something else encrypts
    #[arg(long)]
    allow_plaintext: bool,
}

/// Shows in each call who asks.
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
        self.tls_ca.is_some() || self.tls_cert.is_some()
    }

    /// What is shown in each call.
    pub(super) fn credential(&self, server: &str) -> anyhow::Result<Credential> {
        let Some(key) = self.key()? else {
            return Ok(Credential::default());
        };
        if !is_confidential(server) && !self.allow_plaintext {
            bail!(
                "the API key would be sent to {server} in the clear: use https://, or, where \
                 something else encrypts the connection, --allow-plaintext"
            );
        }
        let bearer = format!("Bearer {}", key.expose_secret());
        let mut value: MetadataValue<Ascii> = bearer.parse().map_err(|_| {
            anyhow!("the API key holds what no key has, such as a line break in the middle")
        })?;
        value.set_sensitive(true);
        Ok(Credential(Some(value)))
    }

    fn key(&self) -> anyhow::Result<Option<SecretString>> {
        let text = match &self.api_key_file {
            Some(path) => Some(fs::read_to_string(path).with_context(|| read_context(path))?),
            None => std::env::var(KEY_VARIABLE).ok(),
        };
        let text = text.map(|text| text.trim().to_owned());
        Ok(text.filter(|text| !text.is_empty()).map(SecretString::from))
    }

    /// The way to the server, private where its address says so.
    pub(super) fn apply(&self, endpoint: Endpoint, server: &str) -> anyhow::Result<Endpoint> {
        if !server.starts_with("https://") {
            if self.has_tls() {
                bail!(
                    "{server} is no address of TLS: write https://, or leave --tls-ca and --tls-cert out"
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
        endpoint
            .tls_config(tls)
            .context("--tls-ca, --tls-cert or --tls-key holds no PEM of its kind")
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

/// A PEM file with a section of a kind. TLS libraries skip sections of another kind, so that a key in
/// place of a certificate would only show as a peer that is not trusted.
fn read_pem(path: &Path, flag: &str, wanted: Pem) -> anyhow::Result<Vec<u8>> {
    let bytes = fs::read(path).with_context(|| read_context(path))?;
    let text = String::from_utf8_lossy(&bytes);
    let labels = text.lines().filter_map(|line| {
        line.trim()
            .strip_prefix("-----BEGIN ")?
            .strip_suffix("-----")
    });
    let mut found = None;
    for label in labels {
        let kind = if label.ends_with("PRIVATE KEY") {
            Pem::PrivateKey
        } else if label.ends_with("CERTIFICATE") {
            Pem::Certificate
        } else {
            continue;
        };
        if kind == wanted {
            return Ok(bytes);
        }
        found = Some(kind);
    }
    let (path, wanted) = (path.display(), wanted.name());
    match found {
        Some(other) => bail!(
            "{flag} {path} holds a {} where a {wanted} is needed: name the file with the {wanted}",
            other.name()
        ),
        None => bail!("{flag} {path} holds no PEM {wanted}: name the file with the {wanted}"),
    }
}

fn read_context(path: &Path) -> String {
    format!("failed to read {}", path.display())
}

/// Whether nobody else can read what is sent there.
fn is_confidential(server: &str) -> bool {
    let Ok(url) = Url::parse(server) else {
        return false;
    };
    let is_here = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    url.scheme() == "https" || is_here
}

/// Why no connection came about, and what to do.
pub(super) fn connect_error(server: &str, error: &tonic::transport::Error) -> anyhow::Error {
    let said = causes(error);
    if said.contains("invalid peer certificate") {
        let what = if said.contains("UnknownIssuer") {
            "its authority is not trusted here: name it with --tls-ca"
        } else if said.contains("NotValidForName") || said.contains("not valid for name") {
            "it is for another name: use the name that the certificate has"
        } else if said.contains("expired") || said.contains("Expired") {
            "it has expired: the server needs a new one"
        } else {
            "it cannot be trusted"
        };
        return anyhow!("the certificate of {server} was refused: {what}");
    }
    if said.contains("InvalidContentType") {
        return anyhow!("{server} does not speak TLS: use http:// instead of https://");
    }
    if said.contains("CertificateRequired") || said.contains("alert") {
        return anyhow!(
            "{server} broke the TLS handshake off: it may ask for a certificate (--tls-cert and --tls-key)"
        );
    }
    if said.contains("onnection refused") {
        return anyhow!(
            "no server answers at {server} (connection refused): start one with `palimpsest serve`, \
             or pass --server with the address that the server logs when it starts"
        );
    }
    // The chain's own beginning ("transport error") names no cause.
    let why = said.rsplit(": ").next().unwrap_or_default();
    anyhow!("no server answers at {server} ({why}): check the host and the port of --server")
}

/// What to do here about a refusal.
pub(super) fn hint(status: &Status, is_from_server: bool) -> String {
    if status.code() == Code::Unauthenticated {
        return format!("; here the credential comes from --api-key-file or {KEY_VARIABLE}");
    }
    if is_from_server
        || !matches!(
            status.code(),
            Code::Cancelled | Code::Unknown | Code::Unavailable | Code::Internal
        )
    {
        return String::new();
    }
    let said = std::error::Error::source(status).map_or_else(String::new, causes);
    if said.contains("CertificateRequired") || said.contains("UnknownCA") {
        return ": the server asks for a certificate of an authority of its own: show it with \
                --tls-cert and --tls-key"
            .to_owned();
    }
    ": the connection broke; a server that speaks TLS needs an address with https://".to_owned()
}

fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let all = std::iter::successors(Some(error), |cause| cause.source());
    all.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
