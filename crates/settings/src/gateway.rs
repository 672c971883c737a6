//! Settings of the HTTP gateway.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;

use url::Url;

use crate::Config;
use crate::summarizer::VariableName;
use crate::value::{RawValue, SettingValue, choices, quoted, with_defaults};

with_defaults! {
    /// The HTTP gateway, which forwards requests of agents to model providers and manages their conversations.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct GatewayConfig {
        /// True if the gateway is on. A process with the role `worker` never opens it. Default: false.
        pub enabled: bool,
        /// Address of the gateway. Default: `127.0.0.1:50053`.
        pub listen: SocketAddr = SocketAddr::from((Ipv4Addr::LOCALHOST, 50053)),
        /// True if a non-loopback address is allowed. The port has no TLS. Default: false.
        pub listen_anywhere: bool,
        /// The providers that requests are forwarded to.
        pub upstreams: UpstreamsConfig,
        /// True if sessions take the conversations of requests. False only forwards them. Default: true.
        pub manage: bool = true,
        /// True if a request is rejected whose conversation no session takes. False forwards it. Default: false.
        pub require_session: bool,
        /// Maximum open connections. Default: 4,096.
        pub max_connections: usize = 4_096,
        /// Maximum requests in flight, from the head of the request to the end of the response. Default: 2,048.
        pub max_streams: usize = 2_048,
        /// Maximum time in milliseconds that a connection waits for the head of a request. Default: 300,000.
        pub idle_timeout_ms: u64 = 300_000,
        /// Maximum time in milliseconds without progress in the body of a request. Default: 30,000.
        pub stall_timeout_ms: u64 = 30_000,
        /// Timeout of connecting to an upstream in milliseconds, TLS included. Default: 10,000.
        pub connect_timeout_ms: u64 = 10_000,
        /// Maximum time in milliseconds that a request waits for its session. A later one is forwarded unmanaged.
        /// Default: 5,000.
        pub prepare_timeout_ms: u64 = 5_000,
        /// Maximum body of a request that a session takes, in bytes. A larger one is forwarded unmanaged.
        /// Default: 32 MiB.
        pub max_request_bytes: usize = 32 << 20,
        /// Maximum bodies of all requests that sessions take, in bytes. Above it, requests are forwarded unmanaged.
        /// Default: 512 MiB.
        pub max_request_bytes_in_flight: usize = 512 << 20,
        /// Maximum content of one response that is read, in bytes. A larger one is forwarded unread. Default: 32 MiB.
        pub max_response_bytes: usize = 32 << 20,
        /// Maximum content of all responses that are read, in bytes. Above it, responses are forwarded unread.
        /// Default: 256 MiB.
        pub max_response_bytes_in_flight: usize = 256 << 20,
        /// Maximum time in milliseconds that the last event of a response waits for its record. Default: 250.
        pub hold_timeout_ms: u64 = 250,
    }

    /// The providers that requests are forwarded to.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct UpstreamsConfig {
        /// The upstream of the Anthropic API.
        pub anthropic: UpstreamConfig = UpstreamConfig::of("https://api.anthropic.com"),
        /// The upstream of the OpenAI API.
        pub openai: UpstreamConfig = UpstreamConfig::of("https://api.openai.com"),
    }
}

choices! {
    /// The place in which a request of the provider's API to shorten a conversation is served.
    ProviderCompaction {
        "The upstream serves it." Forwarded = "forwarded",
        "The session serves it, and the upstream gets no such request." Served = "served"
    }
}

/// An upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamConfig {
    /// URL in front of the paths of requests.
    pub base_url: UpstreamUrl,
    /// Environment variable with the API key that the gateway holds for its callers.
    pub api_key_env: Option<VariableName>,
    /// File with this API key.
    pub api_key_file: Option<PathBuf>,
    /// The place in which requests of the provider's API to shorten a conversation are served. Default: `forwarded`.
    pub compaction: ProviderCompaction,
}

impl UpstreamConfig {
    fn of(url: &'static str) -> Self {
        Self {
            base_url: UpstreamUrl::parse(url).expect("the default URLs are valid"),
            api_key_env: None,
            api_key_file: None,
            compaction: ProviderCompaction::Forwarded,
        }
    }

    /// Returns true if the gateway holds the key of the provider. Otherwise each caller sends a key of its own.
    pub fn holds_key(&self) -> bool {
        self.api_key_env.is_some() || self.api_key_file.is_some()
    }
}

impl UpstreamsConfig {
    /// Returns true if the gateway holds the key of any provider.
    pub fn hold_key(&self) -> bool {
        self.anthropic.holds_key() || self.openai.holds_key()
    }
}

impl GatewayConfig {
    /// Returns the settings of held keys whose environment variable is not set, with the variable. Empty if the gateway
    /// is off.
    pub fn missing_keys(&self, is_set: impl Fn(&str) -> bool) -> Vec<(&'static str, &str)> {
        let upstreams = [
            (
                "gateway.upstreams.anthropic.api_key_env",
                &self.upstreams.anthropic,
            ),
            (
                "gateway.upstreams.openai.api_key_env",
                &self.upstreams.openai,
            ),
        ];
        let used = upstreams.into_iter().filter(|_| self.enabled);
        let variables =
            used.filter_map(|(key, upstream)| Some((key, upstream.api_key_env.as_ref()?.as_str())));
        variables
            .filter(|(_, variable)| !is_set(variable))
            .collect()
    }
}

/// URL of an upstream: http or https, without user, query and fragment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamUrl(Url);

impl UpstreamUrl {
    /// Parses a URL. Returns `None` if it is not valid here.
    pub fn parse(text: &str) -> Option<Self> {
        let url = Url::parse(text.trim()).ok()?;
        let is_valid = matches!(url.scheme(), "http" | "https")
            && url.has_host()
            && url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none();
        is_valid.then_some(Self(url))
    }

    /// The URL as text. Its host is ASCII.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl SettingValue for UpstreamUrl {
    fn read(raw: &RawValue, _: Option<RangeInclusive<u64>>) -> Result<Self, String> {
        // The error does not show the value, because a URL can contain a password.
        raw.text().and_then(Self::parse).ok_or_else(|| {
            "must be an http or https URL without user name, password, query and fragment, such as \
             \"https://api.anthropic.com\""
                .to_owned()
        })
    }

    fn toml(&self) -> Option<String> {
        // `Url` adds a slash to an address without a path.
        Some(quoted(self.as_str().trim_end_matches('/')))
    }
}

/// Checks the keys of the gateway, and its address, if it is on.
pub(crate) fn check(config: &Config, check: &mut impl FnMut(bool, &[&'static str], &str)) {
    let gateway = &config.gateway;
    let upstreams = &gateway.upstreams;
    check(
        upstreams.anthropic.api_key_env.is_none() || upstreams.anthropic.api_key_file.is_none(),
        &[
            "gateway.upstreams.anthropic.api_key_env",
            "gateway.upstreams.anthropic.api_key_file",
        ],
        "is set together with gateway.upstreams.anthropic.api_key_file: remove one of them",
    );
    check(
        upstreams.openai.api_key_env.is_none() || upstreams.openai.api_key_file.is_none(),
        &[
            "gateway.upstreams.openai.api_key_env",
            "gateway.upstreams.openai.api_key_file",
        ],
        "is set together with gateway.upstreams.openai.api_key_file: remove one of them",
    );
    let base_urls = [
        (
            "gateway.upstreams.anthropic.base_url",
            &upstreams.anthropic.base_url,
        ),
        (
            "gateway.upstreams.openai.base_url",
            &upstreams.openai.base_url,
        ),
    ];
    for (key, base_url) in base_urls {
        let ends_with_version = base_url.as_str().trim_end_matches('/').ends_with("/v1");
        check(
            !ends_with_version,
            &[key],
            "must not end with /v1, because the path of each request begins with it: remove /v1",
        );
    }
    if !gateway.enabled {
        return;
    }
    check(
        gateway.listen.ip().is_loopback() || gateway.listen_anywhere,
        &["gateway.listen", "gateway.listen_anywhere"],
        "can be reached by other machines, and the gateway has no TLS: choose a loopback address such as 127.0.0.1. If \
         a proxy in front of the gateway has TLS, and callers are authenticated by it or by auth.keys_file, set \
         gateway.listen_anywhere = true",
    );
    check(
        // `listen_anywhere` is no exception: a proxy that authenticates callers is easy to bypass inside a network.
        gateway.listen.ip().is_loopback() || config.auth.is_on() || !upstreams.hold_key(),
        &[
            "gateway.listen",
            "gateway.upstreams.anthropic.api_key_env",
            "gateway.upstreams.anthropic.api_key_file",
            "gateway.upstreams.openai.api_key_env",
            "gateway.upstreams.openai.api_key_file",
        ],
        "can be reached by other machines, and the gateway holds the key of a provider, which every caller could use: \
         set auth.keys_file (`palimpsest keys create` creates the file) or auth.jwt.jwks_file, choose a loopback address \
         such as 127.0.0.1, or remove the settings api_key_env and api_key_file of gateway.upstreams",
    );
    let others = [
        ("listen", config.listen),
        ("admin.listen", config.admin.listen),
    ];
    for (key, other) in others {
        check(
            // Port 0 selects any free port, so two listeners never collide.
            gateway.listen.port() == 0 || gateway.listen != other,
            &["gateway.listen", key],
            "is also the address of another port: use another one",
        );
    }
}
