//! Agents that use HTTP/2. The upstream still gets HTTP/1.1.

use bytes::Bytes;
use http::{HeaderName, Request, Version};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc;

use crate::raw::{Running, connect, gateway, in_time, read_message, upstream};

/// Opens a connection of HTTP/2 to a gateway.
async fn agent(gateway: &Running) -> SendRequest<Full<Bytes>> {
    let io = TokioIo::new(connect(gateway.address).await);
    let (sender, connection) = handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    sender
}

fn request(path: &str) -> Request<Full<Bytes>> {
    let request = Request::post(format!("http://gateway{path}"));
    request.body(Full::new(Bytes::from("{}"))).unwrap()
}

#[tokio::test]
async fn headers_of_a_connection_stay_on_the_side_of_http_1() {
    in_time(async {
        let (received, mut messages) = mpsc::channel(1);
        let upstream = upstream(move |mut stream| {
            let received = received.clone();
            async move {
                let message = read_message(&mut stream).await.unwrap();
                received.send(message).await.unwrap();
                let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\nX-A: 1\r\n\r\n";
                stream.write_all(head.as_bytes()).await.unwrap();
                stream.write_all(b"3\r\nabc\r\n0\r\n\r\n").await.unwrap();
            }
        })
        .await;
        let gateway = gateway(upstream).await;
        let mut agent = agent(&gateway).await;
        let response = agent.send_request(request("/v1/messages")).await.unwrap();
        assert_eq!((response.version(), response.status().as_u16()), (Version::HTTP_2, 200));
        let names: Vec<&str> = response.headers().keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["x-a"]);
        let body = response.into_body().collect().await.unwrap();
        assert_eq!(body.to_bytes(), "abc");
        let received = messages.recv().await.unwrap();
        let start = format!("POST /v1/messages HTTP/1.1\r\nhost: {upstream}\r\n");
        assert!(received.head_text().starts_with(&start), "{}", received.head_text());
        assert_eq!(received.body_text(), "{}");
    })
    .await;
}

#[tokio::test]
async fn a_cut_response_ends_its_stream_and_not_the_connection() {
    in_time(async {
        let upstream = upstream(|mut stream| async move {
            let message = read_message(&mut stream).await.unwrap();
            let is_cut = message.head_text().starts_with("POST /v1/messages ");
            // Three bytes follow in both cases, so the announced 100 bytes make a cut response.
            let length = if is_cut { 100 } else { 3 };
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\nabc");
            stream.write_all(answer.as_bytes()).await.unwrap();
            if is_cut {
                stream.set_zero_linger().unwrap();
            }
        })
        .await;
        let gateway = gateway(upstream).await;
        let mut agent = agent(&gateway).await;
        let cut = agent.send_request(request("/v1/messages")).await.unwrap();
        assert!(
            cut.into_body().collect().await.is_err(),
            "the cut is hidden"
        );
        let whole = agent.send_request(request("/v1/responses")).await.unwrap();
        let body = whole.into_body().collect().await.unwrap();
        assert_eq!(body.to_bytes(), "abc");
    })
    .await;
}
