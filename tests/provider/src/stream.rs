//! Answers as server-sent events. All events are sent at once, which is sufficient for clients that read a stream.

use serde_json::{Value, json};

/// Returns Anthropic's events for a message.
pub(crate) fn anthropic(message: &Value) -> String {
    let mut start = message.clone();
    let usage = start["usage"].clone();
    start["content"] = json!([]);
    start["stop_reason"] = Value::Null;
    start["usage"]["output_tokens"] = json!(1);
    let mut events = vec![json!({"type": "message_start", "message": start})];
    for (index, block) in message["content"]
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
    {
        // A block starts empty, and one delta contains all of it.
        let (empty, delta) = if block["type"] == "tool_use" {
            let input = block["input"].to_string();
            let delta = json!({"type": "input_json_delta", "partial_json": input});
            (block.clone(), delta)
        } else {
            let delta = json!({"type": "text_delta", "text": block["text"]});
            (json!({"type": "text", "text": ""}), delta)
        };
        events.push(json!({
            "type": "content_block_start", "index": index, "content_block": empty,
        }));
        events.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
        events.push(json!({"type": "content_block_stop", "index": index}));
    }
    events.push(json!({
        "type": "message_delta",
        "delta": {"stop_reason": message["stop_reason"], "stop_sequence": null},
        "usage": {"output_tokens": usage["output_tokens"]},
    }));
    events.push(json!({"type": "message_stop"}));
    let event = |event: &Value| {
        let name = event["type"].as_str().unwrap_or_default();
        format!("event: {name}\ndata: {event}\n\n")
    };
    events.iter().map(event).collect::<Vec<_>>().concat()
}

/// Returns OpenAI's chunks for a completion.
pub(crate) fn openai(completion: &Value, with_usage: bool) -> String {
    let chunk = |delta: Value, finish: Value| {
        json!({
            "id": completion["id"], "object": "chat.completion.chunk",
            "created": completion["created"], "model": completion["model"],
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": null}],
        })
    };
    let choice = &completion["choices"][0];
    let mut delta = json!({"content": choice["message"]["content"]});
    if let Some(call) = choice["message"]["tool_calls"].get(0) {
        delta["tool_calls"] = json!([call]);
        delta["tool_calls"][0]["index"] = json!(0);
    }
    let mut chunks = vec![
        chunk(json!({"role": "assistant", "content": ""}), Value::Null),
        chunk(delta, Value::Null),
        chunk(json!({}), choice["finish_reason"].clone()),
    ];
    if with_usage {
        let mut last = chunk(json!({}), Value::Null);
        last["choices"] = json!([]);
        last["usage"] = completion["usage"].clone();
        chunks.push(last);
    }
    let lines = chunks.iter().map(ToString::to_string);
    let lines: Vec<String> = lines.chain(["[DONE]".to_owned()]).collect();
    format!("data: {}\n\n", lines.join("\n\ndata: "))
}
