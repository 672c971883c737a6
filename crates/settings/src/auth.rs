//! Who may enter, and how connections are kept private.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use crate::value::{Raw, Value, quoted};

/// Who may enter. Without a file of keys of either kind, everybody may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthConfig {
    /// The file of API keys.
    pub keys_file: Option<PathBuf>,
    /// How often the files of keys and certificates are looked at.
    pub reload_ms: u64,
    /// Whether reflection is open to everybody.
    pub public_reflection: bool,
    /// Whether credentials may come over connections that others could read.
    pub allow_plaintext: bool,
    /// Tokens of an issuer.
    pub jwt: JwtConfig,
}

/// Tokens of an issuer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JwtConfig {
    /// The issuer's public keys.
    pub jwks_file: Option<PathBuf>,
    /// What `iss` must be.
    pub issuer: Option<Text>,
    /// What `aud` must hold.
    pub audience: Option<Text>,
    /// By how much the issuer's clock may differ.
    pub clock_skew_s: u64,
    /// The claim that names projects.
    pub projects_claim: Option<Text>,
    /// The claim that names rights.
    pub rights_claim: Option<Text>,
}

/// TLS. Without a certificate connections are plain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsConfig {
    /// The server's certificate, and those between it and its authority.
    pub cert_file: Option<PathBuf>,
    /// Its private key.
    pub key_file: Option<PathBuf>,
    /// The authorities whose certificates callers must show.
    pub client_ca_file: Option<PathBuf>,
    /// How long a handshake may take.
    pub handshake_timeout_ms: u64,
    /// Handshakes at one time.
    pub max_handshakes: usize,
}

impl Default for AuthConfig {
    fn default() -> Self {
        Self {
            keys_file: None,
            reload_ms: 1_000,
            public_reflection: false,
            allow_plaintext: false,
            jwt: JwtConfig::default(),
        }
    }
}

impl Default for JwtConfig {
    fn default() -> Self {
        let text = |text: &str| Some(Text(text.to_owned()));
        Self {
            jwks_file: None,
            issuer: None,
            audience: None,
            clock_skew_s: 30,
            projects_claim: text("palimpsest_projects"),
            rights_claim: text("palimpsest_rights"),
        }
    }
}

impl Default for TlsConfig {
    fn default() -> Self {
        Self {
            cert_file: None,
            key_file: None,
            client_ca_file: None,
            handshake_timeout_ms: 10_000,
            max_handshakes: 256,
        }
    }
}

impl AuthConfig {
    /// Whether callers have to say who they are.
    pub fn is_on(&self) -> bool {
        self.keys_file.is_some() || self.jwt.jwks_file.is_some()
    }
}

/// A short text without meaning of its own here: the name of an issuer, an audience, a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text(String);

impl Text {
    /// It.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Value for Option<Text> {
    fn read(raw: &Raw, _: Option<RangeInclusive<u64>>) -> Result<Self, String> {
        let fits =
            |text: &&str| (1..=512).contains(&text.len()) && !text.chars().any(char::is_control);
        // What was given is not shown: people put tokens where they do not belong.
        let given = raw.text().map(str::trim).filter(fits);
        given
            .map(|text| Some(Text(text.to_owned())))
            .ok_or_else(|| "must be a text of at most 512 bytes".to_owned())
    }

    fn toml(&self) -> Option<String> {
        self.as_ref().map(|text| quoted(&text.0))
    }
}
