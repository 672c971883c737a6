//! MCP over HTTP: a part of the HTTP API without state between requests.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use palimpsest_http::{CREDENTIALS, GrpcPath, Mount, selected_headers, with_caller};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::time::timeout;
use tonic::body::Body;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::channel::channel;
use crate::scope::{PATH, Scope, no_such_path};
use crate::server::{MAX_REQUEST_BYTES, McpServer};
use crate::slots::{MAX_OF_CREDENTIAL, MAX_REQUESTS, Slots};

const DOMAIN: &str = "palimpsest";
const TOO_LARGE: &str = "REQUEST_TOO_LARGE";

/// MCP on the paths below `/mcp`.
#[derive(Debug)]
pub struct McpApi {
    allows_snip: bool,
    /// The maximum time for the body of a request.
    body_timeout: Duration,
    slots: Slots,
}

impl McpApi {
    /// Creates the API. `allows_snip` is true if clients may remove turns from the view of a session.
    pub fn new(allows_snip: bool, body_timeout: Duration) -> Self {
        Self {
            allows_snip,
            body_timeout,
            slots: Slots::default(),
        }
    }
}

impl Mount for McpApi {
    fn serves(&self, path: &str) -> bool {
        let rest = path.strip_prefix(PATH);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    fn answer(
        &self,
        grpc: GrpcPath,
        request: Request<Body>,
    ) -> BoxFuture<'static, Result<Response<Body>, Status>> {
        let (allows_snip, body_timeout) = (self.allows_snip, self.body_timeout);
        let slots = self.slots.clone();
        async move {
            let scope = Scope::of_path(request.uri().path()).ok_or_else(no_such_path)?;
            let (head, body) = request.into_parts();
            let calls = channel(with_caller(grpc, &head));
            // The caller is authenticated before a byte of the body is stored.
            let server = McpServer::new(&calls, scope, allows_snip).verified();
            let server = server.await?;
            let credentials = selected_headers(&head.headers, &CREDENTIALS);
            // A caller without a valid credential is rejected above and takes no slot.
            let slot = slots.take(&credentials).ok_or_else(busy)?;
            let body = Limited::new(body, MAX_REQUEST_BYTES).collect();
            let body = timeout(body_timeout, body).await.map_err(|_| too_slow())?;
            let body = body.map_err(|error| unreadable(&*error))?.to_bytes();
            let request = Request::from_parts(head, Full::new(body));
            let service = StreamableHttpService::new(
                move || Ok(server.clone()),
                Arc::new(NeverSessionManager::default()),
                config(),
            );
            let response = service.handle(request).await;
            // The slot is in use until the last byte is sent.
            Ok(response.map(|body| {
                Body::new(body.map_frame(move |frame| {
                    let _ = &slot;
                    frame
                }))
            }))
        }
        .boxed()
    }
}

/// Returns the configuration of the transport: one JSON response for each request, and no sessions of the protocol.
fn config() -> StreamableHttpServerConfig {
    StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_sse_keep_alive(None)
        .with_max_request_body_bytes(MAX_REQUEST_BYTES)
        // The HTTP API checks the origin and the host, with its own setting.
        .disable_allowed_hosts()
}

fn busy() -> Status {
    Status::resource_exhausted(format!(
        "the server has {MAX_REQUESTS} MCP requests in progress, or {MAX_OF_CREDENTIAL} with this credential; try \
         again later"
    ))
}

fn too_slow() -> Status {
    Status::deadline_exceeded("the body of the request did not arrive in time; send it at once")
}

fn unreadable(error: &(dyn std::error::Error + 'static)) -> Status {
    if error.is::<LengthLimitError>() {
        let text = format!("the request has more than {MAX_REQUEST_BYTES} bytes; shorten it");
        let details = ErrorDetails::with_error_info(TOO_LARGE, DOMAIN, []);
        return Status::with_error_details(Code::ResourceExhausted, text, details);
    }
    Status::cancelled("the body of the request ended early")
}
