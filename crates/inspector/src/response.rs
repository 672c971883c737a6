//! HTTP responses with the headers that every page has.

use bytes::Bytes;
use futures::Stream;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION, REFERRER_POLICY, SET_COOKIE,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use http_body::Frame;
use http_body_util::{Full, StreamBody};
use maud::Markup;
use tonic::Status;
use tonic::body::Body;

/// Only the inspector's own style, script and calls. No page of another site may contain it.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

const HTML: &str = "text/html; charset=utf-8";

/// Creates a response with a body of a type.
pub(crate) fn whole(
    status: StatusCode,
    kind: &'static str,
    body: impl Into<Bytes>,
) -> Response<Body> {
    with_headers(status, kind, Body::new(Full::new(body.into())))
}

fn with_headers(status: StatusCode, kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    let mut set = |name: HeaderName, value: &'static str| {
        headers.insert(name, HeaderValue::from_static(value));
    };
    set(CONTENT_TYPE, kind);
    set(CONTENT_SECURITY_POLICY, POLICY);
    // Pages contain conversations, which must not stay in the browser after a sign-out.
    set(CACHE_CONTROL, "no-store");
    // With `no-referrer`, browsers would send forms with `Origin: null`, which the HTTP API rejects.
    set(REFERRER_POLICY, "same-origin");
    set(X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    );
    response
}

/// Creates the response with a page.
pub(crate) fn page(status: StatusCode, page: Markup) -> Response<Body> {
    whole(status, HTML, page.into_string())
}

/// Creates a response that leads to another page.
pub(crate) fn redirect(path: &str) -> Response<Body> {
    // 303 makes the browser read the next page with GET, so a reload does not send the form again.
    let mut response = whole(StatusCode::SEE_OTHER, HTML, Bytes::new());
    if let Ok(path) = HeaderValue::try_from(path) {
        response.headers_mut().insert(LOCATION, path);
    }
    response
}

/// Adds a cookie to a response.
pub(crate) fn with_cookie(
    mut response: Response<Body>,
    cookie: Option<HeaderValue>,
) -> Response<Body> {
    if let Some(cookie) = cookie {
        response.headers_mut().insert(SET_COOKIE, cookie);
    }
    response
}

/// Creates a response that is a stream of server-sent events.
pub(crate) fn events(
    events: impl Stream<Item = Result<Bytes, Status>> + Send + 'static,
) -> Response<Body> {
    use futures::StreamExt as _;
    let frames = events.map(|data| data.map(Frame::data));
    let body = Body::new(StreamBody::new(frames));
    with_headers(StatusCode::OK, "text/event-stream", body)
}
