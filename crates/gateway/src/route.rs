//! Selects the API, and with it the upstream, of a request.

use http::header::{AUTHORIZATION, UPGRADE};
use http::{HeaderMap, Method};

/// The API of a request. It selects the upstream and the shape of errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Api {
    /// The API of Anthropic.
    Anthropic,
    /// The API of OpenAI, which many other providers offer too.
    OpenAi,
}

/// A request that the gateway answers itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OwnRoute {
    /// `POST /v1/compress`.
    Compress,
    /// `GET /v1/retrieve/{hash}`, with the hash.
    Retrieve(Box<str>),
}

/// The way of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Route {
    /// Forwarded to the upstream of the API.
    Forward(Api),
    /// Answered by the gateway itself.
    Own(OwnRoute),
    /// A request for a WebSocket, which is not forwarded.
    WebSocket(Api),
    /// A request for a tunnel, which belongs to a forward proxy.
    Tunnel,
}

impl Route {
    pub(crate) fn of(method: &Method, path: &str, headers: &HeaderMap) -> Self {
        if *method == Method::CONNECT {
            return Self::Tunnel;
        }
        if let Some(own) = OwnRoute::of(method, path) {
            return Self::Own(own);
        }
        let api = Api::of(path, headers);
        let upgrades = headers.get_all(UPGRADE).iter();
        let mut upgrades = upgrades.flat_map(|value| value.as_bytes().split(|b| *b == b','));
        // Other upgrades, such as that to HTTP/2, are optional. They are ignored, as RFC 9110 permits.
        if upgrades.any(|name| name.trim_ascii().eq_ignore_ascii_case(b"websocket")) {
            return Self::WebSocket(api);
        }
        Self::Forward(api)
    }
}

impl OwnRoute {
    fn of(method: &Method, path: &str) -> Option<Self> {
        match *method {
            Method::POST if path == "/v1/compress" => Some(Self::Compress),
            Method::GET => {
                let hash = path.strip_prefix("/v1/retrieve/")?;
                Some(Self::Retrieve(hash.into()))
            }
            _ => None,
        }
    }
}

impl Api {
    /// Selects the API by the path, then by the headers. Both APIs have paths such as `/v1/models`.
    fn of(path: &str, headers: &HeaderMap) -> Self {
        let path = path.strip_prefix("/v1").unwrap_or(path);
        // Only the first segment counts: `/v1/threads/t/messages` is a path of OpenAI.
        let resource = path.trim_start_matches('/').split('/').next();
        match resource.unwrap_or_default() {
            "messages" | "complete" => Self::Anthropic,
            "chat" | "responses" | "completions" | "embeddings" => Self::OpenAi,
            // Clients of Anthropic can authenticate with `authorization` too, so its own header is examined first.
            _ if headers.contains_key("anthropic-version") => Self::Anthropic,
            _ if headers.contains_key("x-api-key") => Self::Anthropic,
            _ if headers.contains_key(AUTHORIZATION) || headers.contains_key("api-key") => {
                Self::OpenAi
            }
            // Claude Code probes its base URL without a credential.
            _ => Self::Anthropic,
        }
    }

    /// Returns the name of the API in settings, errors and logs.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenAi => "openai",
        }
    }
}

/// The routes of the span of a request. Other paths share a span name, so that callers cannot create names.
const ROUTES: [&str; 7] = [
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/chat/completions",
    "/v1/responses",
    "/v1/responses/compact",
    "/v1/compress",
    RETRIEVE_ROUTE,
];
const RETRIEVE_ROUTE: &str = "/v1/retrieve/{hash}";

/// Returns the route of a path. `None` if the path is only forwarded.
pub(crate) fn of_path(path: &str) -> Option<&'static str> {
    if path.starts_with("/v1/retrieve/") {
        return Some(RETRIEVE_ROUTE);
    }
    let path = path.strip_prefix("/v1").unwrap_or(path);
    let is_route = |route: &&&str| route.strip_prefix("/v1") == Some(path);
    ROUTES.iter().find(is_route).copied()
}

/// Returns the name of the span of a request: the method and the route, as the conventions for HTTP require.
pub(crate) fn span_name(method: &Method, path: &str) -> String {
    let method = known_method(method).unwrap_or("HTTP");
    of_path(path).map_or_else(|| method.to_owned(), |route| format!("{method} {route}"))
}

/// Returns the name of a method that HTTP defines.
pub(crate) fn known_method(method: &Method) -> Option<&'static str> {
    const KNOWN: [&str; 9] = [
        "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH",
    ];
    KNOWN.into_iter().find(|known| method.as_str() == *known)
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn route(method: &str, path: &str, headers: &[(&'static str, &'static str)]) -> Route {
        let headers = headers.iter().map(|(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        });
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        Route::of(&method, path, &headers.collect())
    }

    #[test]
    fn paths_decide_before_headers() {
        let check = |path, headers: &[_], api| {
            assert_eq!(
                route("POST", path, headers),
                Route::Forward(api),
                "{path} {headers:?}"
            );
        };
        let bearer = [("authorization", "Bearer k")];
        let key = [("x-api-key", "k")];
        check("/v1/messages", &bearer, Api::Anthropic);
        check("/v1/messages/count_tokens", &[], Api::Anthropic);
        check("/v1/chat/completions", &key, Api::OpenAi);
        check("/chat/completions", &[], Api::OpenAi);
        check("/v1/responses", &key, Api::OpenAi);
        check("/v1/models", &bearer, Api::OpenAi);
        check("/v1/models", &key, Api::Anthropic);
        check("/v1/threads/t/messages", &bearer, Api::OpenAi);
        check("/v1/files", &[("api-key", "k")], Api::OpenAi);
        let oauth = [
            ("authorization", "Bearer k"),
            ("anthropic-version", "2023-06-01"),
        ];
        check("/v1/files", &oauth, Api::Anthropic);
        check("/", &[], Api::Anthropic);
        check("/v1", &[], Api::Anthropic);
    }

    #[test]
    fn the_contract_of_compression_guardrails_is_answered_here() {
        let own = |method, path| match route(method, path, &[]) {
            Route::Own(own) => Some(own),
            _ => None,
        };
        assert_eq!(own("POST", "/v1/compress"), Some(OwnRoute::Compress));
        let retrieve = OwnRoute::Retrieve("0a".into());
        assert_eq!(own("GET", "/v1/retrieve/0a"), Some(retrieve));
        assert_eq!(own("GET", "/v1/compress"), None);
        assert_eq!(own("POST", "/v1/compress/response"), None);
        assert_eq!(own("POST", "/v1/retrieve/0a"), None);
    }

    #[test]
    fn the_names_of_spans_are_bounded() {
        let check = |method: &str, path, name| {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            assert_eq!(span_name(&method, path), name, "{method} {path}");
        };
        check("POST", "/v1/messages", "POST /v1/messages");
        check("POST", "/chat/completions", "POST /v1/chat/completions");
        check("GET", "/v1/retrieve/0a", "GET /v1/retrieve/{hash}");
        check("GET", "/v1/files/secret", "GET");
        check("BREW", "/v1/coffee", "HTTP");
    }

    #[test]
    fn only_web_sockets_and_tunnels_are_not_forwarded() {
        let websocket = [("upgrade", "h2c, WebSocket")];
        assert_eq!(
            route("GET", "/v1/responses", &websocket),
            Route::WebSocket(Api::OpenAi)
        );
        let optional = [("upgrade", "h2c")];
        assert_eq!(
            route("GET", "/v1/responses", &optional),
            Route::Forward(Api::OpenAi)
        );
        assert_eq!(route("CONNECT", "", &[]), Route::Tunnel);
    }
}
