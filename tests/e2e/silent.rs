//! Tests of callers that connect and then send nothing, or too little: they use no place of other callers for long.

use std::time::Duration;

use bytes::Bytes;
use h2::Ping;
use h2::client::Builder;
use palimpsest_proto::context::v1::WatchSessionRequest;
use palimpsest_tests::say::{append, user};
use palimpsest_tests::{Server, name};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::raw_connection::RawConnection;

/// A hang ends a test after this time.
const LIMIT: Duration = Duration::from_mins(3);

async fn connect(server: &Server) -> RawConnection {
    RawConnection::open(server, &Builder::new()).await
}

/// Appends a message on a connection.
async fn append_on(connection: &RawConnection, text: &str) {
    let request = append(&name("used"), vec![user(text)]);
    let reply = connection
        .call("ContextService/AppendMessages", &request)
        .await;
    let reply = timeout(LIMIT, reply).await.unwrap().unwrap();
    let mut body = reply.into_body();
    while let Some(data) = body.data().await {
        let read = data.unwrap().len();
        body.flow_control().release_capacity(read).unwrap();
    }
    let trailers = body.trailers().await.unwrap().unwrap();
    assert_eq!(trailers["grpc-status"], "0", "{trailers:?}");
}

#[tokio::test]
async fn a_connection_without_a_call_is_closed_and_a_used_one_stays() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(
        folder.path(),
        &[
            "--set",
            "grpc.first_call_timeout_ms=500",
            "--set",
            "grpc.keepalive_ms=1000",
        ],
    );
    let used = connect(&server).await;
    append_on(&used, "first").await;
    let mut silent = connect(&server).await;
    let ended = timeout(LIMIT, silent.driver.join_next()).await;
    ended.expect("the silent connection is still open");
    // The used connection was idle for longer.
    append_on(&used, "second").await;
}

#[tokio::test]
async fn health_watches_use_no_place_of_session_watches() {
    const HEALTH_WATCHES: usize = 4;
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(
        folder.path(),
        &[
            "--set",
            "grpc.max_health_watches=4",
            "--set",
            "grpc.max_watches=1",
        ],
    );
    let said = append(&name("watched"), vec![user("hello")]);
    server.context().await.append_messages(said).await.unwrap();
    let mut health = HealthClient::new(server.channel().await);
    let mut held = Vec::new();
    for _ in 0..HEALTH_WATCHES {
        let watch = health.watch(HealthCheckRequest::default()).await;
        held.push(watch.unwrap());
    }
    let more = health.watch(HealthCheckRequest::default()).await;
    assert_eq!(more.unwrap_err().code(), Code::ResourceExhausted);
    let request = WatchSessionRequest {
        session: name("watched"),
        ..WatchSessionRequest::default()
    };
    let watch = server.sessions().await.watch_session(request).await;
    watch.expect("the health watches took the place of a session watch");
}

#[tokio::test]
async fn an_incomplete_request_uses_no_place_of_a_call() {
    const INCOMPLETE: usize = 8;
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &["--set", "grpc.max_concurrent_requests=1"]);
    let mut silent = connect(&server).await;
    let mut held = Vec::new();
    for _ in 0..INCOMPLETE {
        // The frame announces 100 bytes, and one arrives.
        let begin = Bytes::from_static(&[0, 0, 0, 0, 100, 1]);
        held.push(silent.begin("ContextService/AppendMessages", begin).await);
    }
    // The server has read the incomplete requests when it answers a later PING.
    let ping = timeout(LIMIT, silent.pings.ping(Ping::opaque())).await;
    ping.unwrap().unwrap();
    for number in 0..20 {
        let said = append(&name("whole"), vec![user(&format!("text {number}"))]);
        let done = server.context().await.append_messages(said).await;
        done.expect("the incomplete requests use the place of a call");
    }
    let ended = silent.driver.try_join_next();
    assert!(ended.is_none(), "the connection has ended");
}

#[tokio::test]
async fn silent_connections_of_the_admin_port_are_limited() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    // More than the admin port permits at any limit of file handles.
    let mut silent = Vec::new();
    for _ in 0..80 {
        silent.push(TcpStream::connect(server.admin()).await.unwrap());
    }
    let evicted = || {
        let log = server.log();
        log.iter()
            .any(|line| line.contains("evicted a connection for a new one"))
    };
    let mut waited = Duration::ZERO;
    while !evicted() {
        assert!(waited < LIMIT, "no connection was evicted");
        sleep(Duration::from_millis(20)).await;
        waited += Duration::from_millis(20);
    }
    // A new connection still gets an answer.
    assert!(server.is_ready());
}
