//! `SyncContext` with the body of a model request.

use serde_json::{Value, json};

use super::{Caller, session};
use crate::SERVER;

async fn sync(caller: &Caller, id: &str, body: &Value) -> Value {
    caller
        .ok(caller.post(&format!("{}:sync", session(id)), body))
        .await
}

fn chat(extra: &[Value]) -> Value {
    let mut messages = vec![
        json!({"role": "system", "content": "Be brief."}),
        json!({"role": "user", "content": "hi"}),
    ];
    messages.extend_from_slice(extra);
    json!({"model": "gpt-5", "messages": messages, "temperature": 0})
}

#[tokio::test]
async fn the_reply_is_the_whole_array_to_send() {
    let server = SERVER.get();
    let caller = Caller::new(server.0.address());
    let first = sync(&caller, "whole", &chat(&[])).await;
    assert_eq!(
        (&first["outcome"], &first["lead_messages"]),
        (&json!("new"), &json!(1))
    );
    assert_eq!(first["messages"], chat(&[])["messages"]);
    let call = json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let more = [
        json!({"role": "assistant", "content": null, "tool_calls": [call]}),
        json!({"role": "tool", "tool_call_id": "c", "content": "done"}),
    ];
    let second = sync(&caller, "whole", &chat(&more)).await;
    assert_eq!(
        (&second["outcome"], &second["appended_messages"]),
        (&json!("extended"), &json!(2))
    );
    assert_eq!(second["messages"], chat(&more)["messages"]);
    assert_eq!(
        sync(&caller, "whole", &chat(&more)).await["outcome"],
        "equal"
    );

    // With the etag of a view, the reply is the rest of the view.
    let mut body = chat(&more);
    body["palimpsest"] = json!({"known_etag": second["etag"]});
    let delta = sync(&caller, "whole", &body).await;
    // The view has three messages, because the leading system message stays with the caller.
    assert_eq!(
        (&delta["keep_messages"], &delta["messages"]),
        (&json!(3), &json!([]))
    );
}

#[tokio::test]
async fn an_array_comes_back_in_its_format() {
    let server = SERVER.get();
    let caller = Caller::new(server.0.address());
    // Text alone has no format of its own, and later messages show it.
    let array = json!([{"role": "user", "content": "hi"}]);
    assert_eq!(
        sync(&caller, "format", &array).await["messages"][0]["role"],
        "user"
    );
    let chat = json!([
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "", "tool_calls":
            [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c", "content": "done"},
    ]);
    let reply = sync(&caller, "format", &chat).await;
    assert_eq!(
        (&reply["outcome"], &reply["messages"][2]["role"]),
        (&json!("extended"), &json!("tool"))
    );

    let input = json!({"input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}]});
    assert_eq!(
        sync(&caller, "items", &input).await["messages"],
        input["input"]
    );
    let blocks = json!({"system": "Be brief.", "messages": [
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "done"}]},
    ]});
    assert_eq!(
        sync(&caller, "blocks", &blocks).await["messages"],
        blocks["messages"]
    );
    // A stated format applies.
    let mut text = json!({"messages": [{"role": "user", "content": "hi"}], "palimpsest": {"format": "openai_chat"}});
    assert_eq!(
        sync(&caller, "stated", &text).await["messages"],
        text["messages"]
    );
    text["palimpsest"]["format"] = json!("palimpsest_jsonl");
    let request = caller.post(&format!("{}:sync", session("stated")), &text);
    caller.rejected(request, 400, "INVALID_FIELD").await;
}

#[tokio::test]
async fn turn_ids_are_shown_only_to_models_with_the_tool_that_snips() {
    let server = SERVER.get();
    let caller = Caller::new(server.0.address());
    let body = |tools: Value| json!({"system": "s", "messages": [{"role": "user", "content": "hi"}], "tools": tools});
    let text = |reply: &Value| reply["messages"].to_string();
    let without = sync(
        &caller,
        "untagged",
        &body(json!([{"name": "Read", "input_schema": {}}])),
    )
    .await;
    assert!(!text(&without).contains("[id:"), "{without}");
    let with = sync(
        &caller,
        "tagged",
        &body(json!([{"name": "Snip", "input_schema": {}}])),
    )
    .await;
    assert!(text(&with).contains("[id:"), "{with}");
}

#[tokio::test]
async fn a_dropped_cache_marker_is_reported() {
    let server = SERVER.get();
    let caller = Caller::new(server.0.address());
    let block = json!({"type": "text", "text": "\"cache_control\":", "cache_control": {"type": "ephemeral"}});
    let mut body = json!({"system": "s", "messages": [{"role": "user", "content": [block]}]});
    let codes = |reply: &Value| -> Vec<String> {
        let warnings = reply["warnings"].as_array().unwrap().iter();
        warnings
            .map(|one| one["code"].as_str().unwrap().to_owned())
            .collect()
    };
    let dropped = "cache_control_dropped".to_owned();
    assert!(codes(&sync(&caller, "marked", &body).await).contains(&dropped));
    body["palimpsest"] = json!({"cache_breakpoints": {"max_breakpoints": 2}});
    let reply = sync(&caller, "marked", &body).await;
    assert!(!codes(&reply).contains(&dropped), "{reply}");
    assert!(
        !reply["cache_breakpoints"].as_array().unwrap().is_empty(),
        "{reply}"
    );
    // The name of the field in a text is no marker.
    body["messages"][0]["content"] = json!("\"cache_control\":");
    body["palimpsest"] = Value::Null;
    assert!(!codes(&sync(&caller, "unmarked", &body).await).contains(&dropped));
}

#[tokio::test]
async fn a_body_without_a_conversation_is_rejected() {
    let server = SERVER.get();
    let caller = Caller::new(server.0.address());
    let path = format!("{}:sync", session("none"));
    for body in [
        json!({}),
        json!({"messages": "hi"}),
        json!({"messages": [{"role": "user"}]}),
    ] {
        let error = caller
            .rejected(caller.post(&path, &body), 400, "INVALID_PAYLOAD")
            .await;
        assert_eq!(error["status"], "INVALID_ARGUMENT", "{error}");
    }
    let body = json!({"messages": [{"role": "user", "content": "hi"}], "palimpsest": {"etag": ""}});
    let error = caller
        .rejected(caller.post(&path, &body), 400, "INVALID_FIELD")
        .await;
    assert_eq!(
        error["details"][1]["fieldViolations"][0]["field"],
        "palimpsest.etag"
    );
}

#[tokio::test]
async fn leading_system_messages_count_as_the_system_prompt() {
    let server = SERVER.get();
    let caller = Caller::new(server.0.address());
    let text = "Be brief. ".repeat(1_000);
    let user = json!({"role": "user", "content": "hi"});
    let check = async |id: &str, body: Value| {
        let reply = sync(&caller, id, &body).await;
        let counted = reply["tokens"]["breakdown"]["system_tokens"]
            .as_u64()
            .unwrap();
        assert!(counted > 1_000, "{id}: {counted}");
        assert!(reply["tokens"]["total_tokens"].as_u64().unwrap() >= counted);
    };
    let system = json!({"role": "system", "content": text});
    check(
        "counted-chat",
        json!({"model": "gpt-5", "messages": [system, user]}),
    )
    .await;
    check(
        "counted-anthropic",
        json!({"system": text, "messages": [user]}),
    )
    .await;
    let developer = json!({"type": "message", "role": "developer", "content": text});
    let item = json!({"type": "message", "role": "user", "content": "hi"});
    check("counted-items", json!({"input": [developer, item]})).await;
    let both = json!({"instructions": "Be kind.", "input": [developer, item]});
    check("counted-both", both).await;
}

#[tokio::test]
async fn a_body_with_thinking_keeps_the_thinking_of_the_model() {
    let server = SERVER.get();
    let caller = Caller::new(server.0.address());
    let body = json!({
        "model": "claude-sonnet-4-5",
        "max_tokens": 2_000,
        "thinking": {"type": "enabled", "budget_tokens": 1_024},
        "system": "s",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
                {"type": "tool_use", "id": "c", "name": "f", "input": {}},
            ]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "done"}]},
        ],
    });
    assert_eq!(
        sync(&caller, "thinking", &body).await["messages"],
        body["messages"]
    );
}
