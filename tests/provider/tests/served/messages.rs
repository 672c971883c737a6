//! Tests of the Messages API: betas and their fields, system messages, edits of the context, and counts.

use palimpsest_fake_provider::FakeProvider;
use serde_json::{Value, json};

use crate::http::{bodied, post};

const MESSAGES: &str = "/v1/messages";
const COUNT: &str = "/v1/messages/count_tokens";

fn over(mut body: Value, changes: &Value) -> Value {
    for (name, value) in changes.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

/// Sends a valid request with changes and with these betas.
async fn ask(path: &str, betas: &str, changes: &Value) -> (u16, Value) {
    let provider = FakeProvider::start().await.unwrap();
    let mut asked = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
    if path == MESSAGES {
        asked["max_tokens"] = json!(4_000);
    }
    let header = if betas.is_empty() {
        String::new()
    } else {
        format!("anthropic-beta: {betas}\r\n")
    };
    bodied(&post(&provider, path, &over(asked, changes), &header).await)
}

#[track_caller]
fn assert_rejected((status, body): &(u16, Value), expected: &str) {
    let message = body["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains(expected), "{expected}: {status} {body}");
    assert_eq!(*status, 400, "{body}");
}

/// Asserts that a request needs this beta: it is rejected without and accepted with it.
async fn needs(beta: &str, changes: Value, expected: &str) {
    assert_rejected(&ask(MESSAGES, "", &changes).await, expected);
    let (status, body) = ask(MESSAGES, beta, &changes).await;
    assert_eq!(status, 200, "{beta}: {body}");
}

#[tokio::test]
async fn fields_need_their_beta() {
    let unknown = "interleaved-thinking-2025-05-14,new-thing-2030";
    let rejected = ask(MESSAGES, unknown, &json!({})).await;
    let expected = "Unexpected value(s) `new-thing-2030` for the `anthropic-beta` header";
    assert_rejected(&rejected, expected);
    let extra = "Extra inputs are not permitted";
    needs("fast-mode-2026-02-01", json!({"speed": "fast"}), extra).await;
    let edits = json!({"context_management": {"edits": []}});
    needs("context-management-2025-06-27", edits, extra).await;
    let budget = json!({"output_config": {"task_budget": {"type": "tokens", "total": 9}}});
    needs("task-budgets-2026-03-13", budget, extra).await;
    let block = json!({"type": "compaction", "content": "short"});
    let compacted = json!({"messages": [
        {"role": "assistant", "content": [block]}, {"role": "user", "content": "go on"},
    ]});
    needs("compact-2026-01-12", compacted, extra).await;
}

#[tokio::test]
async fn system_messages_need_their_beta() {
    let beta = "mid-conversation-system-2026-04-07";
    let with = |message: Value| json!({"messages": [{"role": "user", "content": "hi"}, message]});
    let text = json!({"role": "system", "content": "be short"});
    needs(beta, with(text), "Unexpected role \"system\"").await;
    let per_turn = "mid-conversation-system-2026-04-07,per-turn-control-2026-07-01";
    let effort = json!({"role": "system", "content": [], "output_config": {"effort": "low"}});
    // An effort inside of the conversation needs a beta of its own.
    let rejected = ask(MESSAGES, beta, &with(effort.clone())).await;
    assert_rejected(
        &rejected,
        "messages.1.output_config: Extra inputs are not permitted",
    );
    let (status, body) = ask(MESSAGES, per_turn, &with(effort)).await;
    assert_eq!(status, 200, "{body}");
    let empty = json!({"role": "system", "content": []});
    let rejected = ask(MESSAGES, per_turn, &with(empty)).await;
    assert_rejected(&rejected, "must have content or a non-empty output_config");
    let effort = json!({"role": "system", "content": "x", "output_config": {"effort": "huge"}});
    let rejected = ask(MESSAGES, per_turn, &with(effort)).await;
    assert_rejected(&rejected, "output_config.effort: Input should be");
}

#[tokio::test]
async fn a_system_message_does_not_separate_a_call_from_its_result() {
    let call = json!({"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]});
    let result = json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "ok"}]});
    let system = json!({"role": "system", "content": "note"});
    let user = json!({"role": "user", "content": "hi"});
    let beta = "mid-conversation-system-2026-04-07";
    // A system message may follow the result, but not stand between a call and its result.
    let after = json!({"messages": [user, system, call, result, system]});
    let (status, body) = ask(MESSAGES, beta, &after).await;
    assert_eq!(status, 200, "{body}");
    let between = json!({"messages": [user, call, system, result]});
    let rejected = ask(MESSAGES, beta, &between).await;
    assert_rejected(
        &rejected,
        "without `tool_result` blocks immediately after: t",
    );
}

#[tokio::test]
async fn system_messages_have_their_places() {
    let beta = "mid-conversation-system-2026-04-07";
    let (user, model) = (
        json!({"role": "user", "content": "hi"}),
        json!({"role": "assistant", "content": "yes"}),
    );
    let (one, two) = (
        json!({"role": "system", "content": "one"}),
        json!({"role": "system", "content": "two"}),
    );
    let accepted = json!({"messages": [user, one, two, model, user, one]});
    let (status, body) = ask(MESSAGES, beta, &accepted).await;
    assert_eq!(status, 200, "{body}");
    let rejected = ask(MESSAGES, beta, &json!({"messages": [user, model, one]})).await;
    assert_rejected(
        &rejected,
        "messages.2: role 'system' must follow a 'user' message",
    );
    let rejected = ask(MESSAGES, beta, &json!({"messages": [user, one, two, user]})).await;
    assert_rejected(
        &rejected,
        "role 'system' must precede an 'assistant' message or end the array",
    );
}

#[tokio::test]
async fn unknown_fields_of_blocks_and_tools_are_rejected() {
    let extra = "Extra inputs are not permitted";
    let tool = json!({"tools": [{"name": "f", "input_schema": {"type": "object"}, "extra": 1}]});
    assert_rejected(
        &ask(MESSAGES, "", &tool).await,
        &format!("tools.0.custom.extra: {extra}"),
    );
    let call = json!({"messages": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}, "index": 0}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "ok"}]},
    ]});
    let rejected = ask(MESSAGES, "", &call).await;
    assert_rejected(
        &rejected,
        &format!("messages.1.content.0.tool_use.index: {extra}"),
    );
}

#[tokio::test]
async fn changed_thinking_is_rejected() {
    let provider = FakeProvider::start().await.unwrap();
    let script = json!({"turns": [{"thinking": "step by step", "text": "done"}]});
    provider
        .add_script(serde_json::from_value(script).unwrap())
        .unwrap();
    let asked = json!({
        "model": "m", "max_tokens": 4_000, "thinking": {"type": "adaptive"},
        "messages": [{"role": "user", "content": "hi"}],
    });
    let (_, message) = bodied(&post(&provider, MESSAGES, &asked, "").await);
    let mut content = message["content"].clone();
    let next = |content: &Value| {
        let messages = json!([
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": content},
            {"role": "user", "content": "more"},
        ]);
        over(asked.clone(), &json!({"messages": messages}))
    };
    let (status, body) = bodied(&post(&provider, MESSAGES, &next(&content), "").await);
    assert_eq!(status, 200, "{body}");
    content[0]["thinking"] = json!("step by");
    let rejected = bodied(&post(&provider, MESSAGES, &next(&content), "").await);
    let expected = "messages.1.content.0: Invalid `signature` in `thinking` block";
    assert_rejected(&rejected, expected);
}

#[tokio::test]
async fn edits_of_the_context_are_checked() {
    let betas = "context-management-2025-06-27,compact-2026-01-12";
    let thinking = json!({"type": "clear_thinking_20251015", "keep": "all"});
    let compact = |tokens: u64| json!({"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": tokens}});
    let with = |edits: Value| json!({"context_management": {"edits": edits}});
    for (edits, expected) in [
        (
            json!([{"type": "clear_all"}]),
            "does not match any of the expected tags",
        ),
        (
            json!([thinking]),
            "requires `thinking` to be enabled or adaptive",
        ),
        (json!([compact(49_999)]), "greater than or equal to 50000"),
        (
            json!([{"type": "clear_tool_uses_20250919", "keeps": 1}]),
            "clear_tool_uses_20250919.keeps: Extra inputs are not permitted",
        ),
    ] {
        assert_rejected(&ask(MESSAGES, betas, &with(edits)).await, expected);
    }
    let compact_alone = with(json!([compact(50_000)]));
    let rejected = ask(MESSAGES, "context-management-2025-06-27", &compact_alone).await;
    assert_rejected(&rejected, "does not match any of the expected tags");
    let mut good = with(json!([thinking, compact(50_000)]));
    good["thinking"] = json!({"type": "adaptive"});
    let (status, body) = ask(MESSAGES, betas, &good).await;
    assert_eq!(status, 200, "{body}");
    assert_eq!(body["context_management"]["applied_edits"], json!([]));
}

#[tokio::test]
async fn a_long_conversation_is_compacted() {
    let beta = "compact-2026-01-12";
    let edit = |pauses: bool| {
        json!({"edits": [{
            "type": "compact_20260112", "pause_after_compaction": pauses,
            "trigger": {"type": "input_tokens", "value": 50_000},
        }]})
    };
    // 240,000 bytes are 60,000 tokens, above the trigger of 50,000.
    let long = json!([{"role": "user", "content": format!("long story\n{}", "x".repeat(240_000))},
        {"role": "assistant", "content": "ok"}, {"role": "user", "content": "go on"}]);
    let request = json!({"context_management": edit(false), "messages": long});
    let (status, message) = ask(MESSAGES, beta, &request).await;
    assert_eq!(status, 200, "{message}");
    let content = message["content"].as_array().unwrap();
    assert_eq!(
        (&content[0]["type"], content.len()),
        (&json!("compaction"), 2)
    );
    assert!(
        content[0]["content"]
            .as_str()
            .unwrap()
            .contains("long story")
    );
    let iterations = message["usage"]["iterations"].as_array().unwrap();
    assert_eq!(iterations[0]["type"], "compaction");
    assert!(iterations[0]["input_tokens"].as_u64().unwrap() > 60_000);
    assert!(message["usage"]["input_tokens"].as_u64().unwrap() < 1_000);
    let request = json!({"context_management": edit(true), "messages": long});
    let (_, paused) = ask(MESSAGES, beta, &request).await;
    assert_eq!(paused["stop_reason"], "compaction");
    assert_eq!(paused["content"].as_array().unwrap().len(), 1);
    // The next request begins with the block, and what was before does not count.
    let next = json!({"messages": [long[0], {"role": "assistant", "content": paused["content"]},
        {"role": "user", "content": "go on"}]});
    let (_, message) = ask(MESSAGES, beta, &next).await;
    assert!(
        message["usage"]["input_tokens"].as_u64().unwrap() < 1_000,
        "{message}"
    );
}

#[tokio::test]
async fn limits_follow_from_the_model() {
    let rejected = ask(MESSAGES, "", &json!({"max_tokens": 128_000})).await;
    assert_rejected(&rejected, "128000 > 64000, which is the maximum");
    let newer = json!({"model": "claude-opus-5-5", "max_tokens": 128_000});
    let (status, body) = ask(MESSAGES, "", &newer).await;
    assert_eq!(status, 200, "{body}");
}

#[tokio::test]
async fn tokens_are_counted_without_an_answer() {
    let text = json!({"messages": [{"role": "user", "content": "x".repeat(400)}]});
    let (status, counted) = ask(COUNT, "", &text).await;
    assert_eq!((status, counted), (200, json!({"input_tokens": 100})));
    let output = ask(COUNT, "", &json!({"max_tokens": 5})).await;
    assert_rejected(&output, "max_tokens: Extra inputs are not permitted");
    let calls: Vec<Value> = (0..5)
        .flat_map(|number| {
            let call = json!({"type": "tool_use", "id": format!("t{number}"), "name": "f", "input": {}});
            let result = json!({"type": "tool_result", "tool_use_id": call["id"], "content": "x".repeat(4_000)});
            [
                json!({"role": "assistant", "content": [call]}),
                json!({"role": "user", "content": [result]}),
            ]
        })
        .collect();
    let mut messages = vec![json!({"role": "user", "content": "hi"})];
    messages.extend(calls);
    let edit =
        json!({"type": "clear_tool_uses_20250919", "trigger": {"type": "tool_uses", "value": 4}});
    let request = json!({"messages": messages, "context_management": {"edits": [edit]}});
    let (_, counted) = ask(COUNT, "context-management-2025-06-27", &request).await;
    let original = counted["context_management"]["original_input_tokens"]
        .as_u64()
        .unwrap();
    let cleared = original - counted["input_tokens"].as_u64().unwrap();
    // Three of five results are kept. Two results of 1,000 tokens each become a short placeholder.
    assert!((1_900..2_000).contains(&cleared), "{counted}");
}
