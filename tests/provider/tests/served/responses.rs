//! Tests of the Responses API: items, their relations, stored responses and compaction.

use palimpsest_fake_provider::FakeProvider;
use serde_json::{Value, json};

use crate::http::{KEY, post_json};

const RESPONSES: &str = "/v1/responses";
const COMPACT: &str = "/v1/responses/compact";

fn over(mut body: Value, changes: &Value) -> Value {
    for (name, value) in changes.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

fn good() -> Value {
    json!({"model": "gpt-5", "store": false, "input": "hi"})
}

async fn ask(provider: &FakeProvider, changes: &Value) -> (u16, Value) {
    post_json(provider, RESPONSES, &over(good(), changes)).await
}

fn user() -> Value {
    json!({"role": "user", "content": "hi"})
}

fn call(id: &str) -> Value {
    json!({"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"})
}

fn output(id: &str) -> Value {
    json!({"type": "function_call_output", "call_id": id, "output": "ok"})
}

/// Returns reasoning that another server encrypted.
fn reasoning() -> Value {
    json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAAA"})
}

fn input(items: &[Value]) -> Value {
    json!({"input": items})
}

#[tokio::test]
async fn invalid_items_are_rejected() {
    let provider = FakeProvider::start().await.unwrap();
    let mut other_id = call("c");
    other_id["id"] = json!("call_1");
    let mut unknown = call("c");
    unknown["extra"] = json!(1);
    let mut no_arguments = call("c");
    no_arguments.as_object_mut().unwrap().remove("arguments");
    let parts =
        |role: &str, kind: &str| json!({"role": role, "content": [{"type": kind, "text": "x"}]});
    let cases = [
        (
            input(&[json!({"type": "tool_use"})]),
            "Invalid value: 'tool_use'. Supported values are:",
        ),
        (input(&[unknown]), "Unknown parameter: 'input[0].extra'"),
        (
            input(&[no_arguments]),
            "Missing required parameter: 'input[0].arguments'",
        ),
        (input(&[other_id]), "Expected an ID that begins with 'fc'"),
        (input(&[call("")]), "'input[0].call_id': empty string"),
        (
            input(&[call(&"x".repeat(65))]),
            "maximum length 64, but got a string with length 65",
        ),
        (
            input(&[parts("user", "output_text")]),
            "Invalid value: 'output_text'",
        ),
        (
            input(&[parts("assistant", "input_text")]),
            "Supported values are: 'output_text' and 'refusal'",
        ),
        (
            input(&[parts("tool", "input_text")]),
            "Invalid value: 'tool'",
        ),
        (json!({"input": 5}), "Invalid type for 'input'"),
    ];
    for (changes, expected) in cases {
        let (status, body) = ask(&provider, &changes).await;
        let message = body["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(expected), "{expected}: {status} {body}");
        assert_eq!(
            (status, &body["error"]["type"]),
            (400, &json!("invalid_request_error"))
        );
    }
}

#[tokio::test]
async fn broken_relations_are_rejected() {
    let provider = FakeProvider::start().await.unwrap();
    let trigger = json!({"type": "compaction_trigger"});
    let custom = json!({"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "x"});
    let answer = json!({"role": "assistant", "content": "ok"});
    let following =
        "Item 'rs_1' of type 'reasoning' was provided without its required following item.";
    let cases = [
        (
            input(&[user(), call("c")]),
            "No tool output found for function call c.",
        ),
        (
            input(&[user(), output("c")]),
            "No tool call found for function call output with call_id c.",
        ),
        (
            input(&[output("c"), call("c")]),
            "No tool call found for function call output with call_id c.",
        ),
        (
            // The call ids match, but a custom tool has another type of output.
            input(&[custom, output("c")]),
            "No tool call found for function call output",
        ),
        (input(&[user(), reasoning()]), following),
        (input(&[reasoning(), user()]), following),
        (input(&[reasoning(), trigger.clone()]), following),
        (
            input(&[reasoning(), reasoning(), answer]),
            "Duplicate item found with id rs_1",
        ),
        (input(&[trigger, user()]), "must be the final input item"),
    ];
    for (changes, expected) in cases {
        let (status, body) = ask(&provider, &changes).await;
        let message = body["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(expected), "{expected}: {status} {body}");
        assert_eq!((status, &body["error"]["param"]), (400, &json!("input")));
    }
    let good = [
        input(&[
            user(),
            // Outputs may come in any order and after other messages, unlike in Chat Completions.
            call("a"),
            call("b"),
            user(),
            output("b"),
            output("a"),
        ]),
        input(&[
            reasoning(),
            json!({"type": "message", "role": "assistant", "content": "x"}),
            user(),
        ]),
        input(&[reasoning(), call("c"), output("c")]),
    ];
    for changes in good {
        let (status, body) = ask(&provider, &changes).await;
        assert_eq!(status, 200, "{changes}: {body}");
    }
}

#[tokio::test]
async fn invalid_parameters_and_tools_are_rejected() {
    let provider = FakeProvider::start().await.unwrap();
    let function = |changes: &Value| {
        let tool = json!({"type": "function", "name": "f", "parameters": {"type": "object"}});
        json!({"tools": [over(tool, changes)]})
    };
    let cases = [
        (json!({"extra": 1}), "Unknown parameter: 'extra'"),
        (json!({"model": ""}), "Missing required parameter: 'model'"),
        (json!({"input": null}), "must be provided"),
        (
            json!({"max_output_tokens": 15}),
            "Expected a value >= 16, but got 15",
        ),
        (json!({"include": ["all"]}), "Invalid value: 'all'"),
        (json!({"stream": "yes"}), "Invalid type for 'stream'"),
        (
            json!({"previous_response_id": "r", "conversation": "c"}),
            "Mutually exclusive parameters",
        ),
        (
            json!({"tools": [{"type": "function", "function": {"name": "f"}}]}),
            "Missing required parameter: 'tools[0].name'",
        ),
        (
            json!({"tools": [{"type": "bash"}]}),
            "Invalid value: 'bash'",
        ),
        (function(&json!({"name": "a b"})), "does not match pattern"),
        (
            function(&json!({"strict": true})),
            "'additionalProperties' is required",
        ),
        (
            json!({"tools": [{"type": "namespace", "name": "n", "tools": []}]}),
            "Missing required parameter: 'tools[0].tools'",
        ),
        (
            json!({"tool_choice": {"type": "function", "name": "g"}}),
            "Tool choice 'g' not found in 'tools' parameter",
        ),
    ];
    for (changes, expected) in cases {
        let (status, body) = ask(&provider, &changes).await;
        let message = body["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(expected), "{expected}: {status} {body}");
        assert_eq!(status, 400, "{body}");
    }
    let added = json!({"type": "additional_tools", "role": "developer", "tools": [
        {"type": "namespace", "name": "n", "description": "", "tools": [{"type": "custom", "name": "g"}]},
    ]});
    let (status, body) = ask(&provider, &input(&[added, user()])).await;
    assert_eq!(status, 200, "{body}");
}

#[tokio::test]
async fn stored_responses_continue_and_others_are_not_found() {
    let provider = FakeProvider::start().await.unwrap();
    let script =
        json!({"turns": [{"thinking": "why", "text": "one"}, {"thinking": "why", "text": "two"}]});
    provider
        .add_script(serde_json::from_value(script).unwrap())
        .unwrap();
    let (_, first) = ask(&provider, &json!({"store": true})).await;
    let next = json!({"previous_response_id": first["id"], "input": "more"});
    let (status, second) = ask(&provider, &next).await;
    assert_eq!(status, 200, "{second}");
    assert!(second["usage"]["input_tokens"].as_u64() > first["usage"]["input_tokens"].as_u64());
    // Requests of this test have `store: false` by default, so the second response was not stored.
    let not_found = json!({"previous_response_id": second["id"], "input": "more"});
    let (status, body) = ask(&provider, &not_found).await;
    assert_eq!(status, 404, "{body}");
    assert_eq!(body["error"]["code"], "previous_response_not_found");
    // Reasoning of a response that was not stored exists only in its encrypted form.
    let echoed = input(&[
        user(),
        second["output"][0].clone(),
        second["output"][1].clone(),
        user(),
    ]);
    let (status, body) = ask(&provider, &echoed).await;
    assert_eq!(status, 404, "{body}");
    assert!(
        body.to_string()
            .contains("Items are not persisted when `store` is set to false")
    );
    // An item of a stored response needs its reasoning.
    let alone = input(&[user(), first["output"][1].clone(), user()]);
    let (status, body) = ask(&provider, &alone).await;
    assert_eq!(status, 400, "{body}");
    assert!(
        body.to_string()
            .contains("without its required 'reasoning' item: 'rs_"),
        "{body}"
    );
}

#[tokio::test]
async fn encrypted_reasoning_is_verified() {
    let provider = FakeProvider::start().await.unwrap();
    let script = json!({"turns": [{"thinking": "why", "text": "one"}]});
    provider
        .add_script(serde_json::from_value(script).unwrap())
        .unwrap();
    let include = json!({"include": ["reasoning.encrypted_content"]});
    let (_, first) = ask(&provider, &include).await;
    let mut items = vec![user()];
    items.extend(first["output"].as_array().unwrap().iter().cloned());
    items.push(user());
    let (status, body) = ask(&provider, &input(&items)).await;
    assert_eq!(status, 200, "{body}");
    // The encrypted content was made for the removed summary.
    items[1]["summary"] = json!([]);
    let (status, body) = ask(&provider, &input(&items)).await;
    assert_eq!(
        (status, &body["error"]["code"]),
        (400, &json!("invalid_encrypted_content"))
    );
}

#[tokio::test]
async fn conversations_are_compacted() {
    let provider = FakeProvider::start().await.unwrap();
    let items = [
        user(),
        call("c"),
        output("c"),
        json!({"type": "compaction_trigger"}),
    ];
    let (status, response) = ask(&provider, &input(&items)).await;
    assert_eq!(status, 200, "{response}");
    let compacted = response["output"].as_array().unwrap();
    assert_eq!(
        (compacted.len(), &compacted[0]["type"]),
        (1, &json!("compaction"))
    );
    let (status, body) = ask(&provider, &input(&[compacted[0].clone(), user()])).await;
    assert_eq!(status, 200, "{body}");
    let mut foreign = compacted[0].clone();
    // A dot is no character of base64, so another server wrote this item.
    foreign["encrypted_content"] = json!("another.1.b2s");
    let (status, body) = ask(&provider, &input(&[foreign, user()])).await;
    assert_eq!(
        (status, &body["error"]["code"]),
        (400, &json!("invalid_encrypted_content"))
    );

    let before = provider.bill(KEY).requests;
    let asked = json!({"model": "gpt-5", "input": items[..3]});
    let (status, body) = post_json(&provider, COMPACT, &asked).await;
    assert_eq!(
        (status, &body["object"]),
        (200, &json!("response.compaction")),
        "{body}"
    );
    let kinds: Vec<&Value> = body["output"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| &item["type"])
        .collect();
    assert_eq!(kinds, ["message", "compaction"]);
    assert_eq!(provider.bill(KEY).requests, before + 1);
    let streamed = over(asked, &json!({"stream": true}));
    let (status, body) = post_json(&provider, COMPACT, &streamed).await;
    assert_eq!(status, 400, "{body}");
}

#[tokio::test]
async fn answers_have_the_forms_of_their_tools_and_models() {
    let provider = FakeProvider::start().await.unwrap();
    let call = json!({"name": "apply", "input": {"input": "*** Begin"}});
    let script = json!({"turns": [{"calls": [call]}]});
    provider
        .add_script(serde_json::from_value(script).unwrap())
        .unwrap();
    let custom = json!({"tools": [{"type": "custom", "name": "apply"}]});
    let (_, response) = ask(&provider, &custom).await;
    let item = &response["output"][0];
    assert_eq!(
        (&item["type"], &item["input"]),
        (&json!("custom_tool_call"), &json!("*** Begin"))
    );
    let reasons = json!({"turns": [{"thinking": "why", "text": "x"}]});
    let plain = json!({"model": "gpt-4.1"});
    for (changes, kind) in [(plain, "message"), (json!({}), "reasoning")] {
        let script = serde_json::from_value(reasons.clone()).unwrap();
        provider.add_script(script).unwrap();
        let (_, response) = ask(&provider, &changes).await;
        assert_eq!(response["output"][0]["type"], kind, "{changes}");
    }
    let head = crate::http::get(&provider, RESPONSES, "").await.head;
    assert!(head.starts_with("HTTP/1.1 426"), "{head}");
}
