//! A protocol of another crate, on paths of its own.

use std::convert::Infallible;
use std::fmt;

use futures::future::BoxFuture;
use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{HeaderMap, HeaderName, Request, Response};
use tonic::Status;
use tonic::body::Body;
use tower::ServiceExt as _;
use tower::util::BoxCloneSyncService;

/// The headers with a credential.
pub const CREDENTIALS: [HeaderName; 2] = [AUTHORIZATION, HeaderName::from_static("x-api-key")];
/// The headers with the trace of the caller.
const TRACE: [HeaderName; 2] = [
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("tracestate"),
];

/// The path of every gRPC call.
pub type GrpcPath = BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>;

/// A protocol whose requests become gRPC calls. The HTTP API checks the web page of a request before.
pub trait Mount: fmt::Debug + Send + Sync {
    /// Returns true if the protocol has this path.
    fn serves(&self, path: &str) -> bool;

    /// Answers a request with calls on the path of gRPC. A status becomes an error of the REST API.
    fn answer(
        &self,
        grpc: GrpcPath,
        request: Request<Body>,
    ) -> BoxFuture<'static, Result<Response<Body>, Status>>;
}

/// Adds the credential, the trace and the connection of a request to each call, so that calls have its caller.
pub fn with_caller(grpc: GrpcPath, head: &Parts) -> GrpcPath {
    let mut headers = selected_headers(&head.headers, &CREDENTIALS);
    headers.extend(selected_headers(&head.headers, &TRACE));
    let extensions = head.extensions.clone();
    BoxCloneSyncService::new(grpc.map_request(move |mut call: Request<Body>| {
        call.headers_mut().extend(headers.clone());
        call.extensions_mut().extend(extensions.clone());
        call
    }))
}

/// Returns the headers with these names.
pub fn selected_headers(headers: &HeaderMap, names: &[HeaderName]) -> HeaderMap {
    let mut found = HeaderMap::new();
    for name in names {
        for value in headers.get_all(name) {
            found.append(name, value.clone());
        }
    }
    found
}
