//! Who may enter, and how connections are kept private.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use super::Config;
use super::value::{Raw, Value, quoted};

/// Who may enter. Without a file of keys of either kind, everybody may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthConfig {
    /// The file of API keys.
    pub keys_file: Option<PathBuf>,
    /// How often the files of keys and certificates are looked at.
    pub reload_ms: u64,
    /// Whether reflection is open to everybody.
    pub open_reflection: bool,
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
            open_reflection: false,
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

/// What must hold of who may enter and how.
pub(super) fn check(config: &Config, check: &mut impl FnMut(bool, &'static [&'static str], &str)) {
    listening(config, check);
    let jwt = &config.auth.jwt;
    let jwks = jwt.jwks_file.is_some();
    let with_jwks: [(bool, &'static [&'static str]); 2] = [
        (
            jwt.issuer.is_some(),
            &["auth.jwt.issuer", "auth.jwt.jwks_file"],
        ),
        (
            jwt.audience.is_some(),
            &["auth.jwt.audience", "auth.jwt.jwks_file"],
        ),
    ];
    for (is_set, keys) in with_jwks {
        check(
            is_set || !jwks,
            keys,
            "must be set: without it tokens that were made for others would be taken",
        );
        check(
            jwks || !is_set,
            keys,
            "has no effect without auth.jwt.jwks_file, the file of the issuer's public keys",
        );
    }
    let tls = &config.tls;
    check(
        tls.key_file.is_some() || tls.cert_file.is_none(),
        &["tls.key_file", "tls.cert_file"],
        "must be set: the file of the private key of tls.cert_file",
    );
    check(
        tls.cert_file.is_some() || tls.key_file.is_none(),
        &["tls.cert_file", "tls.key_file"],
        "must be set: the file of the certificate of tls.key_file",
    );
    check(
        tls.cert_file.is_some() || tls.client_ca_file.is_none(),
        &["tls.client_ca_file", "tls.cert_file"],
        "has no effect without tls.cert_file and tls.key_file: callers show certificates over TLS",
    );
}

/// Beyond this machine nobody is let in unasked, and no credential goes in the clear, unless that is said.
fn listening(config: &Config, check: &mut impl FnMut(bool, &'static [&'static str], &str)) {
    let (is_on, is_private) = (config.auth.is_on(), config.tls.cert_file.is_some());
    let is_near = config.listen.ip().is_loopback();
    check(
        is_near || is_on || config.insecure_listen_anywhere,
        &[
            "listen",
            "insecure_listen_anywhere",
            "auth.keys_file",
            "auth.jwt.jwks_file",
        ],
        "can be reached by other machines, and nothing asks callers who they are: set \
         auth.keys_file (`palimpsest keys create` makes one) or auth.jwt.jwks_file, choose a \
         loopback address such as 127.0.0.1, put a proxy that authenticates in front, or accept \
         it with --insecure-listen-anywhere (PALIMPSEST_INSECURE_LISTEN_ANYWHERE=true)",
    );
    check(
        is_near || !is_on || is_private || config.auth.allow_plaintext,
        &["listen", "tls.cert_file", "auth.allow_plaintext"],
        "can be reached by other machines, and credentials would come in the clear: set \
         tls.cert_file and tls.key_file, or, where something else encrypts every connection (a \
         service mesh, a proxy on this machine), auth.allow_plaintext = true",
    );
    check(
        config.admin.listen.ip().is_loopback() || config.admin.listen_anywhere,
        &["admin.listen", "admin.listen_anywhere"],
        "can be reached by other machines, and asks nobody who they are: choose a loopback address \
         such as 127.0.0.1, or, where metrics are scraped from outside, accept it with \
         admin.listen_anywhere = true (it shows metrics and health, and never content)",
    );
}
