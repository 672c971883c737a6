//! The gRPC calls behind the pages.

use std::time::Duration;

use http::HeaderValue;
use palimpsest_http::GrpcPath;
use palimpsest_proto::context::v1::admin_service_client::AdminServiceClient;
use palimpsest_proto::context::v1::context_service_client::ContextServiceClient;
use palimpsest_proto::context::v1::session_service_client::SessionServiceClient;
use tonic::metadata::{AsciiMetadataValue, MetadataMap};

/// The maximum duration of a call for a page: 30 s.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum size of a reply: 64 MiB. The server limits replies to less.
const MAX_REPLY: usize = 64 * 1024 * 1024;

/// Calls with the credential of one request.
#[derive(Clone)]
pub(crate) struct Api {
    service: GrpcPath,
    extensions: http::Extensions,
    credential: Option<AsciiMetadataValue>,
}

impl Api {
    /// Creates the calls of a request. `extensions` are those of the request: they name its connection.
    pub(crate) fn new(
        service: GrpcPath,
        extensions: http::Extensions,
        credential: Option<&HeaderValue>,
    ) -> Self {
        let credential = credential.and_then(|value| value.to_str().ok()?.parse().ok());
        Self {
            service,
            extensions,
            credential,
        }
    }

    pub(crate) fn sessions(&self) -> SessionServiceClient<GrpcPath> {
        SessionServiceClient::new(self.service.clone()).max_decoding_message_size(MAX_REPLY)
    }

    pub(crate) fn context(&self) -> ContextServiceClient<GrpcPath> {
        ContextServiceClient::new(self.service.clone()).max_decoding_message_size(MAX_REPLY)
    }

    pub(crate) fn admin(&self) -> AdminServiceClient<GrpcPath> {
        AdminServiceClient::new(self.service.clone()).max_decoding_message_size(MAX_REPLY)
    }

    /// Creates the request of a call.
    pub(crate) fn request<T>(&self, message: T) -> tonic::Request<T> {
        let mut request = self.endless(message);
        request.set_timeout(TIMEOUT);
        request
    }

    /// Creates the request of a call without a maximum duration.
    pub(crate) fn endless<T>(&self, message: T) -> tonic::Request<T> {
        let mut metadata = MetadataMap::new();
        if let Some(credential) = &self.credential {
            metadata.insert("authorization", credential.clone());
        }
        tonic::Request::from_parts(metadata, self.extensions.clone(), message)
    }
}
