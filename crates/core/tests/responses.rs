//! The format of OpenAI's Responses API: items are read and written without loss, and invalid arrays are found.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should fail")]

use std::sync::Arc;

use palimpsest_core::codec;
use palimpsest_core::command::{Append, Command, ServeView};
use palimpsest_core::ids::{MessageId, Ordinal};
use palimpsest_core::message::{
    Block, CallKind, CanonicalDigests, Message, MessageOrigin, Role, Usage,
};
use palimpsest_core::validate::validate;
use palimpsest_core::view::{Provider, Target, WireBlock, WireMessage, WireRole};
use palimpsest_histories::SessionHarness;
use proptest::prelude::*;
use serde_json::{Value, json};
use uuid::Uuid;

fn read(json: &Value) -> Vec<Message> {
    read_from(json, 0)
}

/// Reads messages whose ids follow `next`.
fn read_from(json: &Value, mut next: u128) -> Vec<Message> {
    let mut next_id = || {
        next += 1;
        MessageId::new(Uuid::from_u128(next))
    };
    let payload = json.to_string();
    codec::read(Provider::OpenAiResponses, payload.as_bytes(), &mut next_id).unwrap()
}

fn one(json: &Value) -> Message {
    let [message] = <[Message; 1]>::try_from(read(json)).unwrap();
    message
}

/// Writes the original of an item.
fn write(message: &Message) -> Value {
    let role = match message.role {
        Role::User => WireRole::User,
        Role::Assistant => WireRole::Assistant,
        Role::System => WireRole::System,
        Role::Developer => WireRole::Developer,
    };
    let wire = WireMessage {
        role,
        blocks: message.blocks.iter().map(WireBlock::from_block).collect(),
        extra: Some(&message.extra),
        first: Ordinal::new(0),
    };
    let mut out = Vec::new();
    codec::write_transcript(Provider::OpenAiResponses, &wire, &mut out);
    serde_json::from_slice(&out).unwrap()
}

/// Items in the form in which they are written.
fn items() -> Vec<Value> {
    vec![
        json!({"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "rules"}]}),
        json!({"type": "message", "id": "msg_1", "role": "user", "content": [
            {"type": "input_text", "text": "see"},
            {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"},
            {"type": "input_image", "file_id": "file_1"},
            {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AAAA"},
            {"type": "input_file", "file_url": "https://example.com/a.pdf"},
            {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
        ]}),
        json!({"type": "message", "id": "msg_2", "status": "completed", "phase": "final_answer", "role": "assistant",
        "content": [
            {"type": "output_text", "text": "done", "annotations": [{"type": "url_citation"}], "logprobs": []},
            {"type": "refusal", "refusal": "no"},
        ]}),
        json!({"type": "message", "role": "user", "content": [{"type": "novel", "x": 1}]}),
        json!({"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}],
            "encrypted_content": "ZW5j"}),
        json!({"type": "function_call", "id": "fc_1", "status": "completed", "namespace": "n", "call_id": "call_1",
            "name": "Read", "arguments": "{ \"path\":\"/a\" , \"n\": 1.0 }"}),
        // Arguments that were cut off are no JSON, so they are kept as a text.
        json!({"type": "function_call", "call_id": "call_2", "name": "Read", "arguments": "{cut"}),
        json!({"type": "function_call_output", "id": "fco_1", "call_id": "call_1", "output": "text"}),
        json!({"type": "function_call_output", "call_id": "call_2", "output": [
            {"type": "input_text", "text": "x"}, {"type": "input_image", "image_url": "https://example.com/a.png"},
            {"type": "novel", "x": 1},
        ]}),
        json!({"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_3", "name": "exec", "input": "ls\n"}),
        json!({"type": "custom_tool_call_output", "call_id": "call_3", "output": "x"}),
        json!({"type": "local_shell_call", "id": "lsh_1", "status": "completed", "call_id": "call_4",
            "action": {"type": "exec", "command": ["ls"], "env": {}}}),
        json!({"type": "local_shell_call_output", "id": "call_4", "output": "x"}),
        json!({"type": "shell_call", "call_id": "call_5", "action": {"commands": ["ls"]}}),
        json!({"type": "shell_call_output", "call_id": "call_5", "max_output_length": 9, "output": [
            {"stdout": "x", "stderr": "", "outcome": {"type": "exit", "exit_code": 1}},
        ]}),
        json!({"type": "apply_patch_call", "status": "completed", "call_id": "call_6",
            "operation": {"type": "delete_file", "path": "a"}}),
        json!({"type": "apply_patch_call_output", "status": "failed", "call_id": "call_6", "output": "x"}),
        json!({"type": "compaction", "id": "cmp_1", "encrypted_content": "ZW5j"}),
        json!({"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}),
        json!({"type": "file_search_call", "id": "fs_1", "queries": ["q"], "results": null}),
        json!({"type": "image_generation_call", "id": "ig_1", "result": "AAAA"}),
        json!({"type": "code_interpreter_call", "id": "ci_1", "code": "1", "container_id": "c", "outputs": null}),
        json!({"type": "computer_call", "id": "cu_1", "call_id": "call_7", "action": {"type": "wait"}}),
        json!({"type": "computer_call_output", "call_id": "call_7", "output": {"type": "computer_screenshot"}}),
        json!({"type": "mcp_call", "id": "mcp_1", "arguments": "{}", "name": "n", "server_label": "s"}),
        json!({"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": true}),
        json!({"type": "item_reference", "id": "msg_9"}),
        // A reference may leave its type out.
        json!({"id": "msg_9"}),
        json!({"type": "additional_tools", "role": "developer", "tools": []}),
        json!({"type": "novel", "big": 123}),
    ]
}

#[test]
fn every_item_is_written_as_it_was_read() {
    for item in items() {
        let message = one(&json!([item]));
        assert_eq!(message.origin, MessageOrigin::OpenAiResponses);
        assert_eq!(write(&message), item, "{message:?}");
        assert_eq!(one(&json!([write(&message)])), message);
    }
}

#[test]
fn items_have_the_role_of_their_author() {
    let role = |item: Value| one(&json!([item])).role;
    assert_eq!(
        role(json!({"type": "reasoning", "summary": []})),
        Role::Assistant
    );
    assert_eq!(role(json!({"type": "web_search_call"})), Role::Assistant);
    assert_eq!(
        role(json!({"type": "item_reference", "id": "a"})),
        Role::Assistant
    );
    assert_eq!(role(json!({"type": "computer_call_output"})), Role::User);
    assert_eq!(role(json!({"type": "compaction"})), Role::User);
    assert_eq!(role(json!({"type": "compaction_trigger"})), Role::User);
    // Items of the caller's software start no turn.
    assert!(!one(&json!([{"type": "compaction"}])).is_real_user_input());
    assert!(one(&json!("hello")).is_real_user_input());
}

#[test]
fn a_request_and_a_response_are_read() {
    let request = json!({"instructions": "be brief", "input": "hello", "model": "m"});
    let message = one(&request);
    assert_eq!(
        (message.role, message.blocks),
        (Role::User, vec![Block::text("hello")])
    );
    let response = json!({
        "id": "resp_1", "object": "response", "model": "gpt-5", "output": [
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
            {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "Read", "arguments": "{}"},
        ],
        "usage": {
            "input_tokens": 10, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 2, "total_tokens": 12,
        },
    });
    let messages = read(&response);
    for message in &messages {
        assert_eq!(message.provider_message_id.as_deref(), Some("resp_1"));
        assert_eq!(message.model.as_deref(), Some("gpt-5"));
    }
    // Only the end of the response has the usage, because it covers all items.
    assert_eq!(messages[0].usage, None);
    let usage = Usage {
        input_tokens: 6,
        cache_read_tokens: 4,
        cache_write_tokens: 0,
        output_tokens: 2,
    };
    assert_eq!(messages[1].usage, Some(usage));
}

#[test]
fn an_error_names_its_place() {
    let mut next_id = || MessageId::new(Uuid::nil());
    let mut error = |payload: &str| {
        let read = codec::read(Provider::OpenAiResponses, payload.as_bytes(), &mut next_id);
        read.unwrap_err().to_string()
    };
    assert_eq!(
        error(r#"{"input":[{"type":"function_call","name":"n"}]}"#),
        "input[0] lacks the field `call_id`"
    );
    assert_eq!(
        error(r#"[{"role":"user","content":[{"type":"input_text"}]}]"#),
        "[0].content[0] lacks the field `text`"
    );
    assert_eq!(
        error(r#"[{"role":"tool","content":"x"}]"#),
        "[0].role must be `user`, `assistant`, `system` or `developer`"
    );
    assert_eq!(error("[{}]"), "[0] lacks the field `type`");
    // A reference may leave its type out. An item with other fields may not.
    assert_eq!(
        error(r#"[{"id":"x","input":"a","input":"b"}]"#),
        "[0] lacks the field `type`"
    );
    assert_eq!(error("{}"), "the payload lacks the field `input`");
}

#[test]
fn canonical_digests_ignore_ids_and_states_of_items() {
    let strict = |item: Value| CanonicalDigests::of(&one(&json!([item]))).strict;
    for mut item in items() {
        let before = strict(item.clone());
        // The id is the whole content of a reference.
        if item["type"] == "item_reference" || item["type"].is_null() {
            continue;
        }
        // The id of this item names its call, so another id is another content.
        let is_local_output = item["type"] == "local_shell_call_output";
        item["status"] = json!("in_progress");
        if !is_local_output {
            item["id"] = json!("other");
        }
        assert_eq!(strict(item.clone()), before, "{item}");
        item["added"] = json!(1);
        assert_ne!(strict(item.clone()), before, "{item}");
    }
    let text = |item| strict(item);
    assert_eq!(
        text(json!({"role": "assistant", "content": "a"})),
        text(json!({"type": "message", "role": "assistant", "content": [
            {"type": "output_text", "text": "a", "annotations": [], "logprobs": [{"token": "a"}]}
        ]}))
    );
    assert_eq!(
        text(
            json!({"type": "reasoning", "id": "a", "summary": [], "content": null, "encrypted_content": "x"})
        ),
        text(json!({"type": "reasoning", "summary": [], "encrypted_content": "x"}))
    );
    let reasoning = one(&json!([{"type": "reasoning", "summary": [], "encrypted_content": "x"}]));
    assert!(CanonicalDigests::of(&reasoning).is_optional());
}

#[test]
fn the_type_of_a_call_selects_its_kind() {
    for kind in CallKind::ALL {
        let call = json!([{"type": kind.call_type(), "call_id": "c", "name": "n", "arguments": "{}", "input": "x",
            "action": {}, "operation": {}}]);
        let [Block::ToolUse(call)] = &one(&call).blocks[..] else {
            panic!("{kind:?} is no call");
        };
        assert_eq!(call.kind(), kind);
        let output = json!([{"type": kind.output_type(), "call_id": "c", "output": "x"}]);
        let [Block::ToolResult(result)] = &one(&output).blocks[..] else {
            panic!("{kind:?} has no output");
        };
        assert_eq!((result.kind(), &*result.tool_use_id), (kind, "c"));
    }
}

/// Returns the types of the items that a model with this name receives.
#[track_caller]
fn shown(payload: &Value, model: &str) -> Vec<String> {
    let mut world = SessionHarness::new();
    let messages = read(payload).into_iter().map(Arc::new).collect();
    world.run(Command::Append(Append {
        messages,
        ..Append::default()
    }));
    types(&mut world, model)
}

fn types(world: &mut SessionHarness, model: &str) -> Vec<String> {
    let target = Target {
        provider: Provider::OpenAiResponses,
        model: model.into(),
        thinking: false,
        system_messages: false,
    };
    world.run(Command::ServeView(ServeView {
        target: target.clone(),
        interrupt_open_calls: true,
        ..ServeView::default()
    }));
    let view = world.session.view(&target, None).unwrap();
    let mut types = Vec::new();
    for message in &view.messages {
        let mut out = Vec::new();
        codec::write(Provider::OpenAiResponses, message, &mut out);
        let item: Value = serde_json::from_slice(&out).unwrap();
        types.push(item["type"].as_str().unwrap().to_owned());
    }
    types
}

/// Returns the types of the items after the response of a model whose call was interrupted.
#[track_caller]
fn shown_after(response: &Value, model: &str) -> Vec<String> {
    let mut world = SessionHarness::new();
    let mut messages = read(&json!("a"));
    messages.extend(read_from(response, 10));
    let messages = messages.into_iter().map(Arc::new).collect();
    world.run(Command::Append(Append {
        messages,
        ..Append::default()
    }));
    types(&mut world, model)
}

#[test]
fn reasoning_is_returned_with_the_item_after_it() {
    let user = json!({"role": "user", "content": "a"});
    let reasoning =
        json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"});
    let stored = json!({"type": "reasoning", "id": "rs_2", "summary": []});
    let call = json!({"type": "function_call", "id": "fc_1", "call_id": "c", "name": "n", "arguments": "{}"});
    let output = json!({"type": "function_call_output", "call_id": "c", "output": "x"});
    let text = json!({"role": "assistant", "content": "b"});
    let whole = json!([user, reasoning, call, output, reasoning, text, user]);
    let all = [
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
        "reasoning",
        "message",
        "message",
    ];
    assert_eq!(shown(&whole, "m"), all);
    // Without the item after it, the provider rejects the reasoning.
    assert_eq!(
        shown(&json!([user, reasoning, user]), "m"),
        ["message", "message"]
    );
    // Only the server that stored the item can read it.
    assert_eq!(
        shown(&json!([user, stored, text, user]), "m"),
        ["message"; 3]
    );
    // Another model cannot read the reasoning.
    let response = json!({"model": "m", "output": [reasoning, call]});
    let answered = ["reasoning", "function_call", "function_call_output"];
    // The policy of the harness may append a reminder.
    assert_eq!(shown_after(&response, "m")[1..4], answered);
    assert_eq!(shown_after(&response, "other")[1..3], answered[1..]);
}

#[track_caller]
fn check(items: &Value, rule: Option<&str>) {
    let target = Target {
        provider: Provider::OpenAiResponses,
        ..Target::default()
    };
    let items: Vec<String> = items
        .as_array()
        .unwrap()
        .iter()
        .map(Value::to_string)
        .collect();
    let rules: Vec<_> = validate(&target, &items)
        .into_iter()
        .map(|it| it.rule)
        .collect();
    assert_eq!(rules, Vec::from_iter(rule));
}

#[test]
fn invalid_arrays_are_found() {
    let user = json!({"role": "user", "content": "a"});
    let call = json!({"type": "function_call", "call_id": "c", "name": "n", "arguments": "{}"});
    let output = json!({"type": "function_call_output", "call_id": "c", "output": ""});
    let reasoning = json!({"type": "reasoning", "summary": [], "encrypted_content": "x"});
    check(&json!([user, reasoning, call, output]), None);
    check(&json!([]), Some("at least one item is required"));
    check(&json!([user, call]), Some("no tool output found"));
    check(&json!([output]), Some("no tool call found for this output"));
    let custom = json!({"type": "custom_tool_call_output", "call_id": "c", "output": ""});
    check(
        &json!([call, output, custom]),
        Some("no tool call found for this output"),
    );
    check(
        &json!([call, output, call, output]),
        Some("call ids must be unique"),
    );
    let follows = "reasoning was provided without its required following item";
    check(&json!([reasoning]), Some(follows));
    check(&json!([reasoning, user]), Some(follows));
    check(&json!([reasoning, reasoning, call, output]), None);
    // An item of an unknown type counts as the model's, unless its type has an ending such as `_output`.
    check(&json!([reasoning, {"type": "novel"}]), None);
    check(&json!([reasoning, {"type": "novel_output"}]), Some(follows));
    check(
        &json!([{"role": "user", "content": ""}]),
        Some("content must not be empty"),
    );
    check(
        &json!([{"role": "user", "content": []}]),
        Some("content must not be empty"),
    );
    check(
        &json!([{"role": "robot", "content": "a"}]),
        Some("unknown role"),
    );
    let wrong = json!([{"type": "output_text", "text": "a"}]);
    check(
        &json!([{"role": "user", "content": wrong}]),
        Some("this part is not allowed here"),
    );
    let blank = json!([{"type": "input_text", "text": ""}]);
    check(
        &json!([{"role": "user", "content": blank}]),
        Some("the part is empty"),
    );
    let long =
        json!({"type": "function_call", "call_id": "c".repeat(65), "name": "n", "arguments": "{}"});
    let answer = json!({"type": "function_call_output", "call_id": "c".repeat(65), "output": "x"});
    let rules = "call_id must have 1 to 64 characters";
    let target = Target {
        provider: Provider::OpenAiResponses,
        ..Target::default()
    };
    let found = validate(&target, &[long.to_string(), answer.to_string()]);
    // The call and its output have the same id, which is too long.
    assert_eq!(found.iter().filter(|it| it.rule == rules).count(), 2);
    let unnamed =
        json!({"type": "function_call", "call_id": "c", "name": "a b", "arguments": "{}"});
    check(
        &json!([unnamed, output]),
        Some("name must match ^[a-zA-Z0-9_-]+$"),
    );
    let object = json!({"type": "function_call", "call_id": "c", "name": "n", "arguments": {}});
    check(&json!([object, output]), Some("arguments must be a string"));
    let patch = json!({"type": "apply_patch_call", "call_id": "c", "operation": {}});
    let patched = json!({"type": "apply_patch_call_output", "call_id": "c"});
    check(
        &json!([patch, patched]),
        Some("a required field is missing"),
    );
    let twice = json!({"id": "m", "role": "user", "content": "a"});
    check(&json!([twice, twice]), Some("duplicate item id"));
    check(
        &json!([{"type": "compaction_trigger"}, user]),
        Some("a 'compaction_trigger' must be the final input item"),
    );
}

proptest! {
    #[test]
    fn texts_and_arguments_are_returned_byte_for_byte(text in ".{1,40}", arguments in ".{0,40}", id in "[a-z0-9_]{1,20}") {
        let message = json!({"type": "message", "id": id, "role": "user", "content": [
            {"type": "input_text", "text": text},
        ]});
        prop_assert_eq!(write(&one(&json!([message]))), message);
        let call = json!({"type": "function_call", "id": id, "call_id": id, "name": text, "arguments": arguments});
        let written = write(&one(&json!([call])));
        // Only white space around an object is not part of the arguments.
        prop_assert_eq!(written["arguments"].as_str().unwrap().trim(), arguments.trim());
        let output = json!({"type": "custom_tool_call_output", "call_id": id, "output": arguments});
        prop_assert_eq!(write(&one(&json!([output]))), output);
    }
}

#[test]
fn no_field_is_written_twice() {
    let output =
        json!({"type": "local_shell_call_output", "call_id": "a", "id": "b", "output": "c"});
    assert_eq!(write(&one(&json!([output]))), output);
    let refusal = json!({"type": "refusal", "refusal": "no", "text": "other"});
    let item = json!({"type": "message", "role": "user", "content": [refusal]});
    let written = write(&one(&json!([item])));
    assert_eq!(
        written["content"],
        json!([{"type": "input_text", "text": "no"}])
    );
}
