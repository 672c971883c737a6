//! Limits, time-outs and the drain.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};

use crate::raw::{
    End, REQUEST, configured_gateway, connect, gateway, in_time, read_message, read_to_end,
    upstream,
};

const EMPTY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// Sends a request and returns the first line and the body of the answer.
async fn answer(client: &mut TcpStream, request: &[u8]) -> (String, String) {
    client.write_all(request).await.unwrap();
    let answer = read_message(client).await.unwrap();
    let head = answer.head_text();
    (head.lines().next().unwrap().to_owned(), answer.body_text())
}

#[tokio::test]
async fn a_request_above_the_limit_is_rejected_until_another_ends() {
    in_time(async {
        let (begun, mut begins) = mpsc::channel(1);
        let (go_on, waits) = mpsc::channel::<()>(1);
        let waits = std::sync::Arc::new(tokio::sync::Mutex::new(waits));
        let upstream = upstream(move |mut stream| {
            let (begun, waits) = (begun.clone(), waits.clone());
            async move {
                while read_message(&mut stream).await.is_some() {
                    begun.send(()).await.unwrap();
                    waits.lock().await.recv().await;
                    stream.write_all(EMPTY).await.unwrap();
                }
            }
        })
        .await;
        let url = format!("http://{upstream}");
        let gateway = configured_gateway(&url, |config| config.max_streams = 1).await;
        let (mut first, mut second) = (
            connect(gateway.address).await,
            connect(gateway.address).await,
        );
        first.write_all(REQUEST).await.unwrap();
        begins.recv().await.unwrap();
        let (line, error) = answer(&mut second, REQUEST).await;
        assert_eq!(line, "HTTP/1.1 503 Service Unavailable");
        assert!(error.contains(r#""type":"overloaded_error""#), "{error}");
        go_on.send(()).await.unwrap();
        read_message(&mut first).await.unwrap();
        while !gateway.requests.is_empty() {
            tokio::task::yield_now().await;
        }
        // Answered at once from here on.
        drop(go_on);
        let drained = tokio::spawn(async move { while begins.recv().await.is_some() {} });
        assert_eq!(answer(&mut second, REQUEST).await.0, "HTTP/1.1 200 OK");
        drained.abort();
    })
    .await;
}

#[tokio::test]
async fn a_body_without_progress_times_out() {
    in_time(async {
        let (ended, mut ends) = mpsc::channel(1);
        let upstream = upstream(move |mut stream| {
            let ended = ended.clone();
            async move { ended.send(read_to_end(&mut stream).await.0).await.unwrap() }
        })
        .await;
        let url = format!("http://{upstream}");
        let gateway = configured_gateway(&url, |config| config.stall_timeout_ms = 100).await;
        let mut client = connect(gateway.address).await;
        let half =
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Length: 8\r\n\r\nhalf";
        let (line, error) = answer(&mut client, half).await;
        assert_eq!(line, "HTTP/1.1 408 Request Timeout");
        assert!(error.contains(r#""code":"request_stalled""#), "{error}");
        // A body that no session takes is forwarded as it arrives, so upstream has the first half.
        assert!(ends.recv().await.unwrap().ends_with(b"half"));
    })
    .await;
}

#[tokio::test]
async fn a_connection_without_a_request_is_closed() {
    in_time(async {
        let upstream = upstream(|mut stream| async move {
            read_message(&mut stream).await.unwrap();
            stream.write_all(EMPTY).await.unwrap();
        })
        .await;
        let url = format!("http://{upstream}");
        let gateway = configured_gateway(&url, |config| config.idle_timeout_ms = 200).await;
        // Silent from the start, silent in the middle of a head, and silent after a response.
        let mut silent = connect(gateway.address).await;
        assert_eq!(read_to_end(&mut silent).await, (Vec::new(), End::Closed));
        let mut half = connect(gateway.address).await;
        half.write_all(b"POST /v1/mess").await.unwrap();
        assert_eq!(read_to_end(&mut half).await.0, b"");
        let mut idle = connect(gateway.address).await;
        idle.write_all(REQUEST).await.unwrap();
        assert_eq!(read_to_end(&mut idle).await, (EMPTY.to_vec(), End::Closed));
    })
    .await;
}

#[tokio::test]
async fn a_head_above_the_limits_is_rejected() {
    in_time(async {
        // The address of upstream is never used, because the gateway answers itself.
        let gateway = gateway("127.0.0.1:9".parse().unwrap()).await;
        // The limits are 128 headers and 64 KiB.
        let many = "x: 1\r\n".repeat(200);
        let large = format!("x: {}\r\n", "1".repeat(100 * 1024));
        for headers in [many, large] {
            let mut client = connect(gateway.address).await;
            let request = format!("GET / HTTP/1.1\r\nHost: h\r\n{headers}\r\n");
            // The answer can arrive, and the connection can be reset, before all is written.
            let _ = client.write_all(request.as_bytes()).await;
            let mut first = [0; 12];
            client.read_exact(&mut first).await.unwrap();
            assert_eq!(&first, b"HTTP/1.1 431");
        }
    })
    .await;
}

#[tokio::test]
async fn tunnels_and_web_sockets_are_rejected() {
    in_time(async {
        let gateway = gateway("127.0.0.1:9".parse().unwrap()).await;
        let mut client = connect(gateway.address).await;
        let socket = b"GET /v1/responses HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        let (line, error) = answer(&mut client, socket).await;
        assert_eq!(line, "HTTP/1.1 426 Upgrade Required");
        assert!(error.contains(r#""code":"websocket_not_supported""#), "{error}");
        let tunnel = b"CONNECT example.org:443 HTTP/1.1\r\nHost: example.org\r\n\r\n";
        let mut client = connect(gateway.address).await;
        client.write_all(tunnel).await.unwrap();
        let mut first = [0; 12];
        client.read_exact(&mut first).await.unwrap();
        assert_eq!(&first, b"HTTP/1.1 405");
    })
    .await;
}

#[tokio::test]
async fn a_drain_waits_for_streams_and_closes_idle_connections() {
    in_time(async {
        let (go_on, waits) = oneshot::channel::<()>();
        let waits = std::sync::Arc::new(tokio::sync::Mutex::new(Some(waits)));
        let upstream = upstream(move |mut stream| {
            let waits = waits.clone();
            async move {
                read_message(&mut stream).await.unwrap();
                let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n";
                stream.write_all(head).await.unwrap();
                waits.lock().await.take().unwrap().await.unwrap();
                stream.write_all(b"3\r\ntwo\r\n0\r\n\r\n").await.unwrap();
            }
        })
        .await;
        let gateway = gateway(upstream).await;
        let mut idle = connect(gateway.address).await;
        let mut client = connect(gateway.address).await;
        client.write_all(REQUEST).await.unwrap();
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"one\r\n") {
            assert_ne!(client.read_buf(&mut bytes).await.unwrap(), 0);
        }
        gateway.stop.cancel();
        assert_eq!(read_to_end(&mut idle).await.1, End::Closed);
        // The gateway stops to accept connections while the stream is still open.
        while TcpStream::connect(gateway.address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(gateway.requests.len(), 1);
        go_on.send(()).unwrap();
        let (rest, end) = read_to_end(&mut client).await;
        assert_eq!(
            (&rest[..], end),
            (&b"3\r\ntwo\r\n0\r\n\r\n"[..], End::Closed)
        );
        gateway.serving.await.unwrap();
    })
    .await;
}
