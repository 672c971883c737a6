//! Local verification of JWTs against the issuer's public keys in a JWKS file.
//!
//! `jsonwebtoken` verifies signature, issuer and audience. Expiry and start are compared here, because the library
//! would read the system clock instead of the server's clock.

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
use super::grant::{Grant, Principal, ProjectSet, Right};
use super::token_cache::{TokenCache, digest_of};

/// The maximum number of keys in a file.
const MAX_KEYS: usize = 1_000;
/// The optional prefix of right names, which separates them from scopes of other services.
const SCOPE_PREFIX: &str = "palimpsest:";
/// The maximum number of verified tokens in the cache.
const TOKEN_CACHE_SIZE: usize = 4_096;
/// The maximum number of characters of a subject in the log.
const MAX_SUBJECT_CHARS: usize = 100;

/// The required contents of a token.
#[derive(Debug, Clone)]
pub(super) struct TokenRules {
    issuer: String,
    audience: String,
    skew_ms: u64,
    projects_claim: String,
    rights_claim: String,
}

impl TokenRules {
    /// Creates the rules from validated settings, in which a JWKS file implies an issuer and an audience.
    pub(super) fn of(config: &JwtConfig) -> Self {
        let text = |text: &Option<palimpsest_settings::PlainText>| {
            text.as_ref()
                .map_or("", palimpsest_settings::PlainText::as_str)
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

/// The issuer's keys from one version of the file, with a cache of verified tokens.
#[derive(Debug)]
pub(super) struct Jwks {
    keys: Vec<PublicKey>,
    seen: Mutex<TokenCache<Arc<Principal>>>,
}

/// A JWKS with unparsed keys, so that an entry of an unknown type does not invalidate the others.
#[derive(Deserialize)]
struct KeySet {
    keys: Vec<Value>,
}

struct PublicKey {
    id: Option<String>,
    algorithm: Option<Algorithm>,
    key: DecodingKey,
    /// The unparsed entry in the file.
    entry: Value,
    /// Cancelled when the last version of the file with this key is dropped. Tokens signed by the key end then.
    revoked: CancellationToken,
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
    /// Parses the text of a file. Entries of unsupported types are ignored, as RFC 7517 requires.
    ///
    /// `before` is the previous version. Fails if no supported key is left or if the file has too many keys.
    pub(super) fn read(text: &[u8], before: Option<&Self>) -> Result<Self, String> {
        let set: KeySet = serde_json::from_slice(text)
            .map_err(|error| format!("line {}: it is not a JWKS", error.line()))?;
        let known = |entry: Value| {
            // The whole entry is compared, because a new key under an old id must not keep the tokens of the old key.
            let earlier = before.and_then(|before| before.keys.iter().find(|it| it.entry == entry));
            PublicKey::read(entry, earlier)
        };
        let keys: Vec<_> = set.keys.into_iter().filter_map(known).collect();
        match keys.len() {
            0 => Err("it has no public key of RSA, an elliptic curve or Ed25519".to_owned()),
            1..=MAX_KEYS => Ok(Self {
                keys,
                seen: Mutex::new(TokenCache::new(TOKEN_CACHE_SIZE)),
            }),
            _ => Err(format!("it has more than {MAX_KEYS} keys")),
        }
    }

    /// Returns the number of keys.
    pub(super) fn count(&self) -> usize {
        self.keys.len()
    }

    /// Verifies a token and returns its principal.
    pub(super) fn principal(
        &self,
        token: &str,
        rules: &TokenRules,
        now: Timestamp,
    ) -> Result<Arc<Principal>, AuthError> {
        let digest = digest_of(token);
        let lock = || self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        // A signature check is expensive, so verified tokens are cached by their digest.
        let seen = lock().get(&digest);
        if let Some(principal) = seen {
            // A cached token can expire between two calls, so only the expiry is checked again.
            return if principal.is_expired(now) {
                Err(AuthError::Expired)
            } else {
                Ok(principal)
            };
        }
        // The signature is verified without the lock, so that other calls do not wait for it.
        let principal = Arc::new(self.checked(token, rules, now)?);
        lock().put(digest, Arc::clone(&principal));
        Ok(principal)
    }

    fn checked(
        &self,
        token: &str,
        rules: &TokenRules,
        now: Timestamp,
    ) -> Result<Principal, AuthError> {
        let (claims, gone) = self.signed(token, rules)?;
        let skew = i64::try_from(rules.skew_ms).unwrap_or(i64::MAX);
        // The skew extends the validity on both sides. The cached principal contains the extended expiry.
        let exp = time(&claims, "exp").ok_or(AuthError::NoExpiry)?;
        let expires = Timestamp::from_millis(exp.saturating_add(skew));
        if expires <= now {
            return Err(AuthError::Expired);
        }
        // A start of a wrong type is an error. Ignoring it would accept the token before its start.
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
        // The subject is chosen by the issuer or the user, so it is sanitized for the log.
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

    /// Verifies signature, issuer and audience. Returns the claims and the cancellation token of the signing key.
    fn signed(
        &self,
        token: &str,
        rules: &TokenRules,
    ) -> Result<(Value, &CancellationToken), AuthError> {
        // An unknown algorithm, including `none`, already fails here.
        let header = decode_header(token).map_err(|_| AuthError::MalformedToken)?;
        // With HMAC, a public key could be misused as the shared secret of a forged token.
        if header.alg.family() == AlgorithmFamily::Hmac {
            return Err(AuthError::Algorithm);
        }
        // RFC 7515 requires the rejection of tokens with critical extensions that are not understood.
        if header.crit.is_some() {
            return Err(AuthError::MalformedToken);
        }
        let key = self.key(header.kid.as_deref(), header.alg)?;
        let mut validation = Validation::new(header.alg);
        // The times are checked by the caller, against the server's clock.
        validation.validate_exp = false;
        validation.validate_nbf = false;
        validation.set_issuer(&[&rules.issuer]);
        validation.set_audience(&[&rules.audience]);
        // `jsonwebtoken` compares a claim only if it is present. Without this list, a token that lacks issuer or
        // audience would pass.
        validation.set_required_spec_claims(&["iss", "aud"]);
        let decoded = decode::<Value>(token, &key.key, &validation);
        let decoded = decoded.map(|token| (token.claims, &key.revoked));
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

    /// Returns the signing key of a token. A token without a key id is accepted only if the file has a single key.
    fn key(&self, id: Option<&str>, algorithm: Algorithm) -> Result<&PublicKey, AuthError> {
        let key = match id {
            Some(id) => self.keys.iter().find(|key| key.id.as_deref() == Some(id)),
            None if self.keys.len() == 1 => self.keys.first(),
            None => None,
        };
        let key = key.ok_or(AuthError::SigningKey)?;
        // The key determines the algorithm. A token that could choose it would allow algorithm confusion attacks.
        let fits = key.key.family() == algorithm.family()
            && key.algorithm.is_none_or(|of_key| of_key == algorithm);
        fits.then_some(key).ok_or(AuthError::Algorithm)
    }
}

impl PublicKey {
    /// Parses an entry of a file, or returns `None` for an unsupported one.
    ///
    /// An unchanged key keeps the cancellation token of `earlier`, so that its tokens stay valid.
    fn read(entry: Value, earlier: Option<&Self>) -> Option<Self> {
        let jwk = Jwk::deserialize(&entry).ok()?;
        let common = &jwk.common;
        // Encryption keys never sign tokens.
        if common.public_key_use == Some(PublicKeyUse::Encryption) {
            return None;
        }
        let algorithm = match common.key_algorithm {
            None => None,
            Some(named) => Some(Algorithm::try_from(named).ok()?),
        };
        let key = DecodingKey::from_jwk(&jwk).ok()?;
        // A symmetric key in a JWKS would be a shared secret in a public file.
        let is_public = key.family() != AlgorithmFamily::Hmac;
        let (gone, guard) = if let Some(earlier) = earlier {
            (earlier.revoked.clone(), Arc::clone(&earlier.guard))
        } else {
            let gone = CancellationToken::new();
            (gone.clone(), Arc::new(gone.drop_guard()))
        };
        is_public.then(|| Self {
            id: common.key_id.clone(),
            algorithm,
            key,
            entry,
            revoked: gone,
            guard,
        })
    }
}

/// Returns a claim by its name or by its JSON pointer, for example `/realm_access/roles`.
fn find_claim<'a>(claims: &'a Value, name: &str) -> Option<&'a Value> {
    if name.starts_with('/') {
        claims.pointer(name)
    } else {
        claims.get(name)
    }
}

/// Returns the words of a claim: an array of strings, or a string with blanks as separators, like `scope`.
fn claim_values(claim: Option<&Value>) -> Vec<&str> {
    match claim {
        Some(Value::Array(items)) => items.iter().filter_map(Value::as_str).collect(),
        Some(Value::String(text)) => text.split_whitespace().collect(),
        _ => Vec::new(),
    }
}

/// Parses the projects of a token. Words that are not project names are ignored, because they may belong to other
/// services.
fn projects(claims: &Value, name: &str) -> Result<ProjectSet, AuthError> {
    let words = claim_values(find_claim(claims, name));
    if words.contains(&ProjectSet::ALL) {
        return Ok(ProjectSet::All);
    }
    let projects: BTreeSet<_> = words
        .iter()
        .filter_map(|word| ProjectId::new(word).ok())
        .collect();
    if projects.is_empty() {
        return Err(AuthError::NoProjects);
    }
    Ok(ProjectSet::Of(projects))
}

fn rights(claims: &Value, name: &str) -> Result<BTreeSet<Right>, AuthError> {
    let words = claim_values(find_claim(claims, name));
    let right = |word: &&str| Right::by_name(word.strip_prefix(SCOPE_PREFIX).unwrap_or(word));
    let rights: BTreeSet<_> = words.iter().filter_map(right).collect();
    if rights.is_empty() {
        return Err(AuthError::NoRights);
    }
    Ok(rights)
}

/// Returns a time claim in milliseconds. The claim is in seconds and may have a fraction.
fn time(claims: &Value, name: &str) -> Option<i64> {
    let seconds = claims.get(name)?;
    // Whole seconds are converted exactly. RFC 7519 also allows fractions, which need a float.
    if let Some(seconds) = seconds.as_i64() {
        return seconds.checked_mul(1_000);
    }
    let millis = seconds.as_f64()? * 1_000.0;
    // Below 2^53 (about 9.007e15), a float represents every integer.
    #[expect(clippy::cast_possible_truncation, reason = "checked to be in range")]
    (millis.abs() < 9.0e15).then_some(millis as i64)
}
