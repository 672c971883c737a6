//! The gateway's own answers, in the shape of the API of the request.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, UPGRADE};
use http::response::Parts as ResponseHead;
use http::{HeaderValue, Response, StatusCode};
use serde_json::json;

use super::caller::Rejection;
use super::compress::Problem;
use super::context::Unmanaged;
use super::response_body::{ResponseBody, UpstreamBody};
use super::route::Api;
use super::tee::TeeBody;

/// An answer of the gateway in place of the response of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnAnswer {
    pub(crate) content_type: &'static str,
    pub(crate) text: Bytes,
}

impl OwnAnswer {
    pub(crate) fn json(text: impl Into<Bytes>) -> Self {
        Self {
            content_type: "application/json",
            text: text.into(),
        }
    }

    pub(crate) fn events(text: impl Into<Bytes>) -> Self {
        Self {
            content_type: "text/event-stream; charset=utf-8",
            text: text.into(),
        }
    }

    pub(crate) fn into_response(self) -> (ResponseHead, UpstreamBody) {
        let Self { content_type, text } = self;
        let (mut head, ()) = Response::new(()).into_parts();
        let headers = &mut head.headers;
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        // A forwarded body reports no size to hyper, so the length has to be a header.
        headers.insert(CONTENT_LENGTH, text.len().into());
        let body = TeeBody::resumed([text].into(), None);
        (head, UpstreamBody::Tee(Box::new(body)))
    }
}

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
    /// The caller may not send the request.
    Caller(Rejection),
    /// No session has taken the conversation, and `gateway.require_session` forbids to forward it.
    Unmanaged(Unmanaged),
    /// The key that the gateway holds cannot be read.
    KeyUnavailable,
    /// Upstream rejected the key that the gateway holds.
    KeyRejected,
    /// The path of the request cannot follow the base URL of the upstream.
    Target,
    /// A compression guardrail gets no messages, or no original.
    Compression(Problem),
}

impl Reason {
    /// Returns the status of the answer.
    pub(crate) const fn status(&self) -> StatusCode {
        match self {
            // A caller would take 401 for a rejection of its own credential.
            Self::Unreachable(_) | Self::KeyRejected => StatusCode::BAD_GATEWAY,
            Self::ConnectTimeout => StatusCode::GATEWAY_TIMEOUT,
            Self::Overloaded | Self::KeyUnavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::Unmanaged(reason) => match reason {
                Unmanaged::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
                Unmanaged::Encoding
                | Unmanaged::Unreadable
                | Unmanaged::Stateful
                | Unmanaged::Rejected => StatusCode::BAD_REQUEST,
                Unmanaged::Memory | Unmanaged::Store | Unmanaged::Timeout | Unmanaged::Defect => {
                    StatusCode::SERVICE_UNAVAILABLE
                }
            },
            Self::Stalled => StatusCode::REQUEST_TIMEOUT,
            // Codex falls back from WebSocket to HTTP after this status.
            Self::WebSocket => StatusCode::UPGRADE_REQUIRED,
            Self::Tunnel => StatusCode::METHOD_NOT_ALLOWED,
            Self::Caller(rejection) => match rejection {
                Rejection::Credential(_) | Rejection::MisplacedKey => StatusCode::UNAUTHORIZED,
                Rejection::ProjectName | Rejection::NoProject => StatusCode::BAD_REQUEST,
                Rejection::ProjectNotFound(_) => StatusCode::NOT_FOUND,
                Rejection::Forbidden(..) | Rejection::Account(_) | Rejection::WebPage => {
                    StatusCode::FORBIDDEN
                }
                Rejection::Quota(_) => StatusCode::TOO_MANY_REQUESTS,
            },
            Self::Target => StatusCode::BAD_REQUEST,
            Self::Compression(problem) => problem.status(),
        }
    }

    /// Returns the type of the error in the API of Anthropic, and type and code in that of OpenAI.
    const fn kinds(&self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Unreachable(_) => ("api_error", "server_error", "upstream_unreachable"),
            Self::KeyUnavailable => ("api_error", "server_error", "upstream_key_unavailable"),
            Self::KeyRejected => ("api_error", "server_error", "upstream_key_rejected"),
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
            Self::Unmanaged(_) => ("api_error", "invalid_request_error", "session_required"),
            Self::Caller(rejection) => rejection_kinds(rejection),
            Self::Target => (
                "invalid_request_error",
                "invalid_request_error",
                "invalid_target",
            ),
            Self::Compression(problem) => problem.kinds(),
        }
    }

    /// Returns the code of the error, which is the same in all APIs.
    pub(crate) const fn code(&self) -> &'static str {
        self.kinds().2
    }

    /// Returns true if the caller lacks a credential or a right.
    pub(crate) fn is_denial(&self) -> bool {
        let status = self.status();
        let is_denied = status == StatusCode::UNAUTHORIZED || status == StatusCode::FORBIDDEN;
        is_denied && matches!(self, Self::Caller(_))
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
            Self::Unmanaged(reason) => format!(
                "palimpsest: no session has taken the conversation (reason: {}), and gateway.require_session is true. \
                 docs/gateway.md lists the reasons.",
                reason.name()
            ),
            Self::Caller(rejection) => rejection_message(rejection),
            Self::KeyUnavailable => format!(
                "palimpsest: the gateway cannot read its key for the upstream {name}. The operator finds the cause in \
                 the log, and corrects the source of the key in gateway.upstreams.{name}."
            ),
            Self::KeyRejected => format!(
                "palimpsest: the upstream {name} rejected the key of the gateway. The operator replaces the key in \
                 gateway.upstreams.{name}."
            ),
            Self::Target => format!(
                "palimpsest: the path of the request cannot follow gateway.upstreams.{name}.base_url. Correct the \
                 path."
            ),
            Self::Compression(problem) => problem.message(),
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
            // Both limits count requests in flight, of which one can end at any moment.
            Self::Overloaded | Self::Compression(Problem::Memory) => {
                headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
            }
            Self::Caller(rejection) => {
                if let Some(wait) = rejection.retry_after() {
                    // Whole seconds, rounded up: an earlier retry would be rejected again.
                    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
                    headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
                }
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

/// Returns the kinds of a rejection, as [`Reason::kinds`].
const fn rejection_kinds(rejection: &Rejection) -> (&'static str, &'static str, &'static str) {
    match rejection {
        Rejection::Credential(_) | Rejection::MisplacedKey => (
            "authentication_error",
            "invalid_request_error",
            "invalid_api_key",
        ),
        Rejection::ProjectName | Rejection::NoProject => (
            "invalid_request_error",
            "invalid_request_error",
            "invalid_project",
        ),
        Rejection::ProjectNotFound(_) => (
            "not_found_error",
            "invalid_request_error",
            "project_not_found",
        ),
        Rejection::Forbidden(..) | Rejection::Account(_) | Rejection::WebPage => (
            "permission_error",
            "invalid_request_error",
            "permission_denied",
        ),
        Rejection::Quota(_) => ("rate_limit_error", "requests", "rate_limit_exceeded"),
    }
}

fn rejection_message(rejection: &Rejection) -> String {
    match rejection {
        Rejection::Credential(error) => format!(
            "palimpsest: cannot authenticate the request: {error}. Send an API key or a JWT of Palimpsest in the \
             header x-palimpsest-key, or as the API key of the client if the gateway holds the key of the provider."
        ),
        Rejection::MisplacedKey => "palimpsest: a header of the provider contains a key of Palimpsest, which is never \
                                    forwarded. Send this key in the header x-palimpsest-key, and the key of the \
                                    provider in its usual header."
            .to_owned(),
        Rejection::ProjectName => "palimpsest: the path names no valid project. Use a path such as \
                                   /p/PROJECT/v1/messages."
            .to_owned(),
        Rejection::NoProject => "palimpsest: the credential grants several projects. Name one of them in the path, \
                                 such as /p/PROJECT/v1/messages."
            .to_owned(),
        Rejection::ProjectNotFound(project) => format!(
            "palimpsest: projects/{project} does not exist for this credential. Correct the project in the path."
        ),
        Rejection::Forbidden(right, project) => format!(
            "palimpsest: the credential does not have the right {right} in projects/{project}. Use another \
             credential."
        ),
        Rejection::Account(right) => format!(
            "palimpsest: the request can read or change data in the provider's account, which all projects share. Use a \
             credential with the right {right} in all projects."
        ),
        Rejection::WebPage => "palimpsest: a web page could have sent this request, and authentication is off. Use \
                               127.0.0.1 or localhost in the base URL, send no header origin, or turn on authentication."
            .to_owned(),
        Rejection::Quota(exceeded) => {
            let scope = match &exceeded.project {
                Some(project) => format!("projects/{project}"),
                None => "all projects together".to_owned(),
            };
            let (quota, limit) = (exceeded.quota.name(), exceeded.limit);
            format!("palimpsest: the quota {quota} of {limit} for {scope} is exceeded. Retry later, or raise it.")
        }
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
