//! Tests that connections with a maximum age end without an effect on well-behaved callers.

use std::io::{Read as _, Write as _};
use std::time::Duration;

use palimpsest_tests::name;
use palimpsest_tests::say::{append, user};
use palimpsest_tests::server::Server;
use tokio::time::Instant;
use tonic::Code;

#[tokio::test]
async fn calls_continue_beyond_the_maximum_connection_age() {
    let folder = tempfile::tempdir().unwrap();
    let aged = ["--set", "grpc.max_connection_age_ms=1000"];
    let server = Server::start(folder.path(), &aged);
    let client = server.context().await;
    let began = Instant::now();
    let callers = (0..4).map(|caller| {
        let mut client = client.clone();
        async move {
            let mut calls = 0;
            // Four seconds span several connections, because each one lives for about a second.
            while began.elapsed() < Duration::from_secs(4) {
                let request = append(&name(&format!("age{caller}")), vec![user("x")]);
                if let Err(status) = client.append_messages(request.clone()).await {
                    // The closing connection did not accept this call, so it never reached the server. Other clients
                    // retry it automatically.
                    assert_eq!(status.code(), Code::Cancelled, "{status:?}");
                    client.append_messages(request).await.unwrap();
                }
                calls += 1;
            }
            calls
        }
    });
    let calls: Vec<u32> = futures::future::join_all(callers).await;
    assert!(calls.iter().all(|calls| *calls > 5), "{calls:?}");
}

/// The peer sends a greeting and then never answers, like a peer behind a router that lost its state.
#[tokio::test]
async fn an_unresponsive_peer_is_disconnected() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(
        folder.path(),
        &[
            "--set",
            "grpc.keepalive_ms=1000",
            "--set",
            "grpc.keepalive_timeout_ms=500",
        ],
    );
    let mut peer = std::net::TcpStream::connect(server.address()).unwrap();
    peer.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    // Empty settings.
    peer.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).unwrap();
    let began = Instant::now();
    peer.set_read_timeout(Some(Duration::from_mins(2))).unwrap();
    let mut heard = Vec::new();
    // The end of the connection, or a reset.
    let ended = tokio::task::spawn_blocking(move || match peer.read_to_end(&mut heard) {
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    });
    assert!(ended.await.unwrap(), "the connection is still open");
    assert!(began.elapsed() < Duration::from_mins(2));
}
