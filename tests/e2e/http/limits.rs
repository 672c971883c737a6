//! The limits of gRPC calls apply to all protocols.

use std::time::Duration;

use palimpsest_tests::server::Server;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{Caller, reason_of, session};

/// A hang ends a test after this time.
const LIMIT: Duration = Duration::from_mins(3);

#[tokio::test]
async fn a_body_above_the_limit_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(
        folder.path(),
        &[
            "--set",
            "limits.max_request_bytes=1048576",
            "--set",
            "limits.max_message_bytes=1048576",
        ],
    );
    let caller = Caller::new(server.address());
    let path = format!("{}:sync", session("large"));
    let body = |size: usize| json!({"messages": [{"role": "user", "content": "x".repeat(size)}]});
    caller.ok(caller.post(&path, &body(900_000))).await;
    let error = caller
        .rejected(
            caller.post(&path, &body(1_100_000)),
            413,
            "REQUEST_TOO_LARGE",
        )
        .await;
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("limits.max_request_bytes"),
        "{error}"
    );
    // The rest of a long body is not received, so the client is told to use another connection.
    let rejected = caller.post(&path, &body(1_900_000)).send().await.unwrap();
    assert_eq!(rejected.headers()["connection"], "close");
    // Without a length in advance too.
    let text = body(1_100_000).to_string().into_bytes();
    let parts = text
        .chunks(64 * 1024)
        .map(|part| Ok::<_, std::io::Error>(part.to_vec()))
        .collect::<Vec<_>>();
    let stream = reqwest::Body::wrap_stream(futures::stream::iter(parts));
    let request = caller.post(&path, &Value::Null).body(stream);
    caller.rejected(request, 413, "REQUEST_TOO_LARGE").await;
}

#[tokio::test]
async fn a_deadline_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    // Without the deadline of the caller, the server would wait an hour for the rest of the body.
    let settings = [
        "grpc.stall_timeout_ms=3600000",
        "grpc.body_timeout_ms=3600000",
        "grpc.request_timeout_ms=3600000",
        "grpc.max_request_timeout_ms=3600000",
    ];
    let settings = settings.map(|setting| ["--set", setting]).concat();
    let server = Server::start(folder.path(), &settings);
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    // The head announces 100 bytes, and one byte arrives.
    let head = "POST /v1/projects/http/sessions/late:sync HTTP/1.1\r\nhost: localhost\r\nconnect-timeout-ms: 300\r\ncontent-length: 100\r\n\r\n{";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = vec![0; 4_096];
    let read = tokio::time::timeout(LIMIT, stream.read(&mut answer)).await;
    let read = read.expect("the deadline is ignored").unwrap();
    let answer = String::from_utf8_lossy(&answer[..read]);
    assert!(answer.starts_with("HTTP/1.1 504"), "{answer}");
    assert!(answer.contains("DEADLINE_EXCEEDED"), "{answer}");
    let invalid = Caller::new(server.address())
        .get(&session("late"))
        .header("connect-timeout-ms", "soon");
    assert_eq!(invalid.send().await.unwrap().status(), 400);
}

#[tokio::test]
async fn a_body_that_stalls_ends_with_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &["--set", "grpc.stall_timeout_ms=500"]);
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    let head = "POST /v1/projects/http/sessions/s:sync HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = vec![0; 4_096];
    let read = stream.read(&mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer[..read]);
    assert!(answer.starts_with("HTTP/1.1 504"), "{answer}");
    assert!(answer.contains("DEADLINE_EXCEEDED"), "{answer}");
}

#[tokio::test]
async fn a_shutdown_answers_requests_in_flight_and_rejects_others() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let caller = Caller::new(server.address());
    let path = session("drained");
    let body = json!({"messages": [{"role": "user", "content": "hi"}]});
    caller.ok(caller.post(&format!("{path}:sync"), &body)).await;
    let watch = caller
        .get(&format!("{path}/events:watch"))
        .send()
        .await
        .unwrap();
    server.signal("TERM");
    // The stream ends with the reason.
    let text = watch.text().await.unwrap();
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(reason_of(&last["error"]), "NOT_SERVING", "{text}");
    assert!(server.wait().success());
}
