//! Resources and their methods.

use palimpsest_tests::server::Server;
use reqwest::StatusCode;
use serde_json::{Value, json};

use super::{Caller, session, url};
use crate::SERVER;

fn append(texts: &[&str]) -> Value {
    let messages = texts.iter().enumerate().map(|(index, text)| {
        json!({
            "id": format!("00000000-0000-7000-8000-{index:012}"),
            "payload": {"format": "anthropic_messages", "json": {"role": "user", "content": text}},
        })
    });
    json!({"messages": messages.collect::<Vec<_>>()})
}

#[tokio::test]
async fn a_session_lives_through_all_methods() {
    let server = SERVER.get();
    let caller = Caller::new(server.0.address());
    let path = session("life");
    let created =
        json!({"session_id": "life", "session": {"title": "A", "attributes": {"k": "v"}}});
    let created = caller
        .ok(caller.post("/v1/projects/http/sessions", &created))
        .await;
    assert_eq!(created["session"]["name"], "projects/http/sessions/life");

    let appended = caller
        .ok(caller.post(&format!("{path}:append"), &append(&["one", "needle"])))
        .await;
    assert_eq!(appended["append"]["messages"][1]["outcome"], "appended");
    let prepared = caller
        .ok(caller.post(&format!("{path}:prepare"), &json!({})))
        .await;
    assert_eq!(prepared["messages"][0]["role"], "user");
    assert_eq!(prepared["sendable"], true);

    let body = json!({"session": {"title": "B"}, "update_mask": "title"});
    let update = caller
        .http
        .patch(url(&caller.address, &path))
        .body(body.to_string());
    assert_eq!(caller.ok(update).await["session"]["title"], "B");
    let read = caller.ok(caller.get(&path)).await;
    assert_eq!(
        (
            &read["session"]["title"],
            &read["session"]["attributes"]["k"]
        ),
        (&json!("B"), &json!("v"))
    );
    // Integers of 64 bits are numbers, and the policy shows its defaults.
    assert!(read["session"]["revision"].is_u64());
    assert_eq!(read["session"]["policy"]["collapse"]["enabled"], false);

    let listed = caller
        .ok(caller.get("/v1/projects/http/sessions?filter.text=needle&page_size=10"))
        .await;
    assert!(listed["sessions"].is_array());
    let messages = caller
        .ok(caller.get(&format!(
            "{path}/messages?filter.roles=user&descending=true"
        )))
        .await;
    assert_eq!(
        messages["messages"][0]["messages"][0]["content"][0]["text"],
        "needle"
    );
    let search = json!({"pattern": {"literal": "NEEDLE", "ignore_case": true}});
    let found = caller
        .ok(caller.post(&format!("{path}/messages:search"), &search))
        .await;
    assert_eq!(found["hits"].as_array().unwrap().len(), 1);
    let events = caller
        .ok(caller.get(&format!("{path}/events?kinds=messages_appended")))
        .await;
    assert_eq!(
        events["events"][0]["messages_appended"]["message_ids"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    let tools = caller
        .ok(caller.get(&format!("{path}/tools?format=openai_chat")))
        .await;
    assert_eq!(tools["tools"][0]["definition"]["type"], "function");
    let memory = caller
        .ok(caller.get(&format!("{path}/memory?wait=0s")))
        .await;
    assert_eq!(memory["unchanged"], false);
    let fork =
        json!({"session_id": "life-2", "last_message_id": "00000000-0000-7000-8000-000000000000"});
    let forked = caller.ok(caller.post(&format!("{path}:fork"), &fork)).await;
    assert_eq!(
        forked["session"]["forked_from"]["session"],
        "projects/http/sessions/life"
    );

    let delete = caller.http.delete(url(
        &caller.address,
        &format!("{path}?delete_subagents=true"),
    ));
    assert_eq!(caller.ok(delete).await["deleted_sessions"], 1);
    let error = caller
        .rejected(caller.get(&path), 404, "SESSION_NOT_FOUND")
        .await;
    assert_eq!(error["status"], "NOT_FOUND");
}

#[tokio::test]
async fn an_invalid_request_names_its_field() {
    let server = SERVER.get();
    let caller = Caller::new(server.0.address());
    let path = format!("{}:prepare", session("invalid"));
    let check = async |body: Value, field: &str| {
        let error = caller
            .rejected(caller.post(&path, &body), 400, "INVALID_FIELD")
            .await;
        let named = &error["details"][1]["fieldViolations"][0]["field"];
        assert_eq!(named.as_str().unwrap_or_default(), field, "{error}");
    };
    check(json!({"dry": true}), "dry").await;
    check(json!({"dry_run": "yes"}), "dry_run").await;
    check(json!({"messages": [{"id": 1}]}), "messages[0].id").await;
    check(
        json!({"target": {"window_tokens": -1}}),
        "target.window_tokens",
    )
    .await;
    check(json!({"target": {"provider": "nobody"}}), "target.provider").await;
    check(json!({"session": "projects/other/sessions/s"}), "session").await;
    check(
        json!({"cache_breakpoints": {"ttl": "5"}}),
        "cache_breakpoints.ttl",
    )
    .await;
    check(json!([]), "").await;
    let text = caller.post(&path, &json!({})).body("{\"dry_run\": true");
    caller.rejected(text, 400, "INVALID_FIELD").await;
    // Parsers differ in the value of a repeated key.
    let twice = caller
        .post(&path, &json!({}))
        .body("{\"dry_run\": true, \"dry_run\": true}");
    let error = caller.rejected(twice, 400, "INVALID_FIELD").await;
    assert!(
        error["message"].as_str().unwrap().contains("appears twice"),
        "{error}"
    );
    let unknown = caller.get("/v1/projects/http/sessions?page=2");
    let error = caller.rejected(unknown, 400, "INVALID_FIELD").await;
    assert_eq!(
        error["details"][1]["fieldViolations"][0]["field"], "page",
        "{error}"
    );
}

#[tokio::test]
async fn other_paths_methods_and_types_are_rejected() {
    let server = SERVER.get();
    let caller = Caller::new(server.0.address());
    let status = async |request: reqwest::RequestBuilder| {
        let response = request.send().await.unwrap();
        let allow = response
            .headers()
            .get("allow")
            .map(|value| value.to_str().unwrap().to_owned());
        (response.status(), allow)
    };
    assert_eq!(
        status(caller.get("/v2/projects")).await,
        (StatusCode::NOT_FOUND, None)
    );
    let allow = Some("POST".to_owned());
    let sync = format!("{}:sync", session("s"));
    assert_eq!(
        status(caller.get(&sync)).await,
        (StatusCode::METHOD_NOT_ALLOWED, allow)
    );
    let xml = caller.post_as(&sync, "text/xml", "<a/>");
    assert_eq!(
        status(xml).await,
        (StatusCode::UNSUPPORTED_MEDIA_TYPE, None)
    );
    // HTTP/1.1 has no trailers for the outcome of a gRPC call.
    let get = "/palimpsest.context.v1.SessionService/GetSession";
    let grpc = caller.post_as(get, "application/grpc", "");
    assert_eq!(
        status(grpc).await,
        (StatusCode::HTTP_VERSION_NOT_SUPPORTED, None)
    );
}

#[tokio::test]
async fn the_description_has_all_paths() {
    let server = SERVER.get();
    let caller = Caller::new(server.0.address());
    let document = caller.ok(caller.get("/openapi.json")).await;
    assert_eq!(document["openapi"], "3.1.0");
    let sync = &document["paths"]["/v1/projects/{project}/sessions/{session}:sync"]["post"];
    assert_eq!(sync["operationId"], "syncContext");
    let names = document["components"]["schemas"]["SyncOutcome"]["enum"]
        .as_array()
        .unwrap();
    assert!(names.contains(&json!("extended")) && !names.contains(&json!("unspecified")));
}

#[tokio::test]
async fn an_api_that_is_off_leaves_only_grpc() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &["--set", "http.enabled=false"]);
    let caller = Caller::new(server.address());
    assert!(caller.get("/openapi.json").send().await.is_err());
    server.channel().await;
}

#[tokio::test]
async fn one_port_serves_http_1_and_http_2() {
    let server = SERVER.get();
    let address = server.0.address();
    let path = "/openapi.json";
    let first = reqwest::get(url(address, path)).await.unwrap();
    assert_eq!(first.version(), reqwest::Version::HTTP_11);
    let client = reqwest::Client::builder()
        .http2_prior_knowledge()
        .build()
        .unwrap();
    let second = client.get(url(address, path)).send().await.unwrap();
    assert_eq!(
        (second.version(), second.status()),
        (reqwest::Version::HTTP_2, StatusCode::OK)
    );
    assert_eq!(first.bytes().await.unwrap(), second.bytes().await.unwrap());
}
