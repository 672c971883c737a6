//! A server without a network: the handlers on a log in memory, called in the same way as tonic does.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use http::{HeaderMap, Request};
use http_body::Body as _;
use palimpsest_conformance::MemoryLog;
use palimpsest_core::ids::Timestamp;
use palimpsest_core::limits::Limits;
use palimpsest_core::policy::Overlay;
use palimpsest_engine::call::Deadline;
use palimpsest_engine::clock::{Clock, IdSource, ManualClock};
use palimpsest_engine::sessions::{DefaultPolicies, Sessions};
use palimpsest_server::grpc::{CallContext, Mutations, Services};
use palimpsest_server::services::{AdminHandlers, ContextHandlers, Service, SessionHandlers};
use palimpsest_store::blobs::Blobs;
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::service::Routes;
use tonic::{Code, Status};
use tower::ServiceExt as _;

/// Limits so low that every level acts on few messages.
const POLICY: &str = "
tool_results = { max_result_chars = 700, max_message_chars = 1000, preview_chars = 100 }
microcompact.cached = { over_results = 1, keep_results = 1 }
microcompact.size = { keep_results = 1 }
autocompact = { min_input_tokens = 0 }
collapse = { enabled = true, min_freed_tokens = 1, max_risk = 1.0, pass_every_tokens = 50 }
";
/// Maximum wait of a call. Most runs contain a call that waits for an event that never occurs.
const TIMEOUT: Duration = Duration::from_millis(5);
/// Maximum number of messages that are read from a stream. A watch has no end.
const MAX_REPLIES: usize = 64;
/// The bytes before each message: a flag and the length.
const PREFIX: usize = 5;

pub(super) struct Server {
    runtime: Runtime,
    routes: Routes,
}

/// The outcome of a call.
pub(super) struct Answer {
    pub(super) code: Code,
    pub(super) message: String,
    pub(super) bodies: Vec<Bytes>,
}

impl Server {
    pub(super) fn new() -> Self {
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(Timestamp::from_millis(1)));
        let blobs = Arc::new(Blobs::in_memory());
        let limits = Arc::new(Limits::default());
        let policy = Overlay::from_toml(POLICY).unwrap();
        let sessions = Sessions::new(
            Arc::new(MemoryLog::new()),
            Arc::clone(&clock),
            Arc::clone(&limits),
            DefaultPolicies::new(&policy, []).unwrap(),
            1 << 20,
        );
        let service = Service::new(
            Arc::new(sessions.with_blobs(Arc::clone(&blobs))),
            blobs,
            Arc::new(IdSource::random(clock)),
            Mutations::default(),
            CancellationToken::new(),
        );
        let services = Services {
            context: ContextHandlers(service.clone()),
            sessions: SessionHandlers(service.clone()),
            admin: AdminHandlers(service),
        };
        Self {
            runtime: Builder::new_current_thread().enable_all().build().unwrap(),
            routes: services.into_routes(&limits),
        }
    }

    pub(super) fn call(&self, path: &str, message: &[u8]) -> Answer {
        let mut frame = BytesMut::with_capacity(PREFIX + message.len());
        // gRPC's frame: a flag (0 for uncompressed), the length as four bytes in big endian, and the message.
        frame.extend_from_slice(&[0]);
        frame.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
        frame.extend_from_slice(message);
        let mut request = Request::post(path)
            .header("content-type", "application/grpc")
            .body(Body::new(http_body_util::Full::new(frame.freeze())))
            .unwrap();
        let deadline = Deadline::after(TIMEOUT);
        request.extensions_mut().insert(deadline);
        request.extensions_mut().insert(CallContext::default());
        let routes = self.routes.clone();
        self.runtime
            .block_on(deadline.scope(async { read(routes.oneshot(request).await.unwrap()).await }))
    }
}

async fn read(response: http::Response<Body>) -> Answer {
    let (head, mut body) = response.into_parts();
    // A call that fails before its first message has its status in the head, without trailers.
    let mut status = Status::from_header_map(&head.headers);
    let mut received = BytesMut::new();
    let mut bodies = Vec::new();
    while bodies.len() < MAX_REPLIES {
        let next = std::future::poll_fn(|cx| std::pin::Pin::new(&mut body).poll_frame(cx));
        // A stream without a message within the time limit counts as read.
        let Ok(Some(frame)) = tokio::time::timeout(TIMEOUT, next).await else {
            break;
        };
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => {
                status = Some(error);
                break;
            }
        };
        match frame.into_data() {
            Ok(data) => received.extend_from_slice(&data),
            Err(frame) => {
                let trailers = frame.into_trailers().unwrap_or_else(|_| HeaderMap::new());
                status = Status::from_header_map(&trailers).or(status);
            }
        }
        bodies.extend(std::iter::from_fn(|| message(&mut received)));
    }
    let status = status.unwrap_or_else(|| Status::ok(""));
    Answer {
        code: status.code(),
        message: status.message().to_owned(),
        bodies,
    }
}

/// Returns the next complete message.
fn message(received: &mut BytesMut) -> Option<Bytes> {
    let length = received.get(1..PREFIX)?;
    let length = u32::from_be_bytes(length.try_into().unwrap()) as usize;
    if received.len() < PREFIX + length {
        return None;
    }
    received.advance(PREFIX);
    Some(received.split_to(length).freeze())
}
