//! The gRPC server: the services and the path of every call.
//!
//! `edge` contains the steps of a call in their order, and the other modules implement the steps. The port also serves the
//! HTTP API, whose requests become calls on this path. Handlers are passed
//! in through [`Services`].

mod accept;
mod audit;
mod authn;
mod call_context;
mod call_limits;
mod connection;
mod connection_life;
mod deadline;
mod decode;
mod edge;
mod health;
mod http1;
mod http_version;
mod limited_body;
mod load_shed;
mod mutations;
mod receive;
mod request_size;
mod response_body;
mod span;
mod status_details;

use palimpsest_core::limits::Limits;
use palimpsest_edge::tls::ServerTls;
use palimpsest_http::HttpApi;
use palimpsest_proto::FILE_DESCRIPTOR_SET;
use palimpsest_proto::context::v1::admin_service_server::{AdminService, AdminServiceServer};
use palimpsest_proto::context::v1::context_service_server::{ContextService, ContextServiceServer};
use palimpsest_proto::context::v1::session_service_server::{SessionService, SessionServiceServer};
use palimpsest_settings::GrpcConfig;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::server::NamedService;
use tonic::service::Routes;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::HealthService;
use tower::Layer as _;

use self::connection::ConnectionTimeouts;
use crate::net::{Acceptor, Connections};

pub use authn::Authn;
pub use call_context::CallContext;
pub use call_limits::{CallLimits, InFlight};
pub use edge::Edge;
pub use health::{Health, LIVENESS, READINESS};
pub use mutations::Mutations;

/// The minimum of the maximum reply size. A reply can be larger than a request, such as a page of messages.
const MAX_REPLY_BYTES: usize = 64 * 1024 * 1024;

/// The handlers of all services.
#[derive(Debug)]
pub struct Services<C, S, A> {
    /// The handler of messages and views.
    pub context: C,
    /// The handler of sessions.
    pub sessions: S,
    /// The handler of raw store access.
    pub admin: A,
}

impl<C: ContextService, S: SessionService, A: AdminService> Services<C, S, A> {
    /// Returns the routes to the handlers.
    ///
    /// Compression is off. Within a cluster it costs more than it saves, and a compressed request would exceed its
    /// announced size.
    pub fn into_routes(self, limits: &Limits) -> Routes {
        // One byte above the limit of `limited_body`, which rejects too large calls earlier and with error details.
        let max_request = limits.max_request_bytes.saturating_add(1);
        let max_reply = limits.max_request_bytes.max(MAX_REPLY_BYTES);
        Routes::new(
            ContextServiceServer::new(self.context)
                .max_decoding_message_size(max_request)
                .max_encoding_message_size(max_reply),
        )
        .add_service(
            SessionServiceServer::new(self.sessions)
                .max_decoding_message_size(max_request)
                .max_encoding_message_size(max_reply),
        )
        .add_service(
            AdminServiceServer::new(self.admin)
                .max_decoding_message_size(max_request)
                .max_encoding_message_size(max_reply),
        )
    }
}

/// Adds the health service, and the reflection service in both versions.
pub fn with_standard_services(
    routes: Routes,
    health: &Health,
) -> Result<Routes, tonic_reflection::server::Error> {
    // Listed one by one, because the contract also contains `HookService`, which users implement.
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .with_service_name(CONTEXT_SERVICE)
            .with_service_name(SESSION_SERVICE)
            .with_service_name(ADMIN_SERVICE)
            .with_service_name(HEALTH_SERVICE)
    };
    Ok(routes
        .add_service(health.service())
        .add_service(reflection().build_v1()?)
        .add_service(reflection().build_v1alpha()?))
}

/// The full names of the services.
const CONTEXT_SERVICE: &str = <ContextServiceServer<()> as NamedService>::NAME;
const SESSION_SERVICE: &str = <SessionServiceServer<()> as NamedService>::NAME;
const ADMIN_SERVICE: &str = <AdminServiceServer<()> as NamedService>::NAME;
const HEALTH_SERVICE: &str = <HealthServer<HealthService> as NamedService>::NAME;

/// Serves until `stop`, then until the last connection is closed. That may take forever, so the caller must use a
/// deadline.
pub(crate) async fn serve(
    (listener, connections): (TcpListener, Connections),
    routes: Routes,
    (edge, http): (Edge, HttpApi),
    config: &GrpcConfig,
    tls: Option<ServerTls>,
    stop: CancellationToken,
) {
    let max_handshakes = tls.as_ref().map(ServerTls::max_handshakes);
    let door = Acceptor::new(listener, connections, max_handshakes);
    let times = (ConnectionTimeouts::of(config), http.is_on());
    let service = http.layer(edge.layer(routes.prepare()));
    accept::serve(door, tls, service, times, stop).await;
}
