//! Connections end by themselves, and nobody who uses them well notices.

use std::io::{Read as _, Write as _};
use std::time::Duration;

use palimpsest_tests::name;
use palimpsest_tests::say::{append, user};
use palimpsest_tests::server::Server;
use tokio::time::Instant;
use tonic::Code;

#[tokio::test]
async fn a_client_sees_no_failed_call_when_its_connection_is_old() {
    let folder = tempfile::tempdir().unwrap();
    let aged = ["--set", "grpc.max_connection_age_ms=1000"];
    let server = Server::start(folder.path(), &aged);
    let client = server.context().await;
    let began = Instant::now();
    let callers = (0..4).map(|caller| {
        let mut client = client.clone();
        async move {
            let mut calls = 0;
            while began.elapsed() < Duration::from_secs(4) {
                let request = append(&name(&format!("age{caller}")), vec![user("x")]);
                if let Err(status) = client.append_messages(request.clone()).await {
                    // A call that the closing connection took no more never reached the server. Other
                    // clients than this one make it again by themselves.
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

/// A peer that greets and is never heard of again, as behind a router that forgot it.
#[tokio::test]
async fn a_peer_that_does_not_answer_is_dropped() {
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
    // Its end, or a reset.
    let ended = tokio::task::spawn_blocking(move || match peer.read_to_end(&mut heard) {
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    });
    assert!(ended.await.unwrap(), "the connection is still open");
    assert!(began.elapsed() < Duration::from_mins(2));
}
