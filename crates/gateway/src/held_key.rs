//! The provider's key that the gateway holds for its callers.
//!
//! With a held key, a caller shows only a credential of Palimpsest. All callers then share one account of the provider,
//! so a request that can read or change what others stored there is not one that every caller may send.

use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue, Method};
use palimpsest_settings::UpstreamConfig;
use palimpsest_summarize::SecretSource;
use secrecy::ExposeSecret as _;

use super::route::Api;

/// The resources to which a `POST` runs a model and stores nothing that another caller could find.
const MODEL_CALLS: [&str; 15] = [
    "/messages",
    "/messages/count_tokens",
    "/complete",
    "/chat/completions",
    "/responses",
    "/responses/compact",
    "/responses/input_tokens",
    "/completions",
    "/embeddings",
    "/moderations",
    "/images/generations",
    "/images/edits",
    "/audio/speech",
    "/audio/transcriptions",
    "/audio/translations",
];
/// The resource of the provider's models.
const MODELS: &str = "/models";

/// A key that cannot be used. The text contains the source and never the key.
#[derive(Debug, thiserror::Error)]
#[error("{setting}: {cause}")]
pub(crate) struct KeyError {
    /// The setting of the key.
    pub(crate) setting: String,
    /// The failure.
    pub(crate) cause: String,
}

/// The source of a provider's key, and the header for it.
#[derive(Debug)]
pub(crate) struct HeldKey {
    source: SecretSource,
    setting: String,
    name: HeaderName,
    /// The text before the key.
    scheme: &'static str,
}

/// The header with a key, as the upstream expects it.
#[derive(Debug, Clone)]
pub(crate) struct KeyHeader {
    pub(crate) name: HeaderName,
    pub(crate) value: HeaderValue,
}

impl HeldKey {
    /// Returns the key of an upstream. `None` if callers send keys of their own.
    pub(crate) fn of(config: &UpstreamConfig, api: Api) -> Option<Self> {
        let (source, field) = match (&config.api_key_env, &config.api_key_file) {
            (Some(variable), _) => {
                let variable = variable.as_str().to_owned();
                (SecretSource::Env(variable), "api_key_env")
            }
            (None, Some(path)) => (SecretSource::File(path.clone()), "api_key_file"),
            (None, None) => return None,
        };
        let (name, scheme) = match api {
            Api::Anthropic => (HeaderName::from_static("x-api-key"), ""),
            Api::OpenAi => (AUTHORIZATION, "Bearer "),
        };
        Some(Self {
            source,
            setting: format!("gateway.upstreams.{}.{field}", api.name()),
            name,
            scheme,
        })
    }

    /// Reads the current key, so that a rotated one takes effect with the next request.
    pub(crate) async fn read(&self) -> Result<KeyHeader, KeyError> {
        let error = |cause: String| KeyError {
            setting: self.setting.clone(),
            cause,
        };
        let key = self.source.read().await;
        let key = key.map_err(|cause| error(cause.to_string()))?;
        // Files of secrets often end with a line feed, which a header cannot contain.
        let text = format!("{}{}", self.scheme, key.expose_secret().trim());
        let value = HeaderValue::try_from(text);
        let mut value = value
            .map_err(|_| error("the key has characters that no header can contain".to_owned()))?;
        // A sensitive value is hidden in `Debug` output.
        value.set_sensitive(true);
        Ok(KeyHeader {
            name: self.name.clone(),
            value,
        })
    }
}

/// Returns true if a request runs or describes a model, and concerns nothing that the provider stores for its account.
pub(crate) fn is_model_request(method: &Method, path: &str) -> bool {
    let path = path.strip_prefix("/v1").unwrap_or(path);
    // Only exact paths: a provider could resolve `..` or `%2e%2e` in a longer one.
    if *method == Method::POST {
        return MODEL_CALLS.contains(&path);
    }
    // Other methods change the account, such as `DELETE /v1/models/ft:mine`.
    if *method != Method::GET && *method != Method::HEAD {
        return false;
    }
    let Some(rest) = path.strip_prefix(MODELS) else {
        return false;
    };
    // Ids of models, such as `gpt-5.1:mini`. A `/` or `%` could lead to another resource.
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    match rest.strip_prefix('/') {
        Some(id) => !id.contains("..") && id.bytes().all(is_plain),
        None => rest.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_calls_and_lists_of_models_concern_no_account() {
        let check = |method, path: &str, expected| {
            assert_eq!(is_model_request(&method, path), expected, "{method} {path}");
        };
        for path in MODEL_CALLS {
            check(Method::POST, &format!("/v1{path}"), true);
            check(Method::POST, path, true);
            check(Method::GET, &format!("/v1{path}"), false);
        }
        check(Method::GET, "/v1/models", true);
        check(Method::GET, "/v1/models/gpt-5.1:mini", true);
        check(Method::HEAD, "/models", true);
        check(Method::DELETE, "/v1/models/ft:mine", false);
        for path in [
            "/v1/files",
            "/v1/messages/batches",
            "/v1/organizations/users",
            "/v1/models/../files",
            "/v1/models/..",
            "/v1/models/%2e%2e%2ffiles",
            "/v1/modelsx",
            "/v1/responses/resp_1",
            "/",
        ] {
            check(Method::GET, path, false);
            check(Method::POST, path, false);
        }
    }
}
