//! The gateway's own answers, in the shape of the API of the request.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER, UPGRADE};
use http::{HeaderValue, Response, StatusCode};
use serde_json::json;

use super::response_body::ResponseBody;
use super::route::Api;

/// The reason for an answer of the gateway itself. Upstream received nothing of the request, or not all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reason {
    /// No connection to upstream exists. Contains the error of the operating system or of TLS.
    Unreachable(String),
    /// No connection to upstream exists after `gateway.connect_timeout_ms`.
    ConnectTimeout,
    /// `gateway.max_streams` requests are in flight.
    Overloaded,
    /// The agent sent nothing of its body for `gateway.stall_timeout_ms`.
    Stalled,
    /// The agent requested a WebSocket.
    WebSocket,
    /// The agent requested a tunnel.
    Tunnel,
    /// The path of the request cannot follow the base URL of the upstream.
    Target,
}

impl Reason {
    const fn status(&self) -> StatusCode {
        match self {
            Self::Unreachable(_) => StatusCode::BAD_GATEWAY,
            Self::ConnectTimeout => StatusCode::GATEWAY_TIMEOUT,
            Self::Overloaded => StatusCode::SERVICE_UNAVAILABLE,
            Self::Stalled => StatusCode::REQUEST_TIMEOUT,
            // Codex falls back from WebSocket to HTTP after this status.
            Self::WebSocket => StatusCode::UPGRADE_REQUIRED,
            Self::Tunnel => StatusCode::METHOD_NOT_ALLOWED,
            Self::Target => StatusCode::BAD_REQUEST,
        }
    }

    /// Returns the type of the error in the API of Anthropic, and type and code in that of OpenAI.
    const fn kinds(&self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Unreachable(_) => ("api_error", "server_error", "upstream_unreachable"),
            Self::ConnectTimeout => ("timeout_error", "server_error", "upstream_timeout"),
            Self::Overloaded => ("overloaded_error", "server_error", "gateway_overloaded"),
            Self::Stalled => ("timeout_error", "invalid_request_error", "request_stalled"),
            Self::WebSocket => (
                "invalid_request_error",
                "invalid_request_error",
                "websocket_not_supported",
            ),
            Self::Tunnel => (
                "invalid_request_error",
                "invalid_request_error",
                "method_not_supported",
            ),
            Self::Target => (
                "invalid_request_error",
                "invalid_request_error",
                "invalid_target",
            ),
        }
    }

    fn message(&self, api: Api) -> String {
        let name = api.name();
        match self {
            Self::Unreachable(cause) => format!(
                "palimpsest: cannot connect to the upstream {name}: {cause}. Retry, or check \
                 gateway.upstreams.{name}.base_url and the network of the gateway."
            ),
            Self::ConnectTimeout => format!(
                "palimpsest: cannot connect to the upstream {name} within gateway.connect_timeout_ms. Retry, or check \
                 the network of the gateway."
            ),
            Self::Overloaded => "palimpsest: the gateway has gateway.max_streams requests in flight. Retry after a \
                                 second, or raise the limit."
                .to_owned(),
            Self::Stalled => "palimpsest: the body of the request made no progress for gateway.stall_timeout_ms. \
                              Send the request again."
                .to_owned(),
            Self::WebSocket => {
                "palimpsest: the gateway does not forward WebSockets. Send the request over HTTP.".to_owned()
            }
            Self::Tunnel => "palimpsest: the gateway is no forward proxy. Set its address as the base URL of the \
                             client."
                .to_owned(),
            Self::Target => format!(
                "palimpsest: the path of the request cannot follow gateway.upstreams.{name}.base_url. Correct the \
                 path."
            ),
        }
    }

    /// Returns the answer for a request of the API.
    pub(crate) fn answer(&self, api: Api) -> Response<ResponseBody> {
        let (anthropic, openai, code) = self.kinds();
        let message = self.message(api);
        let error = match api {
            Api::Anthropic => {
                json!({"type": "error", "error": {"type": anthropic, "message": message}})
            }
            Api::OpenAi => json!({
                "error": {"message": message, "type": openai, "param": null, "code": code}
            }),
        };
        let text = Bytes::from(error.to_string());
        let mut response = Response::new(ResponseBody::Own(Some(text)));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        match self {
            Self::Overloaded => {
                headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
            }
            // The status requires the header with a protocol that is accepted.
            Self::WebSocket => {
                headers.insert(UPGRADE, HeaderValue::from_static("HTTP/1.1"));
            }
            _ => {}
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn body(reason: &Reason, api: Api) -> (u16, Value) {
        let response = reason.answer(api);
        let status = response.status().as_u16();
        let ResponseBody::Own(Some(text)) = response.into_body() else {
            panic!("it has a text");
        };
        (status, serde_json::from_slice(&text).unwrap())
    }

    #[test]
    fn an_error_has_the_shape_of_its_api() {
        let reason = Reason::Unreachable("connection refused".into());
        let (status, error) = body(&reason, Api::Anthropic);
        assert_eq!(status, 502);
        assert_eq!(error["type"], "error");
        assert_eq!(error["error"]["type"], "api_error");
        let (status, error) = body(&reason, Api::OpenAi);
        assert_eq!(status, 502);
        assert_eq!(error["error"]["code"], "upstream_unreachable");
        let message = error["error"]["message"].as_str().unwrap();
        assert!(
            message.contains("gateway.upstreams.openai.base_url"),
            "{message}"
        );
        assert!(message.contains("connection refused"), "{message}");
    }

    #[test]
    fn a_rejected_request_can_be_repeated_after_a_second() {
        let response = Reason::Overloaded.answer(Api::Anthropic);
        assert_eq!(response.status(), 503);
        assert_eq!(response.headers()["retry-after"], "1");
    }
}
