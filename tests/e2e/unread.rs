//! Tests of callers that never read a reply: their calls end, and the bytes of their replies are bounded.

use std::time::Duration;

use h2::RecvStream;
use h2::client::Builder;
use http::Response;
use palimpsest_proto::context::v1::{ListMessagesRequest, WatchSessionRequest};
use palimpsest_tests::say::{append, noise, user};
use palimpsest_tests::{Server, name, refused};
use prost::Message;
use tokio::time::{sleep, timeout};
use tonic::{Code, Status};

use crate::raw_connection::RawConnection;

/// A hang ends a test after this time.
const LIMIT: Duration = Duration::from_mins(3);

/// Opens a connection with a window of zero bytes for each reply. The server can send headers and trailers only.
async fn connect(server: &Server) -> RawConnection {
    let mut builder = Builder::new();
    builder.initial_window_size(0);
    RawConnection::open(server, &builder).await
}

/// Sends a call, and waits for the headers of the reply.
async fn call(
    connection: &RawConnection,
    method: &str,
    request: &impl Message,
) -> Response<RecvStream> {
    let reply = connection.call(method, request).await;
    timeout(LIMIT, reply).await.unwrap().unwrap()
}

/// Waits for the end of a reply without granting any window. Returns the status in its trailers.
async fn ended(reply: Response<RecvStream>) -> Status {
    assert!(Status::from_header_map(reply.headers()).is_none());
    let mut body = reply.into_body();
    let data = timeout(LIMIT, body.data()).await;
    let data = data.expect("the reply never ended");
    assert!(data.is_none(), "data without a window: {data:?}");
    let trailers = body.trailers().await.unwrap().unwrap();
    Status::from_header_map(&trailers).unwrap()
}

async fn append_text(server: &Server, session: &str, text: &str) {
    let request = append(&name(session), vec![user(text)]);
    server
        .context()
        .await
        .append_messages(request)
        .await
        .unwrap();
}

fn list(session: &str) -> ListMessagesRequest {
    ListMessagesRequest {
        session: name(session),
        ..ListMessagesRequest::default()
    }
}

#[tokio::test]
async fn a_reply_that_is_never_read_ends_after_the_stall_timeout() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &["--set", "grpc.stall_timeout_ms=1000"]);
    append_text(&server, "stalled", "hello").await;
    let unread = connect(&server).await;
    let request = list("stalled");
    let reply = call(&unread, "SessionService/ListMessages", &request).await;
    refused(&ended(reply).await, Code::ResourceExhausted, "OVERLOADED");
}

#[tokio::test]
async fn a_watcher_that_never_reads_is_ended() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &["--set", "grpc.stall_timeout_ms=1000"]);
    append_text(&server, "watched", "hello").await;
    let watch = WatchSessionRequest {
        session: name("watched"),
        after_revision: Some(0),
        ..WatchSessionRequest::default()
    };
    let unread = connect(&server).await;
    let reply = call(&unread, "SessionService/WatchSession", &watch).await;
    refused(&ended(reply).await, Code::ResourceExhausted, "OVERLOADED");
    // The contract says that the watcher can resume.
    let mut sessions = server.sessions().await;
    let mut resumed = sessions.watch_session(watch).await.unwrap().into_inner();
    let event = timeout(LIMIT, resumed.message()).await.unwrap().unwrap();
    assert!(event.is_some());
}

#[tokio::test]
async fn the_bytes_of_unread_replies_are_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let settings = [
        "--set",
        "grpc.max_reply_bytes_in_flight=1048576",
        // Unread replies stay for the whole test.
        "--set",
        "grpc.stall_timeout_ms=3600000",
        // Only the bytes of replies may reject a call.
        "--set",
        "grpc.max_slowdown_percent=10000",
    ];
    let server = Server::start(folder.path(), &settings);
    append_text(&server, "large", &noise(1, 100_000)).await;
    let unread = connect(&server).await;
    let call = async || call(&unread, "SessionService/ListMessages", &list("large")).await;
    let mut held = Vec::new();
    let status = loop {
        let reply = call().await;
        if let Some(status) = Status::from_header_map(reply.headers()) {
            break status;
        }
        held.push(reply);
        // Each reply has at least 100,000 bytes, so ten of them exceed the limit.
        assert!(held.len() <= 10, "the bytes of replies are not bounded");
    };
    refused(&status, Code::ResourceExhausted, "OVERLOADED");
    assert!(!held.is_empty(), "a single reply is rejected");
    // Abandoned replies release their bytes.
    held.clear();
    let released = async {
        while Status::from_header_map(call().await.headers()).is_some() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(LIMIT, released).await.unwrap();
}
