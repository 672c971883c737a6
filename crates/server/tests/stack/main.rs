//! The layers around every call, over a real socket with handlers that misbehave on request.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should fail")]

mod double;
mod health;
mod shutdown;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use palimpsest_proto::context::v1;
use palimpsest_proto::context::v1::context_service_client::ContextServiceClient;
use palimpsest_proto::context::v1::session_service_client::SessionServiceClient;
use palimpsest_server::grpc::Services;
use palimpsest_server::serve::{App, ServeError, Server};
use palimpsest_settings::Config;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status};
use tonic_types::StatusExt as _;

use double::{Double, State};

/// A server with the test handlers.
struct Stack {
    state: Arc<State>,
    address: SocketAddr,
    admin: SocketAddr,
    stop: CancellationToken,
    running: JoinHandle<Result<(), ServeError>>,
}

fn loopback() -> Config {
    let any = "127.0.0.1:0".parse().unwrap();
    let mut config = Config {
        listen: any,
        ..Config::default()
    };
    config.admin.listen = any;
    // With the default of five seconds, the tests of readiness would be slow.
    config.store.canary_every_ms = 20;
    config
}

impl Stack {
    async fn start() -> Self {
        Self::with(|_| {}).await
    }

    async fn with(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = loopback();
        change(&mut config);
        let state = State::new();
        let server = Server::bind(config).await.unwrap();
        // Port 0 was bound, so the assigned addresses are read before the server runs.
        let (address, admin) = (server.address().unwrap(), server.admin_address().unwrap());
        let stop = CancellationToken::new();
        let (token, shared) = (stop.clone(), Arc::clone(&state));
        let running = tokio::spawn(server.run(
            async move |context| {
                let double = Double {
                    state: Arc::clone(&shared),
                    mutations: context.mutations,
                };
                let services = Services {
                    context: double.clone(),
                    sessions: double.clone(),
                    admin: double,
                };
                Ok(App {
                    engine: None,
                    tools: None,
                    quotas: None,
                    routes: services.into_routes(&context.config.limits),
                    backend: shared,
                })
            },
            token,
        ));
        Self {
            state,
            address,
            admin,
            stop,
            running,
        }
    }

    async fn channel(&self) -> Channel {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).unwrap();
        endpoint.tcp_nodelay(true).connect().await.unwrap()
    }

    async fn context(&self) -> ContextServiceClient<Channel> {
        ContextServiceClient::new(self.channel().await)
    }

    async fn sessions(&self) -> SessionServiceClient<Channel> {
        SessionServiceClient::new(self.channel().await)
    }
}

type Appended = Result<Response<v1::AppendMessagesResponse>, Status>;

async fn append(client: &mut ContextServiceClient<Channel>, session: &str) -> Appended {
    let request = v1::AppendMessagesRequest {
        session: session.to_owned(),
        ..Default::default()
    };
    client.append_messages(request).await
}

/// Starts a call that runs while the test continues.
fn append_aside(
    client: &ContextServiceClient<Channel>,
    session: &'static str,
) -> JoinHandle<Appended> {
    let mut client = client.clone();
    tokio::spawn(async move { append(&mut client, session).await })
}

#[track_caller]
fn check(status: &Status, code: Code, reason: &str) {
    let info = status.get_details_error_info();
    let info = info.unwrap_or_else(|| panic!("no ErrorInfo: {status:?}"));
    assert_eq!(
        (status.code(), info.reason.as_str(), info.domain.as_str()),
        (code, reason, "palimpsest"),
        "{status:?}"
    );
}

#[tokio::test]
async fn a_panic_fails_only_its_call() {
    let stack = Stack::start().await;
    let mut client = stack.context().await;
    let slow = append_aside(&client, "slow");
    stack.state.has_begun().await;
    let status = append(&mut client, "panic").await.unwrap_err();
    check(&status, Code::Internal, "INTERNAL");
    assert!(!status.message().contains("on purpose"), "{status:?}");
    stack.state.released.add_permits(1);
    slow.await.unwrap().unwrap();
    append(&mut client, "fine").await.unwrap();
}

#[tokio::test]
async fn a_panic_of_a_stream_ends_only_that_stream() {
    let stack = Stack::start().await;
    let mut client = stack.context().await;
    let reply = client.stream_context(v1::StreamContextRequest::default());
    let mut stream = reply.await.unwrap().into_inner();
    assert!(stream.message().await.unwrap().is_some());
    let status = stream.message().await.unwrap_err();
    check(&status, Code::Internal, "INTERNAL");
    append(&mut client, "fine").await.unwrap();
}

#[tokio::test]
async fn an_internal_error_contains_the_trace_id_only() {
    let stack = Stack::start().await;
    let mut client = stack.context().await;
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let mut request = Request::new(v1::AppendMessagesRequest {
        session: "internal".into(),
        ..Default::default()
    });
    let context = format!("00-{trace}-00f067aa0ba902b7-01").parse().unwrap();
    request.metadata_mut().insert("traceparent", context);
    let status = client.append_messages(request).await.unwrap_err();
    check(&status, Code::Internal, "INTERNAL");
    let info = status.get_details_error_info().unwrap();
    assert_eq!(info.metadata["trace_id"], trace);
    assert!(!format!("{status:?}").contains("SECRET"));
}

#[tokio::test]
async fn overload_is_rejected_immediately_with_a_retry_delay() {
    let stack = Stack::with(|config| config.grpc.max_concurrent_requests = 1).await;
    let mut client = stack.context().await;
    let slow = append_aside(&client, "slow");
    stack.state.has_begun().await;

    let status = append(&mut client, "fine").await.unwrap_err();
    check(&status, Code::ResourceExhausted, "OVERLOADED");
    let retry = status.get_details_retry_info().unwrap();
    assert!(retry.retry_delay.unwrap() > Duration::ZERO);
    // Health checks and streams neither use the permit of a call nor wait for one.
    health::check_named(&stack, "").await.unwrap();
    let mut sessions = stack.sessions().await;
    let watch = sessions.watch_session(v1::WatchSessionRequest::default());
    assert!(watch.await.unwrap().into_inner().message().await.is_ok());

    stack.state.released.add_permits(1);
    slow.await.unwrap().unwrap();
    append(&mut client, "fine").await.unwrap();
}

#[tokio::test]
async fn watches_have_a_separate_limit() {
    let stack = Stack::with(|config| config.grpc.max_watches = 1).await;
    let mut sessions = stack.sessions().await;
    let watch = v1::WatchSessionRequest::default();
    let first = sessions.watch_session(watch.clone()).await.unwrap();
    let status = sessions.watch_session(watch).await.unwrap_err();
    check(&status, Code::ResourceExhausted, "OVERLOADED");
    drop(first);
    append(&mut stack.context().await, "fine").await.unwrap();
}

#[tokio::test]
async fn a_call_without_a_deadline_gets_the_default() {
    let stack = Stack::with(|config| config.grpc.request_timeout_ms = 30).await;
    let status = append(&mut stack.context().await, "slow")
        .await
        .unwrap_err();
    check(&status, Code::DeadlineExceeded, "DEADLINE_EXCEEDED");
}

#[tokio::test]
async fn a_long_deadline_is_reduced_to_the_maximum() {
    let stack = Stack::with(|config| config.grpc.max_request_timeout_ms = 30).await;
    let mut request = Request::new(v1::AppendMessagesRequest {
        session: "slow".into(),
        ..Default::default()
    });
    request.set_timeout(Duration::from_mins(10));
    let mut client = stack.context().await;
    let status = client.append_messages(request).await.unwrap_err();
    check(&status, Code::DeadlineExceeded, "DEADLINE_EXCEEDED");
}

#[tokio::test]
async fn a_too_large_request_is_rejected_with_error_details() {
    let stack = Stack::with(|config| config.limits.max_request_bytes = 1_024).await;
    let mut client = stack.context().await;
    append(&mut client, &"x".repeat(1_000)).await.unwrap();
    let status = append(&mut client, &"x".repeat(5_000_000))
        .await
        .unwrap_err();
    check(&status, Code::ResourceExhausted, "REQUEST_TOO_LARGE");
    let info = status.get_details_error_info().unwrap();
    assert_eq!(info.metadata["limit_bytes"], "1024");
    // The text, one byte for its tag and four bytes for its length.
    assert_eq!(info.metadata["size_bytes"], "5000005");
    append(&mut client, "fine").await.unwrap();
}

/// Sends a health reply, whose first field is a number, to a method with another request type.
async fn send_nonsense(stack: &Stack, path: &'static str) -> Status {
    let mut client = tonic::client::Grpc::new(stack.channel().await);
    client.ready().await.unwrap();
    let codec = tonic_prost::ProstCodec::<
        tonic_health::pb::HealthCheckResponse,
        v1::AppendMessagesResponse,
    >::default();
    let nonsense = tonic_health::pb::HealthCheckResponse { status: 1 };
    let path = http::uri::PathAndQuery::from_static(path);
    let reply = client.unary(Request::new(nonsense), path, codec).await;
    reply.unwrap_err()
}

#[tokio::test]
async fn a_malformed_body_is_an_invalid_argument() {
    let stack = Stack::start().await;
    let path = "/palimpsest.context.v1.ContextService/AppendMessages";
    let status = send_nonsense(&stack, path).await;
    check(&status, Code::InvalidArgument, "INVALID_FIELD");
}

#[tokio::test]
async fn an_unknown_method_is_named_in_the_error() {
    let stack = Stack::start().await;
    for path in [
        "/palimpsest.context.v1.ContextService/Nope",
        "/palimpsest.context.v9.ContextService/AppendMessages",
    ] {
        let status = send_nonsense(&stack, path).await;
        check(&status, Code::Unimplemented, "METHOD_NOT_IMPLEMENTED");
        let info = status.get_details_error_info().unwrap();
        assert_eq!(info.metadata["method"], &path[1..]);
    }
}

#[tokio::test]
async fn a_port_in_use_is_reported_with_its_setting() {
    let stack = Stack::start().await;
    let mut config = loopback();
    config.admin.listen = stack.admin;
    let error = Server::bind(config).await.unwrap_err().to_string();
    let start = format!("failed to listen on {} (admin.listen): ", stack.admin);
    assert!(error.starts_with(&start), "{error}");
}
