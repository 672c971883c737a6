//! Tests of the records about who did what through the gateway: the audit log, the credential of events, log lines, and
//! metrics by project.

use palimpsest_fake_provider::FakeProvider;
use palimpsest_proto::context::v1::session_service_client::SessionServiceClient;
use palimpsest_tests::{Server, name};
use reqwest::{Client, Response};
use serde_json::{Value, json};

use crate::who::{credentials, lines};
use crate::world::{World, id_of, soon};

/// Starts a server with a gateway in front of a provider.
async fn gateway(world: &World) -> (Server, FakeProvider) {
    let provider = FakeProvider::start().await.unwrap();
    let settings = [
        world.setting("audit.file", "audit.jsonl"),
        "gateway.enabled=true".to_owned(),
        "gateway.listen=127.0.0.1:0".to_owned(),
        "gateway.prepare_timeout_ms=120000".to_owned(),
        "gateway.hold_timeout_ms=60000".to_owned(),
        format!("gateway.upstreams.anthropic.base_url={}", provider.url()),
        "log.level=debug".to_owned(),
        "policy.tool_results.max_result_chars=3000".to_owned(),
    ];
    (world.serve(&settings), provider)
}

/// Sends a request with the conversation, as the caller with the key.
async fn send(server: &Server, path: &str, key: Option<&str>, conversation: &[Value]) -> Response {
    let mut body = json!({"model": "claude-fake", "messages": conversation});
    if !path.ends_with("count_tokens") {
        body["max_tokens"] = json!(100);
    }
    let request = Client::new()
        .post(format!("http://{}{path}", server.gateway()))
        .header("x-api-key", "key-of-the-provider")
        .header("anthropic-version", "2023-06-01")
        .header("content-type", "application/json")
        .header("x-palimpsest-session", "s")
        .body(body.to_string());
    let request = match key {
        Some(key) => request.header("x-palimpsest-key", key),
        None => request,
    };
    request.send().await.unwrap()
}

fn said(role: &str, content: &Value) -> Value {
    json!({"role": role, "content": content})
}

#[tokio::test]
async fn each_change_and_each_denial_at_the_gateway_is_recorded() {
    let world = World::new();
    let writer = world.key("p", "read,write");
    let reader = world.key("p", "read");
    let (server, _provider) = gateway(&world).await;
    let asked = [said("user", &json!("a secret plan"))];
    let status = async |path: &str, key: Option<&str>| {
        let response = send(&server, path, key, &asked).await;
        let status = response.status().as_u16();
        // A request ends when its agent has received the whole response.
        response.bytes().await.unwrap();
        status
    };
    assert_eq!(status("/v1/messages", Some(&writer)).await, 200);
    // A count changes nothing.
    assert_eq!(
        status("/v1/messages/count_tokens", Some(&reader)).await,
        200
    );
    assert_eq!(status("/v1/messages", Some(&reader)).await, 403);
    assert_eq!(status("/v1/messages/count_tokens", None).await, 401);
    assert_eq!(status("/p/other/v1/messages", Some(&writer)).await, 404);
    // The provider has no such path, and the response is its own.
    assert_eq!(status("/v1/messages/batches", Some(&writer)).await, 400);

    soon("five lines", async || lines(&world).len() == 5).await;
    let key = |key: &str| json!(format!("key {}", id_of(key)));
    let expected = [
        json!({"who": key(&writer), "method": "POST /v1/messages", "right": "write", "project": "p",
            "session": name("s"), "outcome": "200"}),
        json!({"who": key(&reader), "method": "POST /v1/messages", "right": "write", "project": "p",
            "outcome": "403", "reason": "permission_denied"}),
        json!({"method": "POST /v1/messages/count_tokens", "right": "read",
            "outcome": "401", "reason": "invalid_api_key"}),
        json!({"who": key(&writer), "method": "POST /v1/messages", "right": "write",
            "outcome": "404", "reason": "project_not_found"}),
        json!({"who": key(&writer), "method": "POST /v1/messages/batches", "right": "write", "project": "p",
            "outcome": "400"}),
    ];
    let mut written = lines(&world);
    for line in &mut written {
        let line = line.as_object_mut().unwrap();
        assert!(line.remove("timestamp").is_some_and(|it| it.is_string()));
        assert!(line.remove("trace_id").is_some_and(|it| it.is_string()));
    }
    assert_eq!(written, expected);

    // Denied requests do not count as calls of the project.
    let metrics = server.scrape();
    let count = |series: &str| -> u64 {
        let line = metrics.lines().find_map(|line| line.strip_prefix(series));
        line.unwrap_or_else(|| panic!("{series}: {metrics}"))
            .trim()
            .parse()
            .unwrap()
    };
    let calls =
        |outcome| format!("palimpsest_project_calls_total{{outcome=\"{outcome}\",project=\"p\"}}");
    assert_eq!(count(&calls("ok")), 2);
    assert_eq!(count(&calls("failed")), 1);
    for bytes in ["request", "response"] {
        assert!(
            count(&format!(
                "palimpsest_project_{bytes}_bytes_total{{project=\"p\"}}"
            )) > 100
        );
    }

    // The lines of the server log name the caller too, also those of work that other tasks do.
    let log = server.log();
    let writer = format!("\"credential\":\"key {}\"", id_of(&writer));
    for message in ["\"a response ended\"", "\"request\""] {
        let of_writer = |line: &&String| line.contains(message) && line.contains(&writer);
        let line = log.iter().find(of_writer);
        let line = line.unwrap_or_else(|| panic!("{message}: {log:?}"));
        assert!(line.contains("\"project\":\"p\""), "{line}");
        assert!(line.contains("POST /v1/messages"), "{line}");
    }
}

#[tokio::test]
async fn events_name_the_caller_of_the_gateway() {
    let world = World::new();
    let keys = [world.key("p", "read,write"), world.key("p", "read,write")];
    let (server, _provider) = gateway(&world).await;
    let mut sessions = SessionServiceClient::new(server.channel().await);
    let mut conversation = vec![said("user", &json!("Hello."))];
    let mut known = 0;
    for key in &keys {
        let response = send(&server, "/v1/messages", Some(key), &conversation).await;
        let response: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
        let by = credentials(&mut sessions, key, &name("s")).await;
        // The messages of the request, the view, and the recorded response.
        assert!(by.len() >= known + 3, "{by:?}");
        let expected = format!("key {}", id_of(key));
        assert!(by[known..].iter().all(|by| *by == expected), "{by:?}");
        known = by.len();
        conversation.push(said("assistant", &response["content"]));
        conversation.push(said("user", &json!("And now?")));
    }
}

#[tokio::test]
async fn a_compression_request_is_recorded() {
    let world = World::new();
    let key = world.key("p", "read,write");
    let (server, _provider) = gateway(&world).await;
    let call =
        json!([{"id": "c1", "type": "function", "function": {"name": "Bash", "arguments": "{}"}}]);
    let result = "one line of a log\n".repeat(10_000);
    let body = json!({"model": "gpt-fake", "config": {"mode": "ccr"}, "messages": [
        {"role": "user", "content": "Read the log."},
        {"role": "assistant", "content": null, "tool_calls": call},
        {"role": "tool", "tool_call_id": "c1", "content": result},
    ]});
    let request = Client::new()
        .post(format!("http://{}/v1/compress", server.gateway()))
        .bearer_auth(&key)
        .header("content-type", "application/json")
        .body(body.to_string());
    let compressed = request.send().await.unwrap().text().await.unwrap();
    let compressed: Value = serde_json::from_str(&compressed).unwrap();
    let hash = compressed["ccr_hashes"][0].as_str();
    let hash = hash.unwrap_or_else(|| panic!("{compressed}"));
    let mut sessions = SessionServiceClient::new(server.channel().await);
    let expected = format!("key {}", id_of(&key));
    let of_conversation = compressed["session"]["id"].as_str().unwrap();
    for session in [name(hash), of_conversation.to_owned()] {
        let by = credentials(&mut sessions, &key, &session).await;
        assert!(!by.is_empty() && by.iter().all(|by| *by == expected));
    }
    soon("a line", async || lines(&world).len() == 1).await;
    let line = &lines(&world)[0];
    assert_eq!(line["method"], "POST /v1/compress");
    assert_eq!(line["session"], json!(of_conversation));
    assert_eq!(line["who"], json!(expected));
}
