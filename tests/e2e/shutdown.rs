//! Tests of SIGTERM with calls in flight: they are answered, new calls are rejected, and the process exits with
//! success.

#![expect(
    clippy::disallowed_methods,
    reason = "a process takes real time to end"
)]

use std::process::ExitStatus;
use std::time::{Duration, Instant};

use futures::channel::oneshot;
use futures::{FutureExt as _, StreamExt as _};
use palimpsest_proto::context::v1::context_service_client::ContextServiceClient;
use palimpsest_proto::context::v1::{
    AppendMessagesRequest, AppendMessagesResponse, CompactionMode, ListMessagesRequest,
    ListSessionsRequest, PrepareContextResponse, StreamContextRequest, WatchSessionRequest,
};
use palimpsest_tests::say::{append, assistant, prepare, user, uuid, with_id};
use palimpsest_tests::server::{Context, Server};
use palimpsest_tests::{name, refused};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};

/// A drain time that no test reaches, so that every end has another cause. The worker is off, so that a watch receives
/// no other events.
const DRAIN: [&str; 4] = [
    "--set",
    "shutdown.drain_ms=600000",
    "--set",
    "worker.enabled=false",
];
/// Generous, because this limit must only detect hangs, also on a slow machine.
const SOON: Duration = Duration::from_mins(2);

/// Returns messages with ids from 0, of `bytes` bytes each.
fn large(count: u64, bytes: usize) -> Vec<palimpsest_proto::context::v1::MessageInput> {
    let said = |number| {
        let text = format!("{number} {}", "x".repeat(bytes));
        let said = if number % 2 == 0 {
            user(&text)
        } else {
            assistant(&text)
        };
        with_id(&uuid(number), said)
    };
    (0..count).map(said).collect()
}

type Appended = Result<Response<AppendMessagesResponse>, Status>;

/// Starts an append whose headers have arrived and whose body is sent on release. The call is in flight for as long as
/// the test needs.
async fn held(
    channel: &Channel,
    request: AppendMessagesRequest,
) -> (oneshot::Sender<()>, JoinHandle<Appended>) {
    let (release, released) = oneshot::channel();
    let (sent, head) = oneshot::channel();
    let body = async move {
        sent.send(()).unwrap();
        released.await.unwrap();
        request
    };
    let mut client = tonic::client::Grpc::new(channel.clone());
    let call = tokio::spawn(async move {
        let codec = tonic_prost::ProstCodec::default();
        let path = "/palimpsest.context.v1.ContextService/AppendMessages";
        let path = http::uri::PathAndQuery::from_static(path);
        client.ready().await.unwrap();
        let request = Request::new(body.into_stream().boxed());
        client.client_streaming(request, path, codec).await
    });
    head.await.unwrap();
    // One connection preserves the order, so after the reply to a later call the server has received these headers.
    let mut other = ContextServiceClient::new(channel.clone());
    let later = append(&name("later"), vec![user("x")]);
    other.append_messages(later).await.unwrap();
    (release, call)
}

/// Waits until the server accepts no connection.
async fn closed(server: &Server) {
    let began = Instant::now();
    while TcpStream::connect(server.address()).await.is_ok() {
        assert!(began.elapsed() < SOON, "the server still listens");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits for the end of the process on a blocking thread, so that the test continues.
async fn ended(server: Server) -> ExitStatus {
    let wait = tokio::task::spawn_blocking(move || server.wait());
    tokio::time::timeout(SOON, wait).await.unwrap().unwrap()
}

#[tokio::test]
async fn shutdown_completes_a_large_append_and_starts_nothing_new() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &DRAIN);
    let channel = server.channel().await;
    let request = append(&name("large"), large(8, 3_000_000));
    let (release, call) = held(&channel, request).await;

    server.signal("TERM");
    closed(&server).await;
    // Neither on the open connection, nor on a new one.
    let mut client = ContextServiceClient::new(channel);
    for _ in 0..3 {
        let late = append(&name("late"), vec![user("x")]);
        let status = client.append_messages(late).await.unwrap_err();
        let codes = [Code::Unavailable, Code::Cancelled];
        assert!(codes.contains(&status.code()), "{status:?}");
    }
    assert!(!call.is_finished());

    release.send(()).unwrap();
    let reply = call.await.unwrap().unwrap().into_inner();
    assert_eq!(reply.append.unwrap().messages.len(), 8);
    let status = ended(server).await;
    assert!(status.success(), "{status}");

    let server = Server::start(folder.path(), &[]);
    let mut sessions = server.sessions().await;
    let request = ListMessagesRequest {
        session: name("large"),
        omit_content: true,
        ..Default::default()
    };
    let listed = sessions.list_messages(request).await.unwrap().into_inner();
    let ids: Vec<_> = listed.messages.into_iter().map(|m| m.id).collect();
    assert_eq!(ids, (0..8).map(uuid).collect::<Vec<_>>());
    let request = ListSessionsRequest {
        parent: "projects/p".to_owned(),
        ..Default::default()
    };
    let listed = sessions.list_sessions(request).await.unwrap().into_inner();
    let found: Vec<_> = listed.sessions.into_iter().map(|s| s.name).collect();
    assert!(!found.contains(&name("late")), "{found:?}");
}

/// Creates a session with a view that is too large for one reply.
async fn large_view(client: &mut Context, session: &str) -> PrepareContextResponse {
    let request = append(session, large(13, 1_000_000));
    client.append_messages(request).await.unwrap();
    let mut request = prepare(session, Vec::new());
    request.set_compaction_mode(CompactionMode::Never);
    client.prepare_context(request).await.unwrap().into_inner()
}

#[tokio::test]
async fn shutdown_completes_a_streamed_view_and_ends_watches() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &DRAIN);
    let mut client = server.context().await;
    let session = name("streamed");
    let view = large_view(&mut client, &session).await;
    let watch = WatchSessionRequest {
        session: session.clone(),
        ..Default::default()
    };
    let mut sessions = server.sessions().await;
    let watch = sessions.watch_session(watch).await.unwrap();
    let mut watch = watch.into_inner();
    assert!(watch.message().await.unwrap().unwrap().caught_up);
    let request = StreamContextRequest {
        session,
        etag: view.etag,
        skip_messages: 0,
    };
    let mut chunks = client.stream_context(request).await.unwrap().into_inner();
    let mut first = chunks.message().await.unwrap().unwrap();
    assert!(!first.last);

    server.signal("TERM");
    let end = tokio::time::timeout(SOON, watch.message()).await.unwrap();
    refused(&end.unwrap_err(), Code::Unavailable, "NOT_SERVING");
    closed(&server).await;
    let mut bytes = 0;
    loop {
        bytes += first
            .messages_json
            .iter()
            .map(|m| m.len() as u64)
            .sum::<u64>();
        if first.last {
            break;
        }
        first = chunks.message().await.unwrap().unwrap();
    }
    assert_eq!(bytes, view.view_bytes);
    assert!(chunks.message().await.unwrap().is_none());
    let status = ended(server).await;
    assert!(status.success(), "{status}");
}

#[tokio::test]
async fn a_stalled_reader_does_not_extend_the_drain() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &["--set", "shutdown.drain_ms=500"]);
    let mut client = server.context().await;
    let session = name("unread");
    let view = large_view(&mut client, &session).await;
    let request = StreamContextRequest {
        session,
        etag: view.etag,
        skip_messages: 0,
    };
    let mut chunks = client.stream_context(request).await.unwrap().into_inner();
    chunks.message().await.unwrap().unwrap();

    server.signal("TERM");
    let began = Instant::now();
    let status = ended(server).await;
    assert!(status.success(), "{status}");
    let took = began.elapsed();
    // The reader takes nothing, so only the drain time ends the stream.
    assert!(took >= Duration::from_millis(500), "{took:?}");
    // Sent data can still be read. Then the connection closes.
    let mut is_whole = false;
    let end = loop {
        match chunks.message().await {
            Ok(Some(chunk)) => is_whole |= chunk.last,
            Ok(None) => break None,
            Err(status) => break Some(status.code()),
        }
    };
    assert!(!is_whole, "the stalled reader received the whole stream");
    assert_ne!(end, None, "a partial stream ended without an error");
}
