//! Tests of models, files, batches and message threads.

use palimpsest_fake_provider::FakeProvider;
use serde_json::{Value, json};

use crate::http::{bodied, get, post};

const ANTHROPIC: &str = "authorization: Bearer key\r\nanthropic-version: 2023-06-01\r\n";
const OPENAI: &str = "authorization: Bearer key\r\n";

async fn json_of(provider: &FakeProvider, path: &str, headers: &str) -> (u16, Value) {
    bodied(&get(provider, path, headers).await)
}

#[tokio::test]
async fn lists_have_pages() {
    let provider = FakeProvider::start().await.unwrap();
    let (_, first) = json_of(&provider, "/v1/models?limit=1", ANTHROPIC).await;
    assert_eq!(
        (&first["has_more"], &first["last_id"]),
        (&json!(true), &json!("claude-fake"))
    );
    let next = "/v1/models?limit=1&after_id=claude-fake";
    let (_, second) = json_of(&provider, next, ANTHROPIC).await;
    assert_eq!(second["has_more"], false);
    assert_eq!(second["data"][0]["id"], "claude-fake-small");
    let (_, openai) = json_of(&provider, "/v1/models", OPENAI).await;
    assert_eq!(openai["data"][0]["id"], "gpt-fake");
    let statuses = [
        ("/v1/models/none", ANTHROPIC, 404),
        ("/v1/models?limit=0", ANTHROPIC, 400),
        ("/v1/models", "", 401),
    ];
    for (path, headers, status) in statuses {
        assert_eq!(json_of(&provider, path, headers).await.0, status, "{path}");
    }
    let recorded = provider.resource_requests();
    assert_eq!(recorded.len(), 6);
    assert_eq!(recorded[0].query, "limit=1");
    assert!(provider.requests().is_empty());
}

#[tokio::test]
async fn a_batch_ends_and_has_results() {
    let provider = FakeProvider::start().await.unwrap();
    let params = |max_tokens: u64| {
        let messages = json!([{"role": "user", "content": "hi"}]);
        json!({"model": "m", "max_tokens": max_tokens, "messages": messages})
    };
    let requests = json!([
        {"custom_id": "good", "params": params(100)},
        {"custom_id": "bad", "params": params(0)},
    ]);
    let path = "/v1/messages/batches";
    let created = post(&provider, path, &json!({"requests": requests}), "").await;
    let (status, batch) = bodied(&created);
    assert_eq!(
        (status, &batch["processing_status"]),
        (200, &json!("in_progress"))
    );
    let path = format!("{path}/{}", batch["id"].as_str().unwrap());
    let results = format!("{path}/results");
    assert_eq!(json_of(&provider, &results, ANTHROPIC).await.0, 404);
    // The first poll still sees the batch in progress, and ends it for the next one.
    json_of(&provider, &path, ANTHROPIC).await;
    let (_, ended) = json_of(&provider, &path, ANTHROPIC).await;
    assert_eq!(ended["processing_status"], "ended");
    assert_eq!(ended["request_counts"]["errored"], 1);
    assert!(ended["results_url"].as_str().unwrap().ends_with(&results));
    let results = get(&provider, &results, ANTHROPIC).await.body();
    let kinds = results.lines().map(|line| {
        let line: Value = serde_json::from_str(line).unwrap();
        line["result"]["type"].as_str().unwrap().to_owned()
    });
    assert_eq!(kinds.collect::<Vec<_>>(), ["succeeded", "errored"]);
}

#[tokio::test]
async fn a_thread_needs_only_new_messages() {
    let provider = FakeProvider::start().await.unwrap();
    let beta = "anthropic-beta: message-threads-2026-08-12\r\n";
    let ask = async |thread: Value, content: Value| {
        let message = json!({"role": "user", "content": content});
        let body = json!({"model": "m+call=look+times=1", "max_tokens": 100, "thread": thread,
            "messages": [message]});
        let mut body = body;
        if body["thread"]["type"] == "create" {
            body["tools"] = json!([{"name": "look", "input_schema": {"type": "object"}}]);
        }
        bodied(&post(&provider, "/v1/messages", &body, beta).await)
    };
    let (_, first) = ask(json!({"type": "create"}), json!("hi")).await;
    let call = &first["content"][0]["id"];
    let result = json!([{"type": "tool_result", "tool_use_id": call, "content": "ok"}]);
    let thread = json!({"type": "continue", "previous_message_id": first["id"]});
    let (status, second) = ask(thread.clone(), result).await;
    assert_eq!(
        (status, &second["stop_reason"]),
        (200, &json!("end_turn")),
        "{second}"
    );
    // The held call has no result in another kind of message.
    assert_eq!(ask(thread, json!("no result")).await.0, 400);
    let unknown = json!({"type": "continue", "previous_message_id": "msg_unknown"});
    let (status, rejected) = ask(unknown, json!("hi")).await;
    assert_eq!(status, 404);
    assert_eq!(
        rejected["error"]["details"]["error_code"],
        "thread_not_found"
    );
}
