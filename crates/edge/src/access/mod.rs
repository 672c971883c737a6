//! Access control: credentials, grants and the required right of each rpc.
//!
//! The gRPC server authenticates each call, and authorizes it before its request is decoded. Its handlers repeat the
//! authorization for the decoded request. This module has no dependency on gRPC.

mod grant;
mod jwt;
pub mod key;
pub mod keyfile;
mod keys;
mod reload;
mod resource_scope;
mod rights;
mod token_cache;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use palimpsest_core::ids::Timestamp;
use palimpsest_engine::clock::Clock;
use palimpsest_settings::AuthConfig;
use tokio_util::sync::CancellationToken;

use self::jwt::{Jwks, TokenRules};
use self::keys::KeyRing;

pub use grant::{Grant, Principal, ProjectSet, Right};
pub use reload::{LoadError, Reloadable};
pub use resource_scope::{ResourceScope, authorize, check_right};
pub use rights::{RequiredAccess, required_access};

/// The maximum size of a credential, in bytes.
const MAX_CREDENTIAL_BYTES: usize = 16 * 1024;

/// The reason for rejecting a credential. It is returned to the caller and contains nothing that helps to guess one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each says itself")]
pub enum AuthError {
    #[error("the call has no credential")]
    Missing,
    #[error("the call has several credentials")]
    Several,
    #[error("the credential is not of the form `Bearer <API key or JWT>`")]
    Scheme,
    #[error("the API key is truncated or mistyped: its checksum is wrong")]
    MalformedKey,
    #[error("the API key is unknown")]
    UnknownKey,
    #[error("the API key was revoked")]
    Revoked,
    #[error("the credential has expired")]
    Expired,
    #[error("the credential is an API key, and this server accepts JWTs only")]
    KeysOff,
    #[error("the credential is no API key, and this server does not accept JWTs")]
    JwtOff,
    #[error("the token is not a supported JWT")]
    MalformedToken,
    #[error("the algorithm of the token does not match its key, or is not a public-key algorithm")]
    Algorithm,
    #[error("the signing key of the token is unknown")]
    SigningKey,
    #[error("the signature of the token is invalid")]
    Signature,
    #[error("the token is not from the trusted issuer")]
    Issuer,
    #[error("the token is for another audience")]
    Audience,
    #[error("the token has no expiry")]
    NoExpiry,
    #[error("the token is not valid yet")]
    NotYetValid,
    #[error("the token names no project")]
    NoProjects,
    #[error("the token names no right")]
    NoRights,
}

/// An accepted credential and the right that the call requires.
#[derive(Debug, Clone)]
pub struct Authentication {
    /// The authenticated principal.
    pub principal: Arc<Principal>,
    /// The required right. `None` for a method outside of the contract.
    pub right: Option<Right>,
}

/// The configured credentials. An instance exists only if authentication is on.
#[derive(Debug)]
pub struct Authenticator {
    keys: Option<Arc<Reloadable<KeyRing>>>,
    jwt: Option<(TokenRules, Arc<Reloadable<Jwks>>)>,
    public_reflection: bool,
    clock: Arc<dyn Clock>,
    rejected_count: AtomicU64,
}

impl Authenticator {
    /// Loads the credential files. Returns `None` if authentication is off.
    pub fn open(config: &AuthConfig, clock: Arc<dyn Clock>) -> Result<Option<Self>, LoadError> {
        if !config.is_on() {
            return Ok(None);
        }
        let keys = config.keys_file.clone().map(|path| {
            // `load` gets one path, so `files` has exactly one element.
            let read =
                |files: &[Vec<u8>], before: Option<&KeyRing>| KeyRing::read(&files[0], before);
            Reloadable::load("auth.keys_file", vec![path], read)
        });
        let jwks = config.jwt.jwks_file.clone().map(|path| {
            let read = |files: &[Vec<u8>], before: Option<&Jwks>| Jwks::read(&files[0], before);
            Reloadable::load("auth.jwt.jwks_file", vec![path], read)
        });
        // Unusable files fail the start. After the start, the previous contents stay in force instead.
        let (keys, jwks) = (keys.transpose()?, jwks.transpose()?);
        tracing::info!(
            api_keys = keys.as_ref().map(|keys| keys.current().count()),
            jwt_keys = jwks.as_ref().map(|jwks| jwks.current().count()),
            "authentication is on"
        );
        Ok(Some(Self {
            keys,
            jwt: jwks.map(|jwks| (TokenRules::of(&config.jwt), jwks)),
            public_reflection: config.public_reflection,
            clock,
            rejected_count: AtomicU64::new(0),
        }))
    }

    /// Reloads changed files every `every`, until `stop`.
    pub fn watch(&self, every: Duration, stop: &CancellationToken) {
        if let Some(keys) = &self.keys {
            tokio::spawn(Arc::clone(keys).watch(every, stop.clone()));
        }
        if let Some((_, jwks)) = &self.jwt {
            tokio::spawn(Arc::clone(jwks).watch(every, stop.clone()));
        }
    }

    /// Authenticates a call. Returns `None` for a method that requires no credential.
    pub fn authenticate(
        &self,
        path: &str,
        headers: &http::HeaderMap,
    ) -> Result<Option<Authentication>, AuthError> {
        let right = match required_access(path, self.public_reflection) {
            RequiredAccess::Nothing => return Ok(None),
            RequiredAccess::Credential => None,
            RequiredAccess::Right(right) => Some(right),
        };
        Ok(Some(Authentication {
            principal: self.principal(credential(headers))?,
            right,
        }))
    }

    /// Returns the principal of a credential: an API key or a JWT. Counts a call without a valid credential.
    pub fn principal(&self, given: Result<&str, AuthError>) -> Result<Arc<Principal>, AuthError> {
        let principal = given.and_then(|credential| self.valid_principal(credential.trim()));
        if principal.is_err() {
            self.rejected_count.fetch_add(1, Ordering::Relaxed);
        }
        principal
    }

    fn valid_principal(&self, credential: &str) -> Result<Arc<Principal>, AuthError> {
        if credential.is_empty() || credential.len() > MAX_CREDENTIAL_BYTES {
            return Err(AuthError::Scheme);
        }
        let now = self.clock.now();
        // A JWT never begins with this prefix, because its first part is Base64 of a JSON object.
        if credential.starts_with(key::PREFIX) {
            let keys = self.keys.as_ref().ok_or(AuthError::KeysOff)?;
            return keys.current().principal(credential, now);
        }
        let (rules, jwks) = self.jwt.as_ref().ok_or(AuthError::JwtOff)?;
        jwks.current().principal(credential, rules, now)
    }

    /// Returns the number of calls without a valid credential.
    pub fn rejected_count(&self) -> u64 {
        self.rejected_count.load(Ordering::Relaxed)
    }

    /// Returns the number of files whose current contents are invalid, so that the previous contents stay in force.
    pub fn stale(&self) -> usize {
        let keys = self.keys.as_ref().is_some_and(|keys| keys.is_stale());
        let jwks = self.jwt.as_ref().is_some_and(|(_, jwks)| jwks.is_stale());
        usize::from(keys) + usize::from(jwks)
    }

    /// Returns the current time of the server's clock.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

/// Returns the single credential of a call: `authorization: Bearer …` or `x-api-key: …`.
fn credential(headers: &http::HeaderMap) -> Result<&str, AuthError> {
    // All values are read, because `get` would return the first of several credentials and hide the others.
    let bearer = headers.get_all(http::header::AUTHORIZATION).iter();
    let plain = headers.get_all("x-api-key").iter();
    let given = bearer.map(|value| (value, true));
    let mut given = given.chain(plain.map(|value| (value, false)));
    let (value, is_bearer) = given.next().ok_or(AuthError::Missing)?;
    // Two credentials are ambiguous: a proxy in front of this server could authenticate the other one.
    if given.next().is_some() {
        return Err(AuthError::Several);
    }
    let text = value.to_str().map_err(|_| AuthError::Scheme)?.trim();
    let text = if is_bearer {
        let (scheme, rest) = text.split_once(' ').ok_or(AuthError::Scheme)?;
        let rest = scheme.eq_ignore_ascii_case("bearer").then(|| rest.trim());
        rest.ok_or(AuthError::Scheme)?
    } else {
        text
    };
    if text.is_empty() || text.len() > MAX_CREDENTIAL_BYTES {
        return Err(AuthError::Scheme);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn a_call_with_several_credentials_is_rejected() {
        let headers = |all: &[(&'static str, &'static str)]| -> HeaderMap {
            let pair = |&(name, value)| {
                (
                    HeaderName::from_static(name),
                    HeaderValue::from_static(value),
                )
            };
            all.iter().map(pair).collect()
        };
        let check = |all: &[_], expected: Result<&str, AuthError>| {
            assert_eq!(credential(&headers(all)), expected, "{all:?}");
        };
        check(&[], Err(AuthError::Missing));
        check(&[("authorization", "Bearer k")], Ok("k"));
        check(&[("authorization", "bearer  k ")], Ok("k"));
        check(&[("x-api-key", "k")], Ok("k"));
        check(&[("authorization", "Basic k")], Err(AuthError::Scheme));
        check(&[("authorization", "k")], Err(AuthError::Scheme));
        check(&[("authorization", "Bearer ")], Err(AuthError::Scheme));
        let twice = [("authorization", "Bearer k"), ("x-api-key", "k")];
        check(&twice, Err(AuthError::Several));
        let long = format!("Bearer {}", "k".repeat(MAX_CREDENTIAL_BYTES + 1));
        let mut headers = HeaderMap::new();
        headers.insert(http::header::AUTHORIZATION, long.parse().unwrap());
        assert_eq!(credential(&headers), Err(AuthError::Scheme));
    }
}
