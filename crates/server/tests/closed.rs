//! With authentication on, a handler without an authenticated caller returns an internal error.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should fail")]

use std::sync::Arc;

use palimpsest_conformance::MemoryLog;
use palimpsest_core::ids::Timestamp;
use palimpsest_core::limits::Limits;
use palimpsest_core::policy::Overlay;
use palimpsest_engine::clock::{Clock, IdSource, ManualClock};
use palimpsest_engine::sessions::{DefaultPolicies, Sessions};
use palimpsest_proto::context::v1::context_service_server::ContextService as _;
use palimpsest_proto::context::v1::session_service_server::SessionService as _;
use palimpsest_proto::context::v1::{
    AppendMessagesRequest, CallToolRequest, GetSessionRequest, ListSessionsRequest,
};
use palimpsest_server::grpc::{CallContext, Mutations};
use palimpsest_server::services::{ContextHandlers, Service, SessionHandlers};
use palimpsest_store::blobs::Blobs;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request};

fn service() -> Service {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(Timestamp::from_millis(1)));
    let blobs = Arc::new(Blobs::in_memory());
    let sessions = Sessions::new(
        Arc::new(MemoryLog::new()),
        Arc::clone(&clock),
        Arc::new(Limits::default()),
        DefaultPolicies::new(&Overlay::default(), []).unwrap(),
        1 << 20,
    );
    Service::new(
        Arc::new(sessions.with_blobs(Arc::clone(&blobs))),
        blobs,
        Arc::new(IdSource::random(clock)),
        Mutations::default(),
        CancellationToken::new(),
    )
}

#[tokio::test]
async fn a_handler_without_a_principal_returns_internal() {
    let session = || "projects/p/sessions/s".to_owned();
    let service = service().with_authentication(true);
    let context = ContextHandlers(service.clone());
    let sessions = SessionHandlers(service);
    // The first request has passed no layer. The second one has passed them, but without authentication.
    for call in [None, Some(CallContext::default())] {
        macro_rules! internal {
            ($handlers:ident.$rpc:ident($message:expr)) => {
                let mut request = Request::new($message);
                if let Some(call) = &call {
                    request.extensions_mut().insert(call.clone());
                }
                let status = $handlers.$rpc(request).await.unwrap_err();
                assert_eq!(status.code(), Code::Internal, "{status:?}");
            };
        }
        internal!(context.append_messages(AppendMessagesRequest {
            session: session(),
            ..AppendMessagesRequest::default()
        }));
        internal!(context.call_tool(CallToolRequest {
            session: session(),
            ..CallToolRequest::default()
        }));
        internal!(sessions.get_session(GetSessionRequest {
            session: session(),
            ..GetSessionRequest::default()
        }));
        // An invalid resource name gives the same error.
        internal!(sessions.list_sessions(ListSessionsRequest::default()));
    }
}

#[tokio::test]
async fn handlers_work_without_authentication() {
    let sessions = SessionHandlers(service());
    let request = ListSessionsRequest {
        parent: "projects/p".into(),
        ..ListSessionsRequest::default()
    };
    sessions.list_sessions(Request::new(request)).await.unwrap();
}
