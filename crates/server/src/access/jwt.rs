//! JWTs: signed by an issuer whose public keys lie in a JWKS file, checked here and nowhere asked about.
//!
//! `jsonwebtoken` checks signature, issuer and audience; the times are compared here, because it would read
//! the machine's clock.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use jsonwebtoken::jwk::{Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, Validation, decode, decode_header};
use palimpsest_core::ids::{ProjectId, Timestamp};
use palimpsest_settings::JwtConfig;
use serde::Deserialize;
use serde_json::Value;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::AuthError;
use super::grant::{Grant, Principal, Projects, Right};
use super::token_cache::{TokenCache, digest_of};

/// The most keys of a file.
const MAX_KEYS: usize = 1_000;
/// What the names of rights may begin with, so that they can stand among the scopes of others.
const SCOPE_PREFIX: &str = "palimpsest:";
/// Tokens whose checks are remembered.
const REMEMBERED: usize = 4_096;
/// How much of a subject the log is told.
const MAX_SUBJECT_CHARS: usize = 100;

/// What tokens must say.
#[derive(Debug, Clone)]
pub(super) struct TokenRules {
    issuer: String,
    audience: String,
    skew_ms: u64,
    projects_claim: String,
    rights_claim: String,
}

impl TokenRules {
    /// The configured ones; a checked configuration has an issuer and an audience with its file.
    pub(super) fn of(config: &JwtConfig) -> Self {
        let text = |text: &Option<palimpsest_settings::Text>| {
            text.as_ref()
                .map_or("", palimpsest_settings::Text::as_str)
                .to_owned()
        };
        Self {
            issuer: text(&config.issuer),
            audience: text(&config.audience),
            skew_ms: config.clock_skew_s * 1_000,
            projects_claim: text(&config.projects_claim),
            rights_claim: text(&config.rights_claim),
        }
    }
}

/// The issuer's keys of one state of the file, and the tokens that they have vouched for.
#[derive(Debug)]
pub(super) struct Jwks {
    keys: Vec<PublicKey>,
    seen: Mutex<TokenCache<Arc<Principal>>>,
}

/// A JWKS whose keys are not looked at yet: one of a kind that is not known must not hide the others.
#[derive(Deserialize)]
struct KeySet {
    keys: Vec<Value>,
}

struct PublicKey {
    id: Option<String>,
    algorithm: Option<Algorithm>,
    key: DecodingKey,
    /// As the file has it.
    entry: Value,
    /// Cancelled with the last state of the file that has the key: the tokens that it has vouched for end then.
    gone: CancellationToken,
    guard: Arc<DropGuard>,
}

impl std::fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PublicKey")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl Jwks {
    /// Reads a file's text. Keys of kinds that do not sign here are passed over, as the standard says; none
    /// that signs is a mistake.
    pub(super) fn read(text: &[u8], before: Option<&Self>) -> Result<Self, String> {
        let set: KeySet = serde_json::from_slice(text)
            .map_err(|error| format!("line {}: it is not a JWKS", error.line()))?;
        let known = |entry: Value| {
            let earlier = before.and_then(|before| before.keys.iter().find(|it| it.entry == entry));
            PublicKey::read(entry, earlier)
        };
        let keys: Vec<_> = set.keys.into_iter().filter_map(known).collect();
        match keys.len() {
            0 => Err("it has no public key of RSA, an elliptic curve or Ed25519".to_owned()),
            1..=MAX_KEYS => Ok(Self {
                keys,
                seen: Mutex::new(TokenCache::new(REMEMBERED)),
            }),
            _ => Err(format!("it has more than {MAX_KEYS} keys")),
        }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.keys.len()
    }

    /// Whose token it is.
    pub(super) fn caller(
        &self,
        token: &str,
        rules: &TokenRules,
        now: Timestamp,
    ) -> Result<Arc<Principal>, AuthError> {
        let digest = digest_of(token);
        let lock = || self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = lock().get(&digest);
        if let Some(caller) = seen {
            return if caller.is_expired(now) {
                Err(AuthError::Expired)
            } else {
                Ok(caller)
            };
        }
        // Without the lock: others need not wait for a signature to be checked.
        let caller = Arc::new(self.checked(token, rules, now)?);
        lock().put(digest, Arc::clone(&caller));
        Ok(caller)
    }

    fn checked(
        &self,
        token: &str,
        rules: &TokenRules,
        now: Timestamp,
    ) -> Result<Principal, AuthError> {
        let (claims, gone) = self.signed(token, rules)?;
        let skew = i64::try_from(rules.skew_ms).unwrap_or(i64::MAX);
        let exp = time(&claims, "exp").ok_or(AuthError::NoExpiry)?;
        let expires = Timestamp::from_millis(exp.saturating_add(skew));
        if expires <= now {
            return Err(AuthError::Expired);
        }
        let starts = match claims.get("nbf") {
            None => None,
            Some(_) => Some(time(&claims, "nbf").ok_or(AuthError::MalformedToken)?),
        };
        if starts.is_some_and(|starts| starts > now.as_millis().saturating_add(skew)) {
            return Err(AuthError::NotYetValid);
        }
        let subject = claims
            .get("sub")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let plain = |c: &char| !c.is_control();
        let subject: String = subject
            .chars()
            .filter(plain)
            .take(MAX_SUBJECT_CHARS)
            .collect();
        Ok(Principal {
            name: format!("token of {subject:?}").into(),
            grant: Grant {
                projects: projects(&claims, &rules.projects_claim)?,
                rights: rights(&claims, &rules.rights_claim)?,
            },
            expires: Some(expires),
            revoked: gone.child_token(),
        })
    }

    /// The claims of a token whose signature, issuer and audience are right, and the end of the key that signed it.
    fn signed(
        &self,
        token: &str,
        rules: &TokenRules,
    ) -> Result<(Value, &CancellationToken), AuthError> {
        // An algorithm that it does not know, such as none, is an error of its own here.
        let header = decode_header(token).map_err(|_| AuthError::MalformedToken)?;
        if header.alg.family() == AlgorithmFamily::Hmac {
            return Err(AuthError::Algorithm);
        }
        // Whoever sets `crit` wants what follows to be understood or refused.
        if header.crit.is_some() {
            return Err(AuthError::MalformedToken);
        }
        let key = self.key(header.kid.as_deref(), header.alg)?;
        let mut validation = Validation::new(header.alg);
        validation.validate_exp = false;
        validation.validate_nbf = false;
        validation.set_issuer(&[&rules.issuer]);
        validation.set_audience(&[&rules.audience]);
        validation.set_required_spec_claims(&["iss", "aud"]);
        let decoded = decode::<Value>(token, &key.key, &validation);
        let decoded = decoded.map(|token| (token.claims, &key.gone));
        decoded.map_err(|error| {
            use jsonwebtoken::errors::ErrorKind;
            match error.kind() {
                ErrorKind::InvalidIssuer => AuthError::Issuer,
                ErrorKind::MissingRequiredClaim(name) if name == "iss" => AuthError::Issuer,
                ErrorKind::InvalidAudience | ErrorKind::MissingRequiredClaim(_) => {
                    AuthError::Audience
                }
                ErrorKind::InvalidSignature => AuthError::Signature,
                ErrorKind::InvalidAlgorithm | ErrorKind::UnsupportedAlgorithm => {
                    AuthError::Algorithm
                }
                _ => AuthError::MalformedToken,
            }
        })
    }

    /// The key that a token names; where there is one key, a token need not name it.
    fn key(&self, id: Option<&str>, algorithm: Algorithm) -> Result<&PublicKey, AuthError> {
        let key = match id {
            Some(id) => self.keys.iter().find(|key| key.id.as_deref() == Some(id)),
            None if self.keys.len() == 1 => self.keys.first(),
            None => None,
        };
        let key = key.ok_or(AuthError::SigningKey)?;
        // The key decides which algorithm it is for, and not the token.
        let fits = key.key.family() == algorithm.family()
            && key.algorithm.is_none_or(|of_key| of_key == algorithm);
        fits.then_some(key).ok_or(AuthError::Algorithm)
    }
}

impl PublicKey {
    /// Reads an entry of a file. A key that was there before stays the one that it was.
    fn read(entry: Value, earlier: Option<&Self>) -> Option<Self> {
        let jwk = Jwk::deserialize(&entry).ok()?;
        let common = &jwk.common;
        if common.public_key_use == Some(PublicKeyUse::Encryption) {
            return None;
        }
        let algorithm = match common.key_algorithm {
            None => None,
            Some(named) => Some(Algorithm::try_from(named).ok()?),
        };
        let key = DecodingKey::from_jwk(&jwk).ok()?;
        let is_public = key.family() != AlgorithmFamily::Hmac;
        let (gone, guard) = if let Some(earlier) = earlier {
            (earlier.gone.clone(), Arc::clone(&earlier.guard))
        } else {
            let gone = CancellationToken::new();
            (gone.clone(), Arc::new(gone.drop_guard()))
        };
        is_public.then(|| Self {
            id: common.key_id.clone(),
            algorithm,
            key,
            entry,
            gone,
            guard,
        })
    }
}

/// A claim by its name, or by the JSON pointer to it: `/realm_access/roles`.
fn claim<'a>(claims: &'a Value, name: &str) -> Option<&'a Value> {
    if name.starts_with('/') {
        claims.pointer(name)
    } else {
        claims.get(name)
    }
}

/// The words of a claim: an array of strings, or one string with blanks between them, as `scope` is.
fn words(claim: Option<&Value>) -> Vec<&str> {
    match claim {
        Some(Value::Array(items)) => items.iter().filter_map(Value::as_str).collect(),
        Some(Value::String(text)) => text.split_whitespace().collect(),
        _ => Vec::new(),
    }
}

/// What is no name of a project leads nowhere: it may be meant for other services.
fn projects(claims: &Value, name: &str) -> Result<Projects, AuthError> {
    let words = words(claim(claims, name));
    if words.contains(&Projects::ALL) {
        return Ok(Projects::All);
    }
    let projects: BTreeSet<_> = words
        .iter()
        .filter_map(|word| ProjectId::new(word).ok())
        .collect();
    if projects.is_empty() {
        return Err(AuthError::NoProjects);
    }
    Ok(Projects::Of(projects))
}

fn rights(claims: &Value, name: &str) -> Result<BTreeSet<Right>, AuthError> {
    let words = words(claim(claims, name));
    let right = |word: &&str| Right::by_name(word.strip_prefix(SCOPE_PREFIX).unwrap_or(word));
    let rights: BTreeSet<_> = words.iter().filter_map(right).collect();
    if rights.is_empty() {
        return Err(AuthError::NoRights);
    }
    Ok(rights)
}

/// A time in seconds, which may have a fraction, as milliseconds.
fn time(claims: &Value, name: &str) -> Option<i64> {
    let seconds = claims.get(name)?;
    if let Some(seconds) = seconds.as_i64() {
        return seconds.checked_mul(1_000);
    }
    let millis = seconds.as_f64()? * 1_000.0;
    #[expect(clippy::cast_possible_truncation, reason = "checked to be in range")]
    (millis.abs() < 9.0e15).then_some(millis as i64)
}
