//! Faults of upstream. An agent sees through the gateway what it would see directly.

use std::net::SocketAddr;

use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};

use crate::raw::{
    End, REQUEST, complete_chunks, configured_gateway, connect, gateway, head_length, in_time,
    read_message, read_to_end, upstream,
};

/// Sends a request and reads until the end of the connection.
async fn observed(address: SocketAddr) -> (Vec<u8>, End) {
    let mut client = connect(address).await;
    client.write_all(REQUEST).await.unwrap();
    read_to_end(&mut client).await
}

/// Starts an upstream that answers each request with these bytes and then ends the connection.
async fn ending(answer: &'static [u8], end: End) -> SocketAddr {
    upstream(move |mut stream: TcpStream| async move {
        read_message(&mut stream).await.unwrap();
        stream.write_all(answer).await.unwrap();
        if end == End::Reset {
            stream.set_zero_linger().unwrap();
        }
    })
    .await
}

/// Compares the bytes and the end of the connection, directly and through a gateway.
async fn check_equal(answer: &'static [u8], end: End) {
    let upstream = ending(answer, end).await;
    let direct = observed(upstream).await;
    assert_eq!(direct, (answer.to_vec(), end), "directly");
    let through = observed(gateway(upstream).await.address).await;
    let text = |(bytes, end): &(Vec<u8>, End)| (String::from_utf8_lossy(bytes).into_owned(), *end);
    assert_eq!(text(&through), text(&direct), "through the gateway");
}

#[tokio::test]
async fn a_connection_that_ends_without_a_response_ends_the_same_way() {
    in_time(async {
        check_equal(b"", End::Closed).await;
        check_equal(b"", End::Reset).await;
    })
    .await;
}

#[tokio::test]
async fn a_cut_body_arrives_to_its_last_byte_and_ends_the_same_way() {
    let cut = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf of it";
    let nothing = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n";
    in_time(async {
        for answer in [&cut[..], &nothing[..]] {
            check_equal(answer, End::Closed).await;
            check_equal(answer, End::Reset).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_cut_stream_of_chunks_arrives_to_its_last_byte_and_has_no_end() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let cut = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n3\r\ntwo\r\n";
    let malformed =
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n3\r\ntwo\r\nzz\r\n";
    in_time(async {
        let cases = [
            (&cut[..], End::Closed),
            (&cut[..], End::Reset),
            // `zz` is no size of a chunk. Upstream sends no reset, so the agent sees none either.
            (&malformed[..], End::Closed),
        ];
        for (answer, end) in cases {
            let upstream = ending(answer, end).await;
            let (bytes, seen) = observed(gateway(upstream).await.address).await;
            let (got, chunks) = bytes.split_at(head_length(&bytes).unwrap());
            assert_eq!(String::from_utf8_lossy(got), head);
            assert_eq!(String::from_utf8_lossy(&complete_chunks(chunks)), "onetwo");
            assert!(!chunks.ends_with(b"0\r\n\r\n"), "the cut is hidden");
            assert_eq!(seen, end);
        }
    })
    .await;
}

#[tokio::test]
async fn a_complete_response_before_a_close_arrives_unchanged() {
    let limited = b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 7\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";
    let html = b"HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\nContent-Length: 15\r\nConnection: close\r\n\r\n<html>Oh</html>";
    let overloaded =
        b"HTTP/1.1 529 Site Is Overloaded\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    in_time(async {
        for answer in [&limited[..], &html[..], &overloaded[..]] {
            check_equal(answer, End::Closed).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_cut_head_is_never_forwarded() {
    in_time(async {
        let upstream = ending(b"HTTP/1.1 200 OK\r\nContent-", End::Closed).await;
        let seen = observed(gateway(upstream).await.address).await;
        assert_eq!(seen, (Vec::new(), End::Closed));
    })
    .await;
}

/// Returns an address at which nothing listens.
async fn refusing() -> SocketAddr {
    // The listener is dropped at the end of this function, so that its port refuses connections.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap()
}

#[tokio::test]
async fn a_refused_connection_is_an_error_in_the_shape_of_the_api() {
    in_time(async {
        let gateway = gateway(refusing().await).await;
        let mut client = connect(gateway.address).await;
        let check = async |client: &mut TcpStream, path: &str| {
            let request =
                format!("POST {path} HTTP/1.1\r\nHost: g\r\nContent-Length: 2\r\n\r\n{{}}");
            client.write_all(request.as_bytes()).await.unwrap();
            let answer = read_message(client).await.unwrap();
            assert!(
                answer
                    .head_text()
                    .starts_with("HTTP/1.1 502 Bad Gateway\r\n"),
                "{answer:?}"
            );
            answer.body_text()
        };
        // The same connection continues, because nothing of it is broken.
        let error = check(&mut client, "/v1/messages").await;
        assert!(error.contains(r#""type":"api_error""#), "{error}");
        assert!(error.contains("refused"), "{error}");
        let error = check(&mut client, "/v1/chat/completions").await;
        assert!(
            error.contains(r#""code":"upstream_unreachable""#),
            "{error}"
        );
    })
    .await;
}

#[tokio::test]
async fn a_connection_without_a_handshake_is_a_timeout() {
    in_time(async {
        // The kernel accepts the connection, and no TLS handshake follows.
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", silent.local_addr().unwrap());
        let gateway = configured_gateway(&url, |config| config.connect_timeout_ms = 100).await;
        let mut client = connect(gateway.address).await;
        client.write_all(REQUEST).await.unwrap();
        let answer = read_message(&mut client).await.unwrap();
        assert!(
            answer
                .head_text()
                .starts_with("HTTP/1.1 504 Gateway Timeout\r\n"),
            "{answer:?}"
        );
        let error = answer.body_text();
        assert!(error.contains(r#""type":"timeout_error""#), "{error}");
    })
    .await;
}
