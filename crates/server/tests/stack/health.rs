//! Health, readiness, reflection and the admin port.

use std::sync::atomic::Ordering;
use std::time::Duration;

use palimpsest_server::grpc::{LIVENESS, READINESS};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::Stack;

pub(crate) async fn check_named(stack: &Stack, name: &str) -> Result<ServingStatus, Status> {
    let mut client = HealthClient::new(stack.channel().await);
    let request = HealthCheckRequest {
        service: name.to_owned(),
    };
    Ok(client.check(request).await?.into_inner().status())
}

async fn becomes(stack: &Stack, name: &str, wanted: ServingStatus) {
    // The server checks its store every 20 ms, so the state changes some time after the flag.
    for _ in 0..200 {
        if check_named(stack, name).await.unwrap() == wanted {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{name:?} never became {wanted:?}");
}

/// Sends a plain HTTP request to the admin port. Returns the status line and the body.
async fn get(stack: &Stack, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(stack.admin).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

#[tokio::test]
async fn readiness_follows_the_store_and_liveness_does_not() {
    let stack = Stack::start().await;
    let names = [
        "",
        READINESS,
        "palimpsest.context.v1.ContextService",
        "palimpsest.context.v1.SessionService",
    ];
    for name in names {
        becomes(&stack, name, ServingStatus::Serving).await;
    }
    assert_eq!(get(&stack, "/readyz").await.0, "HTTP/1.1 200 OK");

    stack.state.healthy.store(false, Ordering::SeqCst);
    for name in names {
        becomes(&stack, name, ServingStatus::NotServing).await;
    }
    assert_eq!(
        get(&stack, "/readyz").await.0,
        "HTTP/1.1 503 Service Unavailable"
    );
    // A restart does not repair a store, so the process stays alive for its orchestrator.
    assert_eq!(get(&stack, "/healthz").await.0, "HTTP/1.1 200 OK");
    let lives = check_named(&stack, LIVENESS).await.unwrap();
    assert_eq!(lives, ServingStatus::Serving);

    stack.state.healthy.store(true, Ordering::SeqCst);
    becomes(&stack, READINESS, ServingStatus::Serving).await;
    let unknown = check_named(&stack, "nobody").await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
}

#[tokio::test]
async fn metrics_count_calls_in_flight() {
    let stack = Stack::start().await;
    let client = stack.context().await;
    let slow = crate::append_aside(&client, "slow");
    stack.state.has_begun().await;
    let (status, body) = get(&stack, "/metrics").await;
    assert_eq!(status, "HTTP/1.1 200 OK");
    assert!(
        body.contains("\npalimpsest_rpc_in_flight{kind=\"call\"} 1\n"),
        "{body}"
    );
    stack.state.released.add_permits(1);
    slow.await.unwrap().unwrap();
}

/// Returns the services that a version of reflection lists.
macro_rules! listed {
    ($stack:expr, $version:ident) => {{
        use tonic_reflection::pb::$version::server_reflection_client::ServerReflectionClient;
        use tonic_reflection::pb::$version::server_reflection_request::MessageRequest;
        use tonic_reflection::pb::$version::server_reflection_response::MessageResponse;
        let mut client = ServerReflectionClient::new($stack.channel().await);
        let ask = tonic_reflection::pb::$version::ServerReflectionRequest {
            host: String::new(),
            message_request: Some(MessageRequest::ListServices(String::new())),
        };
        let replies = client.server_reflection_info(tokio_stream::once(ask));
        let reply = replies.await.unwrap().into_inner().message().await.unwrap();
        let Some(MessageResponse::ListServicesResponse(list)) = reply.unwrap().message_response
        else {
            panic!("not a list");
        };
        let mut names: Vec<_> = list.service.into_iter().map(|s| s.name).collect();
        names.sort();
        names
    }};
}

#[tokio::test]
async fn both_reflection_versions_list_the_served_services() {
    let stack = Stack::start().await;
    let expected = [
        "grpc.health.v1.Health",
        "palimpsest.context.v1.AdminService",
        "palimpsest.context.v1.ContextService",
        "palimpsest.context.v1.SessionService",
    ];
    assert_eq!(listed!(stack, v1), expected);
    assert_eq!(listed!(stack, v1alpha), expected);
}
