//! Requests to the HTTP API: paths, methods, web pages and sizes.

use palimpsest_tests::Server;
use palimpsest_tests::tenant::keys;
use reqwest::{Method, Response};
use serde_json::{Value, json};

use crate::world::{SERVER, path, session};

/// Sends a request of the protocol.
pub(crate) async fn post(server: &str, path: &str, body: String, key: Option<&str>) -> Response {
    let request = reqwest::Client::new()
        .post(format!("http://{server}{path}"))
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .body(body);
    let request = match key {
        Some(key) => request.bearer_auth(key),
        None => request,
    };
    request.send().await.unwrap()
}

fn list() -> String {
    json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}).to_string()
}

async fn status(server: &str, path: &str, method: Method) -> u16 {
    let request = reqwest::Client::new().request(method, format!("http://{server}{path}"));
    let request = request.header("accept", "text/event-stream");
    request.send().await.unwrap().status().as_u16()
}

#[tokio::test]
async fn a_path_names_what_is_read() {
    let shared = SERVER.get();
    let address = shared.0.address();
    for path in [
        "/mcp",
        "/mcp/",
        "/mcp/projects/p",
        "/mcp/projects/p/sessions/not-yet",
    ] {
        let response = post(address, path, list(), None).await;
        assert_eq!(response.status(), 200, "{path}");
        assert_eq!(response.headers()["content-type"], "application/json");
        assert!(!response.headers().contains_key("mcp-session-id"));
    }
    for path in [
        "/mcp/p",
        "/mcp/projects",
        "/mcp/projects/p/sessions",
        "/mcpx",
    ] {
        assert_eq!(
            post(address, path, list(), None).await.status(),
            404,
            "{path}"
        );
    }
    let invalid = post(address, "/mcp/projects/p/sessions/a%20b", list(), None).await;
    assert_eq!(invalid.status(), 400);
    // There are no streams and no sessions of the protocol.
    assert_eq!(status(address, "/mcp", Method::GET).await, 405);
    assert_eq!(status(address, "/mcp", Method::DELETE).await, 405);
}

#[tokio::test]
async fn earlier_revisions_of_the_protocol_are_negotiated() {
    let shared = SERVER.get();
    for version in ["2025-03-26", "2025-06-18", "2025-11-25"] {
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"},
        }});
        let response = post(shared.0.address(), "/mcp", request.to_string(), None).await;
        let answer: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
        assert_eq!(answer["result"]["protocolVersion"], version);
        assert!(answer["result"]["capabilities"]["tools"].is_object());
        assert!(answer["result"]["capabilities"]["resources"].is_object());
    }
}

#[tokio::test]
async fn only_permitted_web_pages_may_call() {
    let folder = tempfile::tempdir().unwrap();
    let settings = ["--set", "http.allowed_origins=https://app.example"];
    let server = Server::start(folder.path(), &settings);
    let send = async |origin: &str, host: &str| {
        let request = reqwest::Client::new()
            .post(format!("http://{}/mcp", server.address()))
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("origin", origin)
            .header("host", host)
            .body(list());
        request.send().await.unwrap()
    };
    let address = server.address();
    let allowed = send("https://app.example", address).await;
    assert_eq!(allowed.status(), 200);
    assert_eq!(
        allowed.headers()["access-control-allow-origin"],
        "https://app.example"
    );
    assert_eq!(
        send(&format!("http://{address}"), address).await.status(),
        200
    );
    assert_eq!(send("https://evil.example", address).await.status(), 403);
    // A name that leads to this machine, while no credential is needed.
    assert_eq!(
        send("http://evil.example", "evil.example").await.status(),
        403
    );
}

#[tokio::test]
async fn requests_are_bounded() {
    let shared = SERVER.get();
    let mut context = shared.0.context().await;
    session(&mut context, "bounded").await;
    let address = shared.0.address();
    let call = |pattern: String| {
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
            "name": "SearchTranscript", "arguments": {"pattern": pattern},
        }})
        .to_string()
    };
    let large = post(address, &path("bounded"), call("a".repeat(300_000)), None).await;
    assert_eq!(large.status(), 413);
    assert!(large.text().await.unwrap().contains("REQUEST_TOO_LARGE"));
    // The request is within the limit of a body, and its pattern is too long for the tool.
    let long = post(address, &path("bounded"), call("a".repeat(100_000)), None).await;
    let answer: Value = serde_json::from_slice(&long.bytes().await.unwrap()).unwrap();
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    // A body that does not arrive.
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &["--set", "grpc.body_timeout_ms=300"]);
    let slow = futures::stream::pending::<Result<Vec<u8>, std::io::Error>>();
    let request = reqwest::Client::new()
        .post(format!("http://{}/mcp", server.address()))
        .header("content-type", "application/json")
        .body(reqwest::Body::wrap_stream(slow));
    assert_eq!(request.send().await.unwrap().status(), 504);
}

#[tokio::test]
async fn requests_in_progress_are_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys.toml");
    std::fs::write(&file, "").unwrap();
    let key = || {
        keys(
            &file,
            &["create", "--project", "default", "--right", "read"],
        )
    };
    let (held_key, other_key) = (key(), key());
    let keys_file = format!("auth.keys_file={}", file.display());
    let settings = ["--set", &keys_file, "--set", "worker.enabled=false"];
    let server = Server::start(&folder.path().join("data"), &settings);
    let send = async |key: &str| post(server.address(), "/mcp", list(), Some(key)).await;
    let url = format!("http://{}/mcp", server.address());
    let mut held = tokio::task::JoinSet::new();
    for _ in 0..128 {
        let body = futures::stream::pending::<Result<Vec<u8>, std::io::Error>>();
        let body = reqwest::Body::wrap_stream(body);
        let request = reqwest::Client::new().post(&url).bearer_auth(&held_key);
        held.spawn(request.body(body).send());
    }
    // The requests arrive one by one.
    let rejected = loop {
        let response = send(&held_key).await;
        if response.status() != 200 {
            break response;
        }
    };
    assert_eq!(rejected.status(), 429);
    assert!(rejected.text().await.unwrap().contains("128 MCP requests"));
    assert_eq!(send(&other_key).await.status(), 200);
    held.shutdown().await;
    while send(&held_key).await.status() != 200 {}
}

#[tokio::test]
async fn bodies_that_are_no_requests_are_rejected() {
    let shared = SERVER.get();
    let address = shared.0.address();
    let deep = format!("{}1{}", "[".repeat(10_000), "]".repeat(10_000));
    let deep_call = list().replace("{}", &format!("{{\"x\": {deep}}}"));
    for body in [
        "",
        "nonsense",
        "{",
        "[]",
        "null",
        "{\"jsonrpc\": \"1.0\"}",
        &deep,
        &deep_call,
    ] {
        let response = post(address, "/mcp", body.to_owned(), None).await;
        let status = response.status();
        assert!(
            status.is_client_error(),
            "{status} {}",
            &body[..body.len().min(40)]
        );
    }
    let send = |content_type: &'static str, accept: &'static str| {
        let request = reqwest::Client::new().post(format!("http://{address}/mcp"));
        let request = request.header("content-type", content_type);
        request.header("accept", accept).body(list()).send()
    };
    let both = "application/json, text/event-stream";
    assert_eq!(send("text/plain", both).await.unwrap().status(), 415);
    assert_eq!(
        send("application/json", "text/html")
            .await
            .unwrap()
            .status(),
        406
    );
    // The server still answers.
    assert_eq!(post(address, "/mcp", list(), None).await.status(), 200);
}

#[tokio::test]
async fn the_protocol_can_be_switched_off() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &["--set", "mcp.enabled=false"]);
    assert_eq!(
        post(server.address(), "/mcp", list(), None).await.status(),
        404
    );
}
