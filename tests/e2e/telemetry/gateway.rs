//! Tests of the spans of requests through the gateway.

use std::fmt::Write as _;

use axum::body::Body;
use axum::http::Request;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::receiver::{attribute, hex};
use super::*;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4737";
const PARENT: &str = "00f067aa0ba902b7";

/// Sends a request and reads the response until the connection is closed.
pub(super) async fn send(address: &str, request: Request<Body>, body: &str) -> String {
    let mut text = format!("POST {} HTTP/1.1\r\n", request.uri());
    for (name, value) in request.headers() {
        let _ = write!(text, "{name}: {}\r\n", value.to_str().unwrap());
    }
    let length = body.len();
    let _ = write!(
        text,
        "content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    response
}

#[tokio::test]
async fn a_request_through_the_gateway_has_a_span_without_content() {
    let provider = FakeProvider::start().await.unwrap();
    let upstream = format!("gateway.upstreams.anthropic.base_url={}", provider.url());
    let settings = [
        "gateway.enabled=true",
        "gateway.listen=127.0.0.1:0",
        // On a slow machine, the default of 5 s could leave the request unmanaged.
        "gateway.prepare_timeout_ms=120000",
        &upstream,
    ];
    let world = World::new(&settings).await;
    let body = json!({"model": "claude-fake", "max_tokens": 100,
        "messages": [{"role": "user", "content": "secret question"}]});
    let request = Request::post("/v1/messages")
        .header("host", "gateway")
        .header("x-api-key", "secret-key")
        .header("anthropic-version", "2023-06-01")
        .header("x-palimpsest-session", "traced")
        .header("traceparent", format!("00-{TRACE}-{PARENT}-01"))
        .body(Body::empty())
        .unwrap();
    let response = send(&world.server.gateway(), request, &body.to_string()).await;
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    let spans = world.receiver.trace_with(TRACE, "POST /v1/messages").await;
    let named = |name: &str| spans.iter().find(|span| span.name == name).unwrap();
    let root = named("POST /v1/messages");
    assert_eq!(hex(&root.parent_span_id), PARENT);
    assert_eq!(root.kind(), SpanKind::Server);
    let span = named("chat claude-fake");
    assert_eq!(span.parent_span_id, root.span_id);
    assert_eq!(span.kind(), SpanKind::Client);
    for (span, name, value) in [
        (root, "session", "projects/default/sessions/traced"),
        (root, "project", "default"),
        (root, "http.response.status_code", "200"),
        (span, "gen_ai.operation.name", "chat"),
        (span, "gen_ai.provider.name", "anthropic"),
        (span, "gen_ai.request.model", "claude-fake"),
        (span, "gen_ai.conversation.id", "traced"),
        (span, "http.response.status_code", "200"),
    ] {
        assert_eq!(attribute(span, name).as_deref(), Some(value), "{name}");
    }
    let tokens = |name: &str| attribute(span, name).unwrap().parse::<u64>().unwrap();
    assert!(tokens("gen_ai.usage.input_tokens") > 0);
    assert!(tokens("gen_ai.usage.output_tokens") > 0);
    let text = format!("{spans:?}");
    assert!(!text.contains("secret"), "{text}");
    // The change of the session belongs to the request.
    let mut above = named("store.append");
    while above.span_id != root.span_id {
        let parent = |one: &&Span| one.span_id == above.parent_span_id;
        above = spans.iter().find(parent).unwrap();
    }
}
