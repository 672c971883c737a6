//! The configured upstreams and their errors.

use std::error::Error;
use std::io;

use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderValue, Uri};
use palimpsest_settings::{ProviderCompaction, UpstreamConfig, UpstreamsConfig};

use super::held_key::{HeldKey, KeyError};
use super::route::Api;

/// The upstreams of all APIs.
#[derive(Debug)]
pub(crate) struct Upstreams {
    anthropic: Upstream,
    openai: Upstream,
}

impl Upstreams {
    pub(crate) fn of(config: &UpstreamsConfig) -> Result<Self, http::Error> {
        Ok(Self {
            anthropic: Upstream::of(&config.anthropic, Api::Anthropic)?,
            openai: Upstream::of(&config.openai, Api::OpenAi)?,
        })
    }

    /// Fails if a held key cannot be read.
    pub(crate) async fn check_keys(&self) -> Result<(), KeyError> {
        for upstream in [&self.anthropic, &self.openai] {
            if let Some(key) = &upstream.key {
                key.read().await?;
            }
        }
        Ok(())
    }

    /// Returns the upstream of an API.
    pub(crate) fn get(&self, api: Api) -> &Upstream {
        match api {
            Api::Anthropic => &self.anthropic,
            Api::OpenAi => &self.openai,
        }
    }
}

/// The address of an upstream.
#[derive(Debug)]
pub(crate) struct Upstream {
    scheme: Scheme,
    authority: Authority,
    /// The header `host` of requests.
    pub(crate) host: HeaderValue,
    /// The path of the base URL, without a slash at its end.
    prefix: String,
    /// The key that the gateway holds. `None` if callers send keys of their own.
    pub(crate) key: Option<HeldKey>,
    /// The handling of requests for a compaction.
    pub(crate) compaction: ProviderCompaction,
}

impl Upstream {
    fn of(config: &UpstreamConfig, api: Api) -> Result<Self, http::Error> {
        let uri: Uri = config.base_url.as_str().parse()?;
        let parts = uri.into_parts();
        let authority = match parts.authority {
            Some(authority) => authority,
            // An empty text is no authority, so a base URL without a host fails here.
            None => Authority::try_from("")?,
        };
        let path = parts.path_and_query.as_ref().map_or("", PathAndQuery::path);
        Ok(Self {
            scheme: parts.scheme.unwrap_or(Scheme::HTTPS),
            host: HeaderValue::from_str(authority.as_str())?,
            authority,
            prefix: path.trim_end_matches('/').to_owned(),
            key: HeldKey::of(config, api),
            compaction: config.compaction,
        })
    }

    /// Returns the host and the port.
    pub(crate) fn server(&self) -> (Box<str>, u16) {
        let usual = if self.scheme == Scheme::HTTP { 80 } else { 443 };
        let port = self.authority.port_u16().unwrap_or(usual);
        (self.authority.host().into(), port)
    }

    /// Returns the address of a request with the given target. The host of the target is ignored.
    pub(crate) fn uri(&self, target: &Uri) -> Result<Uri, http::Error> {
        let target = target.path_and_query().cloned();
        let target = target.unwrap_or_else(|| PathAndQuery::from_static("/"));
        let target = if self.prefix.is_empty() {
            target
        } else {
            PathAndQuery::try_from(format!("{}{target}", self.prefix))?
        };
        Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.clone())
            .path_and_query(target)
            .build()
    }
}

/// Returns true if the cause of an error is a reset of the connection.
pub(crate) fn is_reset(error: &(dyn Error + 'static)) -> bool {
    io_kind(error) == Some(io::ErrorKind::ConnectionReset)
}

/// Returns the kind of the I/O error that caused an error.
pub(crate) fn io_kind(error: &(dyn Error + 'static)) -> Option<io::ErrorKind> {
    let (mut kind, mut cause) = (None, Some(error));
    while let Some(error) = cause {
        cause = error.source();
        // hyper wraps the error of a socket several times, so the innermost kind counts.
        if let Some(error) = error.downcast_ref::<io::Error>() {
            kind = Some(error.kind());
            // `source` of an I/O error omits the error that it wraps.
            if let Some(inner) = error.get_ref() {
                cause = Some(inner);
            }
        }
    }
    kind
}

/// Returns the text of the innermost error, which names the failure.
pub(crate) fn root_cause(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use palimpsest_settings::GatewayConfig;

    use super::*;

    #[test]
    fn a_target_follows_the_path_of_the_base_url() {
        let check = |prefix: &str, target: &str, expected: &str| {
            let config = GatewayConfig::default().upstreams;
            let mut upstream = Upstream::of(&config.anthropic, Api::Anthropic).unwrap();
            upstream.prefix = prefix.to_owned();
            let uri = upstream.uri(&target.parse().unwrap()).unwrap();
            assert_eq!(uri, expected);
        };
        check(
            "",
            "/v1/messages?a=%2f",
            "https://api.anthropic.com/v1/messages?a=%2f",
        );
        check(
            "/api",
            "/v1/messages",
            "https://api.anthropic.com/api/v1/messages",
        );
        check("", "http://evil.example/v1", "https://api.anthropic.com/v1");
    }

    #[test]
    fn the_cause_of_an_error_is_found() {
        let reset = io::Error::from(io::ErrorKind::ConnectionReset);
        assert!(is_reset(&io::Error::other(reset)));
        assert!(!is_reset(&io::Error::from(io::ErrorKind::UnexpectedEof)));
    }
}
