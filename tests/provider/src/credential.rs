//! The credential of a request, without the key itself.

use axum::http::HeaderMap;

/// Returns the headers without credentials.
pub(crate) fn without_key(headers: &HeaderMap) -> Vec<(String, String)> {
    let shown = headers
        .iter()
        .filter(|(name, _)| !matches!(name.as_str(), "x-api-key" | "authorization" | "api-key"));
    shown
        .filter_map(|(name, value)| Some((name.to_string(), value.to_str().ok()?.to_owned())))
        .collect()
}

/// The digest of an API key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Credential(pub(crate) String);

impl Credential {
    /// Returns the credential of a request. A request without a key has that of the empty key.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let bearer = header("authorization").and_then(|value| value.strip_prefix("Bearer "));
        let key = header("x-api-key").or(bearer).or(header("api-key"));
        Self::of_key(key.unwrap_or_default())
    }

    pub(crate) fn of_key(key: &str) -> Self {
        let digest = blake3::hash(key.as_bytes()).to_hex();
        Self(digest[..16].to_owned())
    }
}
