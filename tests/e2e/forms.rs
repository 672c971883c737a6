//! Tests of the input forms of messages and the bytes of the output.

use palimpsest_proto::context::v1::{
    Format, MessageInput, PrepareContextResponse, Provider, Role, Target,
};
use palimpsest_tests::array::values;
use palimpsest_tests::name;
use palimpsest_tests::say::{anthropic, openai, payload, prepare, target, typed, user};
use serde_json::json;

use crate::SERVER;

async fn view(
    session: &str,
    messages: Vec<MessageInput>,
    target: Option<Target>,
) -> PrepareContextResponse {
    let shared = SERVER.get();
    let mut client = shared.0.context().await;
    let mut request = prepare(&name(session), messages);
    request.target = target;
    client.prepare_context(request).await.unwrap().into_inner()
}

#[tokio::test]
async fn an_array_is_appended_as_messages() {
    let _shared = SERVER.get();
    let array = json!([
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": [{"type": "text", "text": "two"}]},
        {"role": "user", "content": [{"type": "text", "text": "three"}]},
    ]);
    let reply = view("array", vec![anthropic(&array)], None).await;
    let appended = reply.append.unwrap();
    assert!(appended.session_created);
    assert_eq!(appended.messages.len(), 3);
    assert!(
        appended
            .messages
            .iter()
            .all(|message| message.input_index == 0)
    );
    assert_eq!(reply.messages_json.len(), 3);
}

#[tokio::test]
async fn a_response_contains_its_id_model_and_usage() {
    let _shared = SERVER.get();
    let response = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x",
        "content": [{"type": "text", "text": "hi"}], "stop_reason": "end_turn",
        "usage": {"input_tokens": 1000, "output_tokens": 24},
    });
    let messages = vec![user("hello"), anthropic(&response), user("again")];
    let reply = view("response", messages, None).await;
    let tokens = reply.tokens.unwrap();
    assert_eq!(tokens.anchor_tokens, 1_024);
    assert_eq!(
        tokens.anchor_message_id,
        reply.append.unwrap().messages[1].message_id
    );
    let values = values(&reply.messages_json);
    assert_eq!(values[1]["content"][0]["text"], "hi");
    assert_eq!(values[1].get("id"), None, "a provider rejects this field");
    let shared = SERVER.get();
    let mut sessions = shared.0.sessions().await;
    let request = palimpsest_proto::context::v1::ListMessagesRequest {
        session: name("response"),
        ..Default::default()
    };
    let listed = sessions.list_messages(request).await.unwrap().into_inner();
    let metadata = listed.messages[1].metadata.clone().unwrap();
    assert_eq!(metadata.provider_message_id, "msg_1");
    assert_eq!(metadata.model, "claude-x");
    assert_eq!(metadata.usage.unwrap().output_tokens, 24);
}

#[tokio::test]
async fn openai_messages_arrays_and_responses_are_accepted() {
    let _shared = SERVER.get();
    let call = json!({"id": "c1", "type": "function",
        "function": {"name": "read", "arguments": "{\"n\": 1.50}"}});
    let response = json!({
        "id": "chatcmpl-1", "object": "chat.completion", "model": "gpt-x",
        "choices": [{"index": 0, "finish_reason": "tool_calls",
            "message": {"role": "assistant", "content": null, "tool_calls": [call]}}],
        "usage": {"prompt_tokens": 50, "completion_tokens": 7, "total_tokens": 57},
    });
    let messages = vec![
        openai(
            &json!([{"role": "system", "content": "be kind"}, {"role": "user", "content": "go"}]),
        ),
        openai(&response),
        openai(&json!({"role": "tool", "tool_call_id": "c1", "content": "done"})),
    ];
    let reply = view("openai", messages, Some(target(Provider::Openai, "gpt-x"))).await;
    assert!(reply.sendable);
    assert_eq!(reply.tokens.unwrap().anchor_tokens, 57);
    let values = values(&reply.messages_json);
    let roles: Vec<_> = values
        .iter()
        .map(|value| value["role"].as_str().unwrap())
        .collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool"]);
    let function = &values[2]["tool_calls"][0]["function"];
    assert_eq!(function["arguments"], "{\"n\": 1.50}");
    // The same conversation for the other provider.
    let other = view(
        "openai",
        Vec::new(),
        Some(target(Provider::Anthropic, "claude")),
    )
    .await;
    let json = String::from_utf8(other.messages_json.concat()).unwrap();
    assert!(json.contains("{\"n\": 1.50}"), "{json}");
    assert!(!json.contains("be kind"));
    let system: serde_json::Value = serde_json::from_slice(&other.system_json).unwrap();
    assert_eq!(system, json!([{"type": "text", "text": "be kind"}]));
}

#[tokio::test]
async fn typed_messages_are_rendered_as_json() {
    let _shared = SERVER.get();
    let messages = vec![
        typed(Role::User, "a"),
        typed(Role::Assistant, "b"),
        typed(Role::User, "c"),
    ];
    let reply = view("typed", messages, None).await;
    let values = values(&reply.messages_json);
    let expected = [("user", "a"), ("assistant", "b"), ("user", "c")];
    assert_eq!(values.len(), expected.len());
    for (value, (role, text)) in values.iter().zip(expected) {
        assert_eq!(value["role"], role);
        let block = &value["content"][0];
        assert_eq!(block["type"], "text");
        // The view adds a tag to the text of a user.
        let shown = block["text"].as_str().unwrap().lines().next();
        assert_eq!(shown, Some(text));
    }
}

#[tokio::test]
async fn unknown_content_is_returned_unchanged() {
    let _shared = SERVER.get();
    // A number that is parsed and written again would change: 1e400 overflows, and 1.10 loses its zero.
    let citations = "\"citations\":[{\"z\":1.10,\"a\":1e400,\"n\":123456789012345678901234567890}]";
    let opaque = "{\"type\":\"server_tool_use\",\"id\":\"s1\",\"name\":\"web\",\"input\":{\"b\":1,\"a\":-0.0}}";
    let input = "{\"z\": 1.0, \"a\": [1e5, \"\\u00e9\"],  \"k\": {}}";
    let json = format!(
        "{{\"role\":\"assistant\",\"content\":[{{\"type\":\"text\",\"text\":\"x\",{citations}}},{opaque},\
         {{\"type\":\"tool_use\",\"id\":\"t1\",\"name\":\"n\",\"input\":{input}}}]}}"
    );
    let messages = vec![user("go"), payload(Format::AnthropicMessages, json)];
    let reply = view("verbatim", messages, None).await;
    let out = String::from_utf8(reply.messages_json.concat()).unwrap();
    for bytes in [citations, opaque, input] {
        assert!(out.contains(bytes), "{bytes} is not in {out}");
    }
}

#[tokio::test]
async fn system_messages_are_returned_outside_the_array() {
    let _shared = SERVER.get();
    let messages = vec![
        anthropic(&json!({"role": "system", "content": "rule 1"})),
        user("hello"),
    ];
    let reply = view("system", messages, None).await;
    assert_eq!(reply.messages_json.len(), 1);
    let system: serde_json::Value = serde_json::from_slice(&reply.system_json).unwrap();
    assert_eq!(system, json!([{"type": "text", "text": "rule 1"}]));
}
