//! Tests of the fake provider's validation: the status and the wording equal those of the real providers.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should fail")]

use palimpsest_fake_provider::FakeProvider;
use serde_json::{Value, json};

const ANTHROPIC: &str = "/v1/messages";
const OPENAI: &str = "/v1/chat/completions";

async fn post(provider: &FakeProvider, path: &str, body: &Value) -> (u16, Value) {
    post_as("2023-06-01", provider, path, body).await
}

async fn post_as(version: &str, provider: &FakeProvider, path: &str, body: &Value) -> (u16, Value) {
    let response = reqwest::Client::new()
        .post(format!("{}{path}", provider.url()))
        .header("x-api-key", "k")
        .header("authorization", "Bearer k")
        .header("anthropic-version", version)
        .body(body.to_string())
        .send()
        .await
        .unwrap();
    let status = response.status().as_u16();
    let text = response.text().await.unwrap();
    (
        status,
        serde_json::from_str(&text).unwrap_or(Value::String(text)),
    )
}

/// Merges changes into a valid request. A null value removes a field.
fn over(mut body: Value, changes: &Value) -> Value {
    for (name, value) in changes.as_object().unwrap() {
        if value.is_null() {
            body.as_object_mut().unwrap().remove(name);
        } else {
            body[name] = value.clone();
        }
    }
    body
}

async fn all_refused(path: &str, good: &Value, cases: &[(Value, &str)]) {
    let provider = FakeProvider::start().await.unwrap();
    let (status, body) = post(&provider, path, good).await;
    assert_eq!(status, 200, "{body}");
    for (changes, expected) in cases {
        let (status, body) = post(&provider, path, &over(good.clone(), changes)).await;
        let message = body["error"]["message"].as_str().unwrap_or_default();
        assert!(
            message.contains(expected),
            "{expected:?} for {changes}: {status} {body}"
        );
        assert_eq!(status, 400, "{changes}");
        assert_eq!(body["error"]["type"], "invalid_request_error", "{changes}");
    }
}

fn one(content: Value) -> Value {
    let mut body = json!({"messages": [{"role": "user"}]});
    body["messages"][0]["content"] = content;
    body
}

fn call(id: &str) -> Value {
    json!({"type": "tool_use", "id": id, "name": "Read", "input": {}})
}

fn result(id: &str) -> Value {
    json!({"type": "tool_result", "tool_use_id": id, "content": "ok"})
}

fn turns(contents: &[Value]) -> Value {
    let role = |at: usize| {
        if at.is_multiple_of(2) {
            "user"
        } else {
            "assistant"
        }
    };
    let message = |(at, content): (usize, &Value)| json!({"role": role(at), "content": content});
    json!({"messages": contents.iter().enumerate().map(message).collect::<Vec<_>>()})
}

fn anthropic_good() -> Value {
    json!({"model": "m", "max_tokens": 10, "messages": [{"role": "user", "content": "hi"}]})
}

#[tokio::test]
async fn anthropic_rejects_invalid_requests() {
    let cases = [
        (json!({"max_tokens": null}), "max_tokens: Field required"),
        (json!({"max_tokens": 0}), "greater than or equal to 1"),
        (
            json!({"max_tokens": 70_000}),
            "70000 > 64000, which is the maximum",
        ),
        (json!({"extra": 1}), "extra: Extra inputs are not permitted"),
        (
            json!({"temperature": 1.5}),
            "temperature: Input should be less than or equal to 1",
        ),
        (json!({"messages": []}), "at least one message is required"),
        (
            json!({"messages": [{"role": "assistant", "content": "hi"}]}),
            "first message must use the",
        ),
        (
            json!({"messages": [{"role": "system", "content": "hi"}]}),
            "Unexpected role",
        ),
        (
            json!({"messages": [{"role": "tool", "content": "hi"}]}),
            "messages.0.role",
        ),
        (one(json!("")), "must have non-empty content"),
        (one(json!([])), "must have non-empty content"),
        (
            one(json!([{"type": "text", "text": ""}])),
            "must be non-empty",
        ),
        (
            one(json!([{"type": "text", "text": " \n"}])),
            "non-whitespace",
        ),
        (
            one(json!([{"type": "blob"}])),
            "does not match any of the expected tags",
        ),
    ];
    all_refused(ANTHROPIC, &anthropic_good(), &cases).await;
}

#[tokio::test]
async fn anthropic_rejects_calls_images_and_lengths() {
    let marked = json!({"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}});
    let cases = [
        (
            one(json!([call("a")])),
            "`tool_use` blocks can not be in `user` messages",
        ),
        (one(json!([result("a")])), "unexpected `tool_use_id`"),
        (
            one(json!([marked, marked, marked, marked, marked])),
            "maximum of 4 blocks with cache_control",
        ),
        (
            turns(&[json!("a"), json!("b ")]),
            "cannot end with trailing whitespace",
        ),
        (
            turns(&[json!("a"), json!([call("t")])]),
            "without `tool_result` blocks immediately after: t",
        ),
        (
            turns(&[json!("a"), json!([call("t")]), json!("b")]),
            "immediately after: t",
        ),
        (
            turns(&[
                json!("a"),
                json!([call("t")]),
                // Results must come first in their message.
                json!([{"type": "text", "text": "b"}, result("t")]),
            ]),
            "immediately after: t",
        ),
        (
            turns(&[
                json!("a"),
                json!([call("t")]),
                json!([result("t"), result("t")]),
            ]),
            "must have a single result",
        ),
        (
            turns(&[
                json!("a"),
                json!([call("t"), call("t")]),
                json!([result("t")]),
            ]),
            "ids must be unique",
        ),
        (
            turns(&[json!("a"), json!([call("a.b")]), json!([result("a.b")])]),
            "should match pattern",
        ),
        (
            one(
                json!([{"type": "image", "source": {"type": "base64", "media_type": "image/bmp", "data": ""}}]),
            ),
            "media_type",
        ),
        (
            // The fake count is bytes divided by four: 900,000 bytes are 225,000 tokens.
            one(json!("x".repeat(900_000))),
            "prompt is too long: 225000 tokens > 200000 maximum",
        ),
        (
            // 175,000 tokens fit the window of 200,000, but not together with 60,000 of output.
            json!({"max_tokens": 60_000, "messages": [{"role": "user", "content": "x".repeat(700_000)}]}),
            "exceed context limit: 175000 + 60000 > 200000",
        ),
    ];
    all_refused(ANTHROPIC, &anthropic_good(), &cases).await;
}

#[tokio::test]
async fn anthropic_accepts_valid_requests() {
    let provider = FakeProvider::start().await.unwrap();
    let good = json!({"model": "m", "max_tokens": 10});
    let fine = [
        turns(&[
            json!("a"),
            json!([call("t"), call("u")]),
            json!([result("u"), result("t"), {"type": "text", "text": "b"}]),
        ]),
        turns(&[
            json!("a"),
            json!([{"type": "thinking", "thinking": "x", "signature": "s"}, {"type": "text", "text": "b"}]),
            json!("c"),
        ]),
        json!({"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]}),
        // A final assistant message is a prefill that the model continues.
        turns(&[json!("a"), json!("a prefill")]),
    ];
    for changes in fine {
        let (status, body) = post(&provider, ANTHROPIC, &over(good.clone(), &changes)).await;
        assert_eq!(status, 200, "{changes}: {body}");
    }
}

#[tokio::test]
async fn openai_rejects_invalid_requests() {
    let good = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
    let tool_call =
        json!({"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let calls = json!({"role": "assistant", "content": null, "tool_calls": [tool_call]});
    let user = json!({"role": "user", "content": "hi"});
    let answer = json!({"role": "tool", "tool_call_id": "c1", "content": "ok"});
    let mut long = tool_call.clone();
    long["id"] = json!("x".repeat(41));
    let cases = [
        (json!({"messages": []}), "empty array"),
        (json!({"model": ""}), "you must provide a model parameter"),
        (json!({"extra": 1}), "Unknown parameter: 'extra'"),
        (json!({"temperature": 3}), "decimal above maximum value"),
        (json!({"max_tokens": 0}), "integer below minimum value"),
        (
            json!({"max_tokens": 99_999}),
            "supports at most 16384 completion tokens",
        ),
        (
            json!({"max_tokens": 5, "max_completion_tokens": 5}),
            "at the same time",
        ),
        (
            // Reasoning models have another name for the limit.
            json!({"model": "o3", "max_tokens": 5}),
            "Use 'max_completion_tokens' instead",
        ),
        (
            json!({"messages": [{"role": "human", "content": "x"}]}),
            "Supported values are",
        ),
        (
            json!({"messages": [{"role": "user", "content": null}]}),
            "expected a string, got null",
        ),
        (
            json!({"messages": [user, calls]}),
            "did not have response messages: c1",
        ),
        (
            json!({"messages": [user, calls, user]}),
            "did not have response messages: c1",
        ),
        (
            json!({"messages": [user, answer]}),
            "must be a response to a preceeding message",
        ),
        (
            json!({"messages": [user, calls, answer, answer]}),
            "must be a response to a preceeding message",
        ),
        (
            json!({"messages": [user, {"role": "assistant", "tool_calls": [long]}]}),
            "maximum length 40",
        ),
        (
            json!({"messages": [user, {"role": "assistant", "tool_calls": []}]}),
            "empty array",
        ),
        (
            json!({"messages": [{"role": "user", "content": "x".repeat(600_000)}]}),
            "maximum context length is 128000 tokens. However, your messages resulted in 150000 tokens",
        ),
    ];
    all_refused(OPENAI, &good, &cases).await;
    let provider = FakeProvider::start().await.unwrap();
    let (status, body) = post(
        &provider,
        OPENAI,
        &over(good, &json!({"messages": [user, calls, answer]})),
    )
    .await;
    assert_eq!(status, 200, "{body}");
}

#[tokio::test]
async fn keys_and_versions_are_checked() {
    let provider = FakeProvider::start().await.unwrap();
    let client = reqwest::Client::new();
    let url = format!("{}{ANTHROPIC}", provider.url());
    let body = r#"{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"a"}]}"#;
    let no_key = client
        .post(&url)
        .header("anthropic-version", "2023-06-01")
        .body(body)
        .send()
        .await
        .unwrap();
    assert_eq!(no_key.status(), 401);
    let no_version = client
        .post(&url)
        .header("x-api-key", "k")
        .body(body)
        .send()
        .await
        .unwrap();
    assert_eq!(no_version.status(), 400);
    assert!(
        no_version
            .text()
            .await
            .unwrap()
            .contains("anthropic-version: header is required")
    );
    let no_key = client
        .post(format!("{}{OPENAI}", provider.url()))
        .body(body)
        .send()
        .await
        .unwrap();
    assert_eq!(no_key.status(), 401);
    assert_eq!(provider.requests().len(), 3);
}

#[tokio::test]
async fn replies_are_streamed_in_both_formats() {
    let provider = FakeProvider::start().await.unwrap();
    let asked = json!({"model": "m+say=hello_there", "max_tokens": 10, "stream": true, "messages": [{"role": "user", "content": "hi"}]});
    let (_, events) = post(&provider, ANTHROPIC, &asked).await;
    let events = events.as_str().unwrap();
    for event in [
        "message_start",
        "content_block_delta",
        "hello there",
        "\"stop_reason\":\"end_turn\"",
        "message_stop",
    ] {
        assert!(events.contains(event), "{event}: {events}");
    }
    let (_, chunks) = post(&provider, OPENAI, &asked).await;
    let chunks = chunks.as_str().unwrap();
    assert!(
        chunks.contains("hello there") && chunks.ends_with("data: [DONE]\n\n"),
        "{chunks}"
    );
}

#[tokio::test]
async fn a_newer_api_version_rejects_more_requests() {
    let provider = FakeProvider::start().await.unwrap();
    let good =
        json!({"model": "m", "max_tokens": 10, "messages": [{"role": "user", "content": "a"}]});
    let cited = json!({"type": "text", "text": "b", "citations": [{"type": "char_location"}]});
    let cases = [
        (json!({"temperature": 1.0}), "temperature"),
        (
            json!({"messages": [{"role": "user", "content": [cited]}]}),
            "citations",
        ),
    ];
    for (changes, said) in cases {
        let asked = over(good.clone(), &changes);
        let (status, _) = post(&provider, ANTHROPIC, &asked).await;
        assert_eq!(
            status, 200,
            "{changes}: the previous version accepts the request"
        );
        let (status, body) = post_as("2026-10-21", &provider, ANTHROPIC, &asked).await;
        assert_eq!(status, 400, "{changes}");
        assert!(body.to_string().contains(said), "{changes}: {body}");
    }
    let (status, body) = post_as("2026-10-21", &provider, ANTHROPIC, &good).await;
    assert_eq!(status, 200, "{body}");
    let (status, _) = post_as("2030-01-01", &provider, ANTHROPIC, &good).await;
    assert_eq!(status, 400, "the API version is unknown");
}

#[tokio::test]
async fn scripted_tool_calls_require_offered_tools() {
    let provider = FakeProvider::start().await.unwrap();
    let asked = json!({"model": "m+call=look+times=2", "max_tokens": 10, "messages": [{"role": "user", "content": "hi"}]});
    let (status, _) = post(&provider, ANTHROPIC, &asked).await;
    assert_eq!(status, 400, "the request offers no tool");
    let tools = json!([{"name": "look", "input_schema": {"type": "object"}}]);
    let (_, message) = post(&provider, ANTHROPIC, &over(asked, &json!({"tools": tools}))).await;
    assert_eq!(message["stop_reason"], "tool_use");
    let call = &message["content"][0];
    assert_eq!(
        (&call["name"], &call["input"]),
        (&json!("look"), &json!({}))
    );

    let asked = json!({"model": "n+call=look", "stream": true, "messages": [{"role": "user", "content": "hi"}]});
    let tools = json!([{"type": "function", "function": {"name": "look"}}]);
    let (_, chunks) = post(&provider, OPENAI, &over(asked, &json!({"tools": tools}))).await;
    let chunks = chunks.as_str().unwrap();
    for part in ["\"name\":\"look\"", "\"finish_reason\":\"tool_calls\""] {
        assert!(chunks.contains(part), "{part}: {chunks}");
    }
}

#[tokio::test]
async fn image_limits_are_enforced() {
    use base64::Engine as _;
    let encode = |bytes: &[u8]| base64::engine::general_purpose::STANDARD.encode(bytes);
    // The header of a PNG contains its dimensions.
    let png = |width: u32| {
        let mut bytes = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
        bytes.extend(width.to_be_bytes());
        bytes.extend(1_u32.to_be_bytes());
        bytes.extend([8, 6, 0, 0, 0, 0, 0, 0, 0]);
        encode(&bytes)
    };
    let image = |data: String| json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}});
    let provider = FakeProvider::start().await.unwrap();
    let good = json!({"model": "m", "max_tokens": 10});
    let cases = [
        (vec![image(png(8_000))], None),
        (
            vec![image(png(8_001))],
            Some("max allowed size: 8000 pixels"),
        ),
        (
            // More than 20 images lower the limit from 8,000 to 2,000 pixels.
            vec![image(png(2_001)); 21],
            Some("many-image requests: 2000 pixels"),
        ),
        (
            vec![image(encode(&vec![0; 5 * 1024 * 1024 + 1]))],
            Some("image exceeds 5 MB maximum"),
        ),
    ];
    for (content, refused) in cases {
        let (status, body) = post(
            &provider,
            ANTHROPIC,
            &over(good.clone(), &one(json!(content))),
        )
        .await;
        assert_eq!(status, if refused.is_some() { 400 } else { 200 }, "{body}");
        let message = body["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(refused.unwrap_or_default()), "{message}");
    }
}
