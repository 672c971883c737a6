//! The gRPC calls behind the pages.

use std::time::Duration;

use palimpsest_http::GrpcPath;
use palimpsest_proto::context::v1::admin_service_client::AdminServiceClient;
use palimpsest_proto::context::v1::context_service_client::ContextServiceClient;
use palimpsest_proto::context::v1::session_service_client::SessionServiceClient;
use palimpsest_proto::context::v1::{ListEventsRequest, SessionEvent};
use tonic::Status;

use crate::routes::SessionName;

/// The maximum duration of a call for a page: 30 s.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum size of a reply: 64 MiB. The server limits replies to less.
const MAX_REPLY: usize = 64 * 1024 * 1024;

/// Calls with the caller of one request.
#[derive(Clone)]
pub(crate) struct Api(GrpcPath);

impl Api {
    /// Creates the calls of a request. Each call on the path has its caller.
    pub(crate) const fn new(grpc: GrpcPath) -> Self {
        Self(grpc)
    }

    pub(crate) fn sessions(&self) -> SessionServiceClient<GrpcPath> {
        SessionServiceClient::new(self.0.clone()).max_decoding_message_size(MAX_REPLY)
    }

    pub(crate) fn context(&self) -> ContextServiceClient<GrpcPath> {
        ContextServiceClient::new(self.0.clone()).max_decoding_message_size(MAX_REPLY)
    }

    pub(crate) fn admin(&self) -> AdminServiceClient<GrpcPath> {
        AdminServiceClient::new(self.0.clone()).max_decoding_message_size(MAX_REPLY)
    }

    /// Reads the event that follows a revision.
    pub(crate) async fn event_after(
        &self,
        name: &SessionName,
        revision: u64,
    ) -> Result<Option<SessionEvent>, Status> {
        let request = ListEventsRequest {
            session: name.resource(),
            page_size: 1,
            after_revision: revision,
            ..ListEventsRequest::default()
        };
        let reply = self.sessions().list_events(Self::request(request)).await?;
        Ok(reply.into_inner().events.into_iter().next())
    }

    /// Creates the request of a call that must end within a time.
    pub(crate) fn request<T>(message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        request.set_timeout(TIMEOUT);
        request
    }
}
