//! Tests of bills: prompt caches of both providers, as requests over HTTP see them.

use std::time::Duration;

use palimpsest_fake_provider::{Bill, FakeProvider};
use serde_json::{Value, json};

use crate::http::{KEY, bodied, get, post_json};

const MESSAGES: &str = "/v1/messages";
const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";

/// Returns a text of this number of tokens.
fn tokens(letter: &str, count: usize) -> String {
    letter.repeat(4 * count)
}

/// Returns a text block of this number of tokens with a cache marker.
fn marked(count: usize, ttl: &str) -> Value {
    json!({
        "type": "text", "text": tokens("s", count),
        "cache_control": {"type": "ephemeral", "ttl": ttl},
    })
}

fn over(mut body: Value, changes: &Value) -> Value {
    for (name, value) in changes.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

fn messages_request() -> Value {
    json!({
        "model": "claude-sonnet-4-5", "max_tokens": 10, "system": [marked(2_000, "1h")],
        "messages": [
            {"role": "user", "content": [marked(1_000, "5m")]},
            {"role": "user", "content": tokens("q", 10)},
        ],
    })
}

/// Returns the input, the read and both kinds of written tokens that a message reports.
fn usage(message: &Value) -> [u64; 4] {
    let pointers = [
        "/usage/input_tokens",
        "/usage/cache_read_input_tokens",
        "/usage/cache_creation/ephemeral_5m_input_tokens",
        "/usage/cache_creation/ephemeral_1h_input_tokens",
    ];
    pointers.map(|pointer| message.pointer(pointer).and_then(Value::as_u64).unwrap())
}

async fn usage_of(provider: &FakeProvider, changes: &Value) -> [u64; 4] {
    let asked = over(messages_request(), changes);
    let (status, message) = post_json(provider, MESSAGES, &asked).await;
    assert_eq!(status, 200, "{message}");
    usage(&message)
}

#[tokio::test]
async fn messages_report_both_lifetimes_until_they_expire() {
    let provider = FakeProvider::start().await.unwrap();
    let same = json!({});
    // The system prompt has 2,000 tokens for an hour, the first message 1,000 for five minutes. 10 tokens have no
    // marker.
    assert_eq!(usage_of(&provider, &same).await, [10, 0, 1_000, 2_000]);
    assert_eq!(usage_of(&provider, &same).await, [10, 3_000, 0, 0]);
    provider.advance(Duration::from_mins(4));
    assert_eq!(usage_of(&provider, &same).await, [10, 3_000, 0, 0]);
    // Eight minutes after the write, but four after the read that refreshed the prefix.
    provider.advance(Duration::from_mins(4));
    assert_eq!(usage_of(&provider, &same).await, [10, 3_000, 0, 0]);
    // The short prefix has expired and is written again. The long one is still read.
    provider.advance(Duration::from_mins(5));
    assert_eq!(usage_of(&provider, &same).await, [10, 2_000, 1_000, 0]);
    provider.advance(Duration::from_hours(1));
    assert_eq!(usage_of(&provider, &same).await, [10, 0, 1_000, 2_000]);
}

#[tokio::test]
async fn tools_invalidate_everything_and_parameters_only_the_messages() {
    let provider = FakeProvider::start().await.unwrap();
    usage_of(&provider, &json!({})).await;
    let thinking = json!({"thinking": {"type": "adaptive"}});
    // `thinking` is part of the cached messages, but not of the system prompt.
    assert_eq!(usage_of(&provider, &thinking).await, [10, 2_000, 1_000, 0]);
    let tool = json!({"name": "t", "input_schema": {"type": "object"}});
    let [input, read, ..] = usage_of(&provider, &json!({"tools": [tool]})).await;
    assert_eq!((input, read), (10, 0));
    // A moved marker changes no content.
    let unmarked = json!({"messages": [
        {"role": "user", "content": [{"type": "text", "text": tokens("s", 1_000)}]},
        {"role": "user", "content": [marked(2_000, "5m")]},
    ]});
    assert_eq!(usage_of(&provider, &unmarked).await, [0, 3_000, 2_000, 0]);
}

#[tokio::test]
async fn a_marker_of_the_request_caches_its_last_block() {
    let provider = FakeProvider::start().await.unwrap();
    let automatic = json!({
        "system": tokens("s", 2_000), "cache_control": {"type": "ephemeral"},
        "messages": [{"role": "user", "content": "four"}],
    });
    assert_eq!(usage_of(&provider, &automatic).await, [0, 0, 2_001, 0]);
    assert_eq!(usage_of(&provider, &automatic).await, [0, 2_001, 0, 0]);
}

#[tokio::test]
async fn long_lifetimes_come_before_short_ones() {
    let provider = FakeProvider::start().await.unwrap();
    let cases = [
        (
            json!({"system": [marked(1, "5m"), marked(1, "1h")]}),
            "system.1.cache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m'",
        ),
        (
            json!({"system": [marked(1, "5m")], "messages": [{"role": "user", "content": [marked(1, "1h")]}]}),
            "messages.0.content.0.cache_control.ttl: a ttl='1h'",
        ),
        (
            json!({"cache_control": {"type": "ephemeral"}, "messages": [{"role": "user", "content": [marked(1, "1h")]}]}),
            "Top-level cache_control has ttl='5m' but the target block already has cache_control with ttl='1h'",
        ),
        (
            json!({"cache_control": {"type": "ephemeral"}, "system": vec![marked(1, "5m"); 4], "messages": [{"role": "user", "content": "a"}]}),
            "A maximum of 4 blocks with cache_control may be provided. Found 5.",
        ),
    ];
    for (changes, expected) in cases {
        let asked = over(messages_request(), &changes);
        let (status, body) = post_json(&provider, MESSAGES, &asked).await;
        assert_eq!(status, 400, "{body}");
        assert!(body.to_string().contains(expected), "{expected}: {body}");
    }
}

#[tokio::test]
async fn openai_caches_automatically_in_steps() {
    let provider = FakeProvider::start().await.unwrap();
    let chat = |tail: &str, key: &str| {
        json!({"model": "gpt-5", "prompt_cache_key": key, "messages": [
            {"role": "user", "content": tokens("u", 1_500)},
            {"role": "user", "content": tail},
        ]})
    };
    let read = async |body: &Value| {
        let (_, completion) = post_json(&provider, CHAT, body).await;
        let details = &completion["usage"]["prompt_tokens_details"];
        details["cached_tokens"].as_u64().unwrap()
    };
    assert_eq!(read(&chat("a", "")).await, 0);
    // 1,408 = 1,024 + 3 × 128 is the last step within the shared 1,500 tokens.
    assert_eq!(read(&chat("b", "")).await, 1_408);
    assert_eq!(read(&chat("b", "other")).await, 0);
    provider.advance(Duration::from_mins(10));
    assert_eq!(read(&chat("b", "")).await, 0);
    let response = json!({"model": "gpt-5", "instructions": tokens("i", 2_000), "input": "hi"});
    post_json(&provider, RESPONSES, &response).await;
    let (_, second) = post_json(&provider, RESPONSES, &response).await;
    let cached = &second["usage"]["input_tokens_details"]["cached_tokens"];
    assert_eq!(cached, 1_920, "{second}");
}

#[tokio::test]
async fn each_key_has_its_bill() {
    let provider = FakeProvider::start().await.unwrap();
    post_json(&provider, MESSAGES, &messages_request()).await;
    post_json(&provider, MESSAGES, &messages_request()).await;
    // A rejected request costs nothing.
    let invalid = over(messages_request(), &json!({"max_tokens": 0}));
    post_json(&provider, MESSAGES, &invalid).await;
    let bill = provider.bill(KEY);
    let output = bill.output;
    let expected = Bill {
        requests: 2,
        input: 20,
        read: 3_000,
        written_5m: 1_000,
        written_1h: 2_000,
        output,
        // Prices relative to an input token: reads 0.1, five minutes 1.25, an hour 2, output 5.
        cost_milli: 20_000 + 300_000 + 1_250_000 + 4_000_000 + output * 5_000,
    };
    assert_eq!(bill, expected);
    assert_eq!(provider.bill("another key"), Bill::default());
    let authorized = format!("authorization: Bearer {KEY}\r\n");
    let (_, own) = bodied(&get(&provider, "/_control/bill", &authorized).await);
    assert_eq!(own["cost_milli"], expected.cost_milli);
    let all = get(&provider, "/_control/bill", "").await;
    assert!(!all.body().contains(KEY), "keys are not shown");
    let (_, all) = bodied(&all);
    let bills = all["bills"].as_object().unwrap();
    assert_eq!(bills.values().collect::<Vec<_>>(), [&own]);
}
