//! The gRPC channel of a server, without its type.

use bytes::Bytes;
use http::{Request, Response};
use tonic::Status;
use tonic::body::Body;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service, ServiceExt as _};

/// A channel for calls of the contract.
pub type GrpcChannel = BoxCloneSyncService<Request<Body>, Response<Body>, Status>;

/// Erases the type of a channel, so that one handler serves connections and the calls inside of a server.
pub fn channel<S, B>(service: S) -> GrpcChannel
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let as_body: fn(Response<B>) -> Response<Body> = |response| response.map(Body::new);
    let as_error: fn(S::Error) -> Status = |error| Status::from_error(error.into());
    BoxCloneSyncService::new(service.map_response(as_body).map_err(as_error))
}
