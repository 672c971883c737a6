//! Streams as lines and as server-sent events.

use futures::StreamExt as _;
use serde_json::{Value, json};

use super::{Caller, session};
use crate::SERVER;

/// Returns the lines of a response as JSON, without `prefix`.
fn parsed(text: &str, prefix: &str) -> Vec<Value> {
    let lines = text.lines().filter(|line| !line.is_empty());
    lines
        .map(|line| serde_json::from_str(line.strip_prefix(prefix).unwrap()).unwrap())
        .collect()
}

#[tokio::test]
async fn a_finite_stream_has_one_line_per_message() {
    let server = SERVER.get();
    let caller = Caller::new(server.0.address());
    let path = session("lines");
    let content = json!([{"type": "text", "text": "hi"}]);
    let body = json!({"system": "s", "messages": [{"role": "user", "content": content}]});
    let synced = caller.ok(caller.post(&format!("{path}:sync"), &body)).await;
    let request = caller.post(&format!("{path}:stream"), &json!({"etag": synced["etag"]}));
    let response = request.send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "application/x-ndjson");
    let lines = parsed(&response.text().await.unwrap(), "");
    assert_eq!(
        (&lines[0]["messages"], &lines[0]["last"]),
        (&body["messages"], &json!(true))
    );
    let unknown = caller.post(
        &format!("{}:stream", session("nobody")),
        &json!({"etag": synced["etag"]}),
    );
    caller.rejected(unknown, 404, "SESSION_NOT_FOUND").await;
}

#[tokio::test]
async fn a_page_follows_a_session_with_events() {
    let server = SERVER.get();
    let caller = Caller::new(server.0.address());
    let path = session("followed");
    let body = |text: &str| json!({"system": "s", "messages": [{"role": "user", "content": text}]});
    caller
        .ok(caller.post(&format!("{path}:sync"), &body("one")))
        .await;
    let request = caller.get(&format!(
        "{path}/events:watch?after_revision=0&kinds=messages_appended"
    ));
    let response = request
        .header("accept", "text/event-stream")
        .send()
        .await
        .unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let missing = caller.get(&format!("{}/events:watch", session("nobody")));
    caller.rejected(missing, 404, "SESSION_NOT_FOUND").await;
    let mut parts = response.bytes_stream();
    let mut text = String::new();
    let mut appended = 0;
    while appended < 2 {
        let part = parts.next().await.unwrap().unwrap();
        text.push_str(std::str::from_utf8(&part).unwrap());
        let events = parsed(&text, "data: ");
        let now = events
            .iter()
            .filter(|event| event["event"]["messages_appended"].is_object())
            .count();
        // The second append waits for the first event, so its own event must come from a live watch.
        if now > appended && now == 1 {
            let mut longer = body("one");
            longer["messages"]
                .as_array_mut()
                .unwrap()
                .push(json!({"role": "user", "content": "two"}));
            caller
                .ok(caller.post(&format!("{path}:sync"), &longer))
                .await;
        }
        appended = now;
    }
}
