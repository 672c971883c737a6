//! Base URLs of the providers: those of the upstreams, and those that the agent gets instead.

use std::net::SocketAddr;

use url::Url;

/// The variable of Anthropic's SDKs and of Claude Code.
pub(super) const ANTHROPIC_VARIABLE: &str = "ANTHROPIC_BASE_URL";
/// The variable of OpenAI's SDKs.
pub(super) const OPENAI_VARIABLE: &str = "OPENAI_BASE_URL";
/// The variable of older OpenAI SDKs, and of LiteLLM.
pub(super) const OLD_OPENAI_VARIABLE: &str = "OPENAI_API_BASE";

/// The version at the end of most base URLs of OpenAI's clients. The setting of the gateway excludes it.
const VERSION: &str = "/v1";

/// The upstream of an API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Upstream {
    /// The flag, variable or file that contains the base URL, for errors.
    pub(super) origin: &'static str,
    /// The value of `gateway.upstreams.*.base_url`. The gateway appends the path of a request.
    pub(super) address: String,
    /// The end of the base URL of clients: `/v1` or nothing.
    suffix: &'static str,
}

impl Upstream {
    /// Takes the base URL of a client of OpenAI, such as `https://host/v1`.
    pub(super) fn openai(origin: &'static str, base_url: &str) -> Self {
        let base_url = base_url.trim().trim_end_matches('/');
        // The suffix moves to the base URL of the agent. The gateway appends the path of a request, so `/v1` is not
        // lost.
        let (address, suffix) = match base_url.strip_suffix(VERSION) {
            Some(address) => (address, VERSION),
            None => (base_url, ""),
        };
        Self {
            origin,
            address: address.to_owned(),
            suffix,
        }
    }

    /// Takes the base URL of a client of Anthropic, such as `https://host`.
    pub(super) fn anthropic(origin: &'static str, base_url: &str) -> Self {
        Self {
            origin,
            address: base_url.trim().trim_end_matches('/').to_owned(),
            suffix: "",
        }
    }
}

/// The upstreams that differ from the providers' own addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Upstreams {
    pub(super) anthropic: Option<Upstream>,
    pub(super) openai: Option<Upstream>,
}

impl Upstreams {
    /// Selects the upstreams: the flags, then the variables of the environment.
    pub(super) fn of(
        anthropic: Option<&str>,
        openai: Option<&str>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Self {
        let from = |name: &'static str| Some((name, variable(name).filter(|url| !url.is_empty())?));
        let anthropic = anthropic
            .map(|url| Upstream::anthropic("--upstream-anthropic", url))
            .or_else(|| {
                from(ANTHROPIC_VARIABLE).map(|(name, url)| Upstream::anthropic(name, &url))
            });
        let openai = openai
            .map(|url| Upstream::openai("--upstream-openai", &with_version(url)))
            .or_else(|| {
                let found = from(OPENAI_VARIABLE).or_else(|| from(OLD_OPENAI_VARIABLE));
                found.map(|(name, url)| Upstream::openai(name, &url))
            });
        Self { anthropic, openai }
    }

    /// Returns the base URLs of clients that send their requests through the gateway.
    pub(super) fn through(&self, gateway: SocketAddr) -> BaseUrls {
        // The paths of OpenAI's own API begin with the version.
        let suffix = self.openai.as_ref().map_or(VERSION, |openai| openai.suffix);
        BaseUrls {
            anthropic: format!("http://{gateway}"),
            openai: format!("http://{gateway}{suffix}"),
        }
    }
}

/// Adds the version to an address without a path. The flag is often given the address of a server.
fn with_version(url: &str) -> String {
    // `Url` gives an address without a path the path `/`.
    let has_path = Url::parse(url.trim()).is_ok_and(|url| url.path() != "/");
    if has_path {
        url.to_owned()
    } else {
        format!("{}{VERSION}", url.trim().trim_end_matches('/'))
    }
}

/// The base URLs that an agent gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BaseUrls {
    /// Clients of Anthropic append `/v1/messages`.
    pub(super) anthropic: String,
    /// Clients of OpenAI append `/chat/completions` or `/responses`.
    pub(super) openai: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(flag: Option<&str>, variable: Option<&str>, address: &str, base_url: &str) {
        let variable = |name: &str| {
            variable
                .filter(|_| name == OPENAI_VARIABLE)
                .map(str::to_owned)
        };
        let upstreams = Upstreams::of(None, flag, variable);
        assert_eq!(
            upstreams.openai.as_ref().map_or("", |it| &it.address),
            address
        );
        let gateway = SocketAddr::from(([127, 0, 0, 1], 7));
        assert_eq!(upstreams.through(gateway).openai, base_url);
    }

    #[test]
    fn requests_reach_the_same_path_as_without_the_gateway() {
        let (versioned, plain) = ("http://127.0.0.1:7/v1", "http://127.0.0.1:7");
        check(None, None, "", versioned);
        // An empty variable counts as unset.
        check(None, Some(""), "", versioned);
        check(None, Some("https://h/v1/"), "https://h", versioned);
        // The path of this provider does not end with `/v1`, so the agent gets no version either.
        check(None, Some("https://h/api/v4"), "https://h/api/v4", plain);
        // Clients send a request to `/chat/completions` of this address.
        check(None, Some("https://h"), "https://h", plain);
        check(
            Some("https://h"),
            Some("https://other/v1"),
            "https://h",
            versioned,
        );
        check(Some("https://h/proxy"), None, "https://h/proxy", plain);
    }

    #[test]
    fn the_base_url_of_anthropic_has_no_version() {
        let variable = |name: &str| (name == ANTHROPIC_VARIABLE).then(|| "https://h/a/".to_owned());
        let upstream = Upstreams::of(None, None, variable).anthropic.unwrap();
        assert_eq!(upstream.address, "https://h/a");
        assert_eq!(upstream.origin, ANTHROPIC_VARIABLE);
        let upstream = Upstreams::of(Some("https://flag"), None, variable).anthropic;
        assert_eq!(upstream.unwrap().address, "https://flag");
    }
}
