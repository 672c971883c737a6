//! A protocol of another crate, on paths of its own.

use std::convert::Infallible;
use std::fmt;

use futures::future::BoxFuture;
use http::{Request, Response};
use tonic::Status;
use tonic::body::Body;
use tower::util::BoxCloneSyncService;

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
