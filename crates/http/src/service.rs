//! The layer that selects the protocol of a request.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::{Either, MapOk, TryFutureExt as _};
use http::header::{CONTENT_TYPE, ORIGIN};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body::Body;
use palimpsest_proto::FILE_DESCRIPTOR_SET;
use prost_reflect::DescriptorPool;
use tonic::Status;
use tonic_web::GrpcWebLayer;
use tower::util::BoxCloneSyncService;
use tower::{Layer, Service, ServiceExt as _};

use crate::body::ApiBody;
use crate::connect::ConnectApi;
use crate::cors::{AllowedOrigins, OpenTo};
use crate::error::{self, defect};
use crate::json::{Schema, SchemaError};
use crate::mount::{GrpcPath, Mount};
use crate::openapi;
use crate::rest::RestApi;

/// The path of the description of the REST API.
const OPENAPI_PATH: &str = "/openapi.json";

/// The HTTP API, as a layer around the path of every gRPC call.
#[derive(Debug, Clone)]
pub struct HttpApi(Option<Arc<Shared>>);

#[derive(Debug)]
struct Shared {
    rest: RestApi,
    connect: ConnectApi,
    contract: DescriptorPool,
    schema: Arc<Schema>,
    /// The description of the REST API, after the first request for it.
    openapi: OnceLock<Bytes>,
    origins: AllowedOrigins,
    /// The callers without a credential.
    open: OpenTo,
    mounts: Vec<Arc<dyn Mount>>,
}

/// The reason for a contract without an HTTP API. It is a defect of the binary.
#[derive(Debug, thiserror::Error)]
#[error("cannot build the HTTP API: {0}")]
pub struct BuildError(String);

impl From<SchemaError> for BuildError {
    fn from(error: SchemaError) -> Self {
        Self(error.to_string())
    }
}

/// Reads the descriptors of the contract and of the details of errors.
pub(crate) fn descriptors() -> Result<DescriptorPool, BuildError> {
    let mut pool = DescriptorPool::decode(FILE_DESCRIPTOR_SET)
        .map_err(|error| BuildError(error.to_string()))?;
    // Details of an error are messages in an `Any`. They are written as JSON, so their types must be known.
    pool.decode_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
        .map_err(|error| BuildError(error.to_string()))?;
    Ok(pool)
}

impl HttpApi {
    /// Creates the API for web pages of some origins. `open` names the callers without a credential.
    pub fn new(
        origins: AllowedOrigins,
        open: OpenTo,
        mounts: Vec<Arc<dyn Mount>>,
    ) -> Result<Self, BuildError> {
        Self::build(&descriptors()?, (origins, open), mounts)
    }

    /// Creates a layer that lets gRPC calls pass and serves nothing else.
    pub const fn off() -> Self {
        Self(None)
    }

    /// Returns true if the API serves other protocols than gRPC.
    pub const fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Creates the API for another contract, which has no REST API.
    pub fn for_contract(
        pool: &DescriptorPool,
        origins: AllowedOrigins,
        open: OpenTo,
    ) -> Result<Self, BuildError> {
        Self::build(pool, (origins, open), Vec::new())
    }

    fn build(
        pool: &DescriptorPool,
        (origins, open): (AllowedOrigins, OpenTo),
        mounts: Vec<Arc<dyn Mount>>,
    ) -> Result<Self, BuildError> {
        let schema = Arc::new(Schema::new(pool)?);
        Ok(Self(Some(Arc::new(Shared {
            rest: RestApi::new(pool, Arc::clone(&schema)),
            connect: ConnectApi::new(pool, Arc::clone(&schema)),
            contract: pool.clone(),
            schema,
            openapi: OnceLock::new(),
            origins,
            open,
            mounts,
        }))))
    }
}

impl<S> Layer<S> for HttpApi {
    type Service = ApiService<S>;

    fn layer(&self, inner: S) -> ApiService<S> {
        ApiService {
            inner,
            shared: self.0.clone(),
        }
    }
}

/// The HTTP API around a gRPC service.
#[derive(Debug, Clone)]
pub struct ApiService<S> {
    inner: S,
    shared: Option<Arc<Shared>>,
}

/// The protocol of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Grpc,
    GrpcWeb,
    /// The Connect protocol, on the path of a method.
    Connect,
    /// The REST API and all other requests.
    Rest,
}

impl Protocol {
    fn of<B>(request: &Request<B>) -> Self {
        let content_type = request.headers().get(CONTENT_TYPE);
        let content_type = content_type.map_or(&b""[..], HeaderValue::as_bytes);
        if content_type.starts_with(b"application/grpc-web") {
            return Self::GrpcWeb;
        }
        if content_type.starts_with(b"application/grpc") {
            return Self::Grpc;
        }
        let path = request.uri().path();
        // A path of two parts whose first one is the name of a service.
        let mut parts = path.trim_start_matches('/').split('/');
        match (parts.next(), parts.next(), parts.next()) {
            (Some(service), Some(_), None) if service.contains('.') => Self::Connect,
            _ => Self::Rest,
        }
    }
}

type GrpcFuture<F, B> = MapOk<F, fn(Response<B>) -> Response<ApiBody<B>>>;
type OtherFuture<B> =
    Pin<Box<dyn Future<Output = Result<Response<ApiBody<B>>, Infallible>> + Send>>;

impl<S, B> Service<Request<tonic::body::Body>> for ApiService<S>
where
    S: Service<Request<tonic::body::Body>, Response = Response<B>, Error = Infallible>,
    S: Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
    B: Body<Data = Bytes, Error = Status> + Unpin + Send + 'static,
{
    type Response = Response<ApiBody<B>>;
    type Error = Infallible;
    type Future = Either<GrpcFuture<S::Future, B>, OtherFuture<B>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<tonic::body::Body>) -> Self::Future {
        let protocol = Protocol::of(&request);
        // Native gRPC over HTTP/2 is the common case, so it gets no boxed future.
        let other = self
            .shared
            .as_ref()
            .filter(|_| protocol != Protocol::Grpc || request.version() < Version::HTTP_2);
        let Some(shared) = other.map(Arc::clone) else {
            let as_grpc: fn(Response<B>) -> Response<ApiBody<B>> =
                |response| response.map(ApiBody::grpc);
            return Either::Left(self.inner.call(request).map_ok(as_grpc));
        };
        // The clone serves the next call. The instance that reported readiness serves this one.
        let next = self.inner.clone();
        let ready = std::mem::replace(&mut self.inner, next);
        Either::Right(Box::pin(async move {
            Ok(shared.answer(ready, request, protocol).await)
        }))
    }
}

impl Shared {
    async fn answer<S, B>(
        &self,
        service: S,
        request: Request<tonic::body::Body>,
        protocol: Protocol,
    ) -> Response<ApiBody<B>>
    where
        S: Service<Request<tonic::body::Body>, Response = Response<B>, Error = Infallible>,
        S: Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
        B: Body<Data = Bytes, Error = Status> + Unpin + Send + 'static,
    {
        // A browser sends a preflight request without a credential, so it is answered before all checks.
        if *request.method() == Method::OPTIONS {
            return self.preflight(request.headers());
        }
        let origin = request.headers().get(ORIGIN).cloned();
        if !self
            .origins
            .permits(request.headers(), request.uri(), self.open)
        {
            let status = Status::permission_denied(
                "the web page of this request may not use the API; add its origin to http.allowed_origins",
            );
            return self.rest.failed(&status);
        }
        let mut response = match protocol {
            Protocol::GrpcWeb => grpc_web(service, request).await,
            Protocol::Connect => self.connect.answer(service, request).await,
            Protocol::Grpc => self.needs_http2(),
            Protocol::Rest if request.uri().path() == OPENAPI_PATH => self.document().await,
            Protocol::Rest => match self.mount_of(&request) {
                Some(mount) => self.mounted(mount, service, request).await,
                None => self.rest.answer(service, request).await,
            },
        };
        self.origins
            .describe(origin.as_ref(), response.headers_mut());
        response
    }

    fn mount_of<R>(&self, request: &Request<R>) -> Option<&dyn Mount> {
        let mut mounts = self.mounts.iter().map(|mount| &**mount);
        mounts.find(|mount| mount.serves(request.uri().path()))
    }

    async fn mounted<S, B>(
        &self,
        mount: &dyn Mount,
        service: S,
        request: Request<tonic::body::Body>,
    ) -> Response<ApiBody<B>>
    where
        S: Service<Request<tonic::body::Body>, Response = Response<B>, Error = Infallible>,
        S: Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
        B: Body<Data = Bytes, Error = Status> + Unpin + Send + 'static,
    {
        let grpc: GrpcPath = BoxCloneSyncService::new(service.map_response(boxed::<B>));
        match mount.answer(grpc, request).await {
            Ok(response) => response.map(ApiBody::boxed),
            Err(status) => {
                let mut response = self.rest.failed(&status);
                response.headers_mut().extend(error::metadata(&status));
                response
            }
        }
    }

    fn needs_http2<B>(&self) -> Response<ApiBody<B>> {
        let status = Status::invalid_argument(
            "gRPC needs HTTP/2, and this connection has HTTP/1.1; use gRPC-Web, Connect or REST, or a client with HTTP/2",
        );
        let mut response = self.rest.failed(&status);
        *response.status_mut() = StatusCode::HTTP_VERSION_NOT_SUPPORTED;
        response
    }

    async fn document<B>(&self) -> Response<ApiBody<B>> {
        let text = if let Some(text) = self.openapi.get() {
            text.clone()
        } else {
            let (contract, schema) = (self.contract.clone(), Arc::clone(&self.schema));
            let write = move || openapi::of_contract(&contract, &schema).to_string();
            let Ok(text) = tokio::task::spawn_blocking(write).await else {
                return self.rest.failed(&defect());
            };
            // Concurrent first requests may both write the document. All get the one that is stored first.
            self.openapi.get_or_init(|| text.into()).clone()
        };
        let mut response = Response::new(ApiBody::whole(text, None));
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(CONTENT_TYPE, json);
        response
    }

    fn preflight<B>(&self, request: &HeaderMap) -> Response<ApiBody<B>> {
        let mut response = Response::new(ApiBody::whole(Bytes::new(), None));
        *response.status_mut() = StatusCode::NO_CONTENT;
        self.origins
            .describe_preflight(request, response.headers_mut());
        response
    }
}

async fn grpc_web<S, B>(service: S, request: Request<tonic::body::Body>) -> Response<ApiBody<B>>
where
    S: Service<Request<tonic::body::Body>, Response = Response<B>, Error = Infallible>,
    S: Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
    B: Body<Data = Bytes, Error = Status> + Unpin + Send + 'static,
{
    let boxed: fn(Response<B>) -> Response<tonic::body::Body> = boxed;
    let service = GrpcWebLayer::new().layer(service.map_response(boxed));
    match service.oneshot(request).await {
        Ok(response) => response.map(|body| ApiBody::boxed(tonic::body::Body::new(body))),
        Err(impossible) => match impossible {},
    }
}

fn boxed<B>(response: Response<B>) -> Response<tonic::body::Body>
where
    B: Body<Data = Bytes, Error = Status> + Send + 'static,
{
    response.map(tonic::body::Body::new)
}
