//! Streams in both directions: no buffering, back-pressure, and ends of the connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;

use crate::raw::{
    REQUEST, connect, gateway, head_length, in_time, read_message, read_to_end, upstream,
};

const STREAM: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

#[tokio::test]
async fn each_event_arrives_before_the_next_one_is_sent() {
    in_time(async {
        let (arrived, arrivals) = mpsc::channel::<()>(1);
        let arrivals = Arc::new(tokio::sync::Mutex::new(arrivals));
        let upstream = upstream(move |mut stream| {
            let arrivals = Arc::clone(&arrivals);
            async move {
                read_message(&mut stream).await.unwrap();
                stream.write_all(STREAM).await.unwrap();
                // Upstream waits until the client has the event. A gateway that collects events would make the test
                // hang.
                for _ in 0..3 {
                    stream.write_all(b"8\r\ndata: x\n\r\n").await.unwrap();
                    arrivals.lock().await.recv().await.unwrap();
                }
                stream.write_all(b"0\r\n\r\n").await.unwrap();
            }
        })
        .await;
        let gateway = gateway(upstream).await;
        let mut client = connect(gateway.address).await;
        client.write_all(REQUEST).await.unwrap();
        let mut bytes = Vec::new();
        for events in 1..=3 {
            let count = |bytes: &[u8]| bytes.windows(7).filter(|b| *b == b"data: x").count();
            while count(&bytes) < events {
                assert_ne!(client.read_buf(&mut bytes).await.unwrap(), 0);
            }
            arrived.send(()).await.unwrap();
        }
        while !bytes.ends_with(b"0\r\n\r\n") {
            assert_ne!(client.read_buf(&mut bytes).await.unwrap(), 0);
        }
    })
    .await;
}

#[tokio::test]
async fn a_request_arrives_while_its_agent_still_sends() {
    in_time(async {
        let (arrived, mut arrivals) = mpsc::channel(1);
        let upstream = upstream(move |mut stream| {
            let arrived = arrived.clone();
            async move {
                let mut bytes = Vec::new();
                while !bytes.ends_with(b"half") {
                    assert_ne!(stream.read_buf(&mut bytes).await.unwrap(), 0);
                }
                arrived.send(()).await.unwrap();
                while !bytes.ends_with(b"rest") {
                    assert_ne!(stream.read_buf(&mut bytes).await.unwrap(), 0);
                }
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
                stream.write_all(answer).await.unwrap();
            }
        })
        .await;
        let gateway = gateway(upstream).await;
        let mut client = connect(gateway.address).await;
        let head = b"POST /v1/messages HTTP/1.1\r\nHost: h\r\nContent-Length: 8\r\n\r\nhalf";
        client.write_all(head).await.unwrap();
        arrivals.recv().await.unwrap();
        client.write_all(b"rest").await.unwrap();
        assert!(read_message(&mut client).await.is_some());
    })
    .await;
}

#[tokio::test]
async fn a_slow_reader_slows_upstream_and_loses_nothing() {
    const CHUNK: usize = 64 * 1024;
    // 256 MiB in total, four times as much as the buffers take.
    const CHUNKS: usize = 4_096;
    // The buffers of four sockets, at their largest default sizes.
    const MAX_BUFFERED: usize = 64 << 20;
    in_time(async {
        let sent = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&sent);
        let upstream = upstream(move |mut stream| {
            let sent = Arc::clone(&counted);
            async move {
                read_message(&mut stream).await.unwrap();
                let head = format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
                    CHUNK * CHUNKS
                );
                stream.write_all(head.as_bytes()).await.unwrap();
                let chunk = vec![b'x'; CHUNK];
                for _ in 0..CHUNKS {
                    stream.write_all(&chunk).await.unwrap();
                    sent.fetch_add(CHUNK, SeqCst);
                }
            }
        })
        .await;
        let gateway = gateway(upstream).await;
        let mut client = connect(gateway.address).await;
        client.write_all(REQUEST).await.unwrap();
        // Without back-pressure, upstream would send all before the first byte is read.
        let mut before = usize::MAX;
        // A counter that stays the same for half a second shows that upstream is blocked.
        while sent.load(SeqCst) != before || before == 0 {
            before = sent.load(SeqCst);
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        assert!(before < MAX_BUFFERED, "{before} bytes were accepted");
        let mut bytes = Vec::new();
        while head_length(&bytes).is_none() {
            assert_ne!(client.read_buf(&mut bytes).await.unwrap(), 0);
        }
        let mut received = bytes.len() - head_length(&bytes).unwrap();
        let mut buffer = vec![0; CHUNK];
        while received < CHUNK * CHUNKS {
            let read = client.read(&mut buffer).await.unwrap();
            assert!(read > 0 && buffer[..read].iter().all(|byte| *byte == b'x'));
            received += read;
        }
        assert_eq!(received, CHUNK * CHUNKS);
    })
    .await;
}

/// Starts an upstream that sends `answer` after the request and reports the end of the connection.
async fn watching(answer: &'static [u8]) -> (std::net::SocketAddr, mpsc::Receiver<&'static str>) {
    let (report, reports) = mpsc::channel(2);
    let upstream = upstream(move |mut stream| {
        let report = report.clone();
        async move {
            read_message(&mut stream).await.unwrap();
            stream.write_all(answer).await.unwrap();
            report.send("received").await.unwrap();
            // A reset is an end as well.
            let _ = stream.read_u8().await;
            report.send("ended").await.unwrap();
        }
    })
    .await;
    (upstream, reports)
}

#[tokio::test]
async fn upstream_ends_when_its_agent_is_gone() {
    in_time(async {
        let event = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n";
        // Before the first byte of the response, and in its middle.
        for answer in [&b""[..], &event[..]] {
            let (upstream, mut reports) = watching(answer).await;
            let gateway = gateway(upstream).await;
            let mut client = connect(gateway.address).await;
            client.write_all(REQUEST).await.unwrap();
            assert_eq!(reports.recv().await, Some("received"));
            let mut bytes = Vec::new();
            while !answer.is_empty() && !bytes.ends_with(b"one\r\n") {
                assert_ne!(client.read_buf(&mut bytes).await.unwrap(), 0);
            }
            drop(client);
            assert_eq!(reports.recv().await, Some("ended"));
            // The request is not in flight any more, so a drain does not wait for it.
            while !gateway.requests.is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn upstream_ends_when_its_agent_is_gone_in_the_middle_of_a_request() {
    in_time(async {
        let (report, mut reports) = mpsc::channel(1);
        let upstream = upstream(move |mut stream| {
            let report = report.clone();
            async move { report.send(read_to_end(&mut stream).await.0).await.unwrap() }
        })
        .await;
        let gateway = gateway(upstream).await;
        let mut client = connect(gateway.address).await;
        let head = b"POST /v1/messages HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n";
        client.write_all(head).await.unwrap();
        client.shutdown().await.unwrap();
        let received = reports.recv().await.unwrap();
        assert!(!received.ends_with(b"0\r\n\r\n"), "half a request must not look complete");
    })
    .await;
}
