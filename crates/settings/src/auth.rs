//! Settings of authentication and TLS.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use crate::value::{RawValue, SettingValue, quoted, with_defaults};

with_defaults! {
    /// Authentication. Without a file of API keys or of public keys, every caller is accepted.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct AuthConfig {
        /// File of API keys.
        pub keys_file: Option<PathBuf>,
        /// Interval in milliseconds at which files of keys and certificates are checked for changes. Default: 1,000.
        pub reload_ms: u64 = 1_000,
        /// True if reflection needs no credential. Default: false.
        pub public_reflection: bool,
        /// True if credentials are accepted over connections without TLS. Default: false.
        pub allow_plaintext: bool,
        /// Authentication by JWT.
        pub jwt: JwtConfig,
    }

    /// Authentication by JWT.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct JwtConfig {
        /// File with the issuer's public keys (JWKS).
        pub jwks_file: Option<PathBuf>,
        /// Required value of the claim `iss`.
        pub issuer: Option<PlainText>,
        /// Value that the claim `aud` must contain.
        pub audience: Option<PlainText>,
        /// Tolerated clock difference to the issuer, in seconds. Default: 30.
        pub clock_skew_s: u64 = 30,
        /// Name of the claim with the projects. Default: `palimpsest_projects`.
        pub projects_claim: Option<PlainText> = Some(PlainText::new("palimpsest_projects")),
        /// Name of the claim with the rights. Default: `palimpsest_rights`.
        pub rights_claim: Option<PlainText> = Some(PlainText::new("palimpsest_rights")),
    }

    /// TLS of the gRPC services. Without a certificate, connections are unencrypted.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct TlsConfig {
        /// File with the server's certificate chain.
        pub cert_file: Option<PathBuf>,
        /// File with the private key of the certificate.
        pub key_file: Option<PathBuf>,
        /// File with the CA certificates that must have signed client certificates.
        pub client_ca_file: Option<PathBuf>,
        /// Timeout of a TLS handshake in milliseconds. Default: 10,000.
        pub handshake_timeout_ms: u64 = 10_000,
        /// Maximum concurrent TLS handshakes. Default: 256.
        pub max_handshakes: usize = 256,
    }
}

impl AuthConfig {
    /// Returns true if callers must authenticate.
    pub fn is_on(&self) -> bool {
        // Client certificates alone do not identify a principal, so they do not count.
        self.keys_file.is_some() || self.jwt.jwks_file.is_some()
    }
}

/// A short text that is not interpreted here, such as the name of an issuer, an audience or a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlainText(String);

impl PlainText {
    fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl SettingValue for Option<PlainText> {
    fn read(raw: &RawValue, _: Option<RangeInclusive<u64>>) -> Result<Self, String> {
        let fits =
            |text: &&str| (1..=512).contains(&text.len()) && !text.chars().any(char::is_control);
        // The error does not show the value, because it may be a token in the wrong place.
        let given = raw.text().map(str::trim).filter(fits);
        given
            .map(|text| Some(PlainText(text.to_owned())))
            .ok_or_else(|| "must be a text of at most 512 bytes".to_owned())
    }

    fn toml(&self) -> Option<String> {
        self.as_ref().map(|text| quoted(&text.0))
    }
}
