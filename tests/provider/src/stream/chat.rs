//! The chunks of OpenAI's Chat Completions.

use serde_json::{Value, json};

use super::pace::Pace;
use super::{Event, deltas};

/// Returns the chunks for a completion, and `[DONE]`.
pub(crate) fn events(completion: &Value, request: &Value, pace: &Pace) -> Vec<Event> {
    let with_usage = request["stream_options"]["include_usage"] == json!(true);
    let choice = &completion["choices"][0];
    let message = &choice["message"];
    let mut all = vec![opening(message)];
    let most = pace.delta_bytes;
    for name in ["content", "refusal"] {
        let text = message[name].as_str().unwrap_or_default();
        all.extend(deltas(text, most).iter().map(|part| json!({name: part})));
    }
    let calls = message["tool_calls"].as_array().into_iter().flatten();
    for (index, call) in calls.enumerate() {
        // The first chunk of a call has its id and name. Later chunks have the index and a part of the arguments.
        let mut empty = call.clone();
        empty["index"] = json!(index);
        empty["function"]["arguments"] = json!("");
        all.push(json!({"tool_calls": [empty]}));
        let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
        all.extend(deltas(arguments, most).iter().map(|part| {
            let function = json!({"arguments": part});
            json!({"tool_calls": [{"index": index, "function": function}]})
        }));
    }
    let chunk = |delta: &Value, finish: &Value| {
        let choice = json!({
            "index": 0, "delta": delta, "finish_reason": finish, "logprobs": null,
        });
        let mut chunk = json!({
            "id": completion["id"], "object": "chat.completion.chunk",
            "created": completion["created"], "model": completion["model"],
            "service_tier": "default", "system_fingerprint": completion["system_fingerprint"],
            "choices": [choice],
        });
        if with_usage {
            // With `include_usage`, all chunks have the field. Only the last one, without choices, has a value.
            chunk["usage"] = Value::Null;
        }
        chunk
    };
    let mut chunks: Vec<Value> = all.iter().map(|delta| chunk(delta, &Value::Null)).collect();
    chunks.push(chunk(&json!({}), &choice["finish_reason"]));
    if with_usage {
        let mut last = chunk(&json!({}), &Value::Null);
        last["choices"] = json!([]);
        last["usage"] = completion["usage"].clone();
        chunks.push(last);
    }
    let mut events: Vec<Event> = chunks.iter().map(Event::unnamed).collect();
    events.push(Event {
        name: None,
        data: "[DONE]".to_owned(),
    });
    events
}

/// Returns the delta of the role.
fn opening(message: &Value) -> Value {
    let content = if message["content"].is_null() {
        Value::Null
    } else {
        json!("")
    };
    json!({"role": "assistant", "content": content, "refusal": null})
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::pace::Pace;
    use super::events;

    #[test]
    fn calls_have_indexes_and_usage_has_no_choice() {
        let call = |id: &str| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}});
        let completion = json!({
            "id": "c", "model": "m",
            "choices": [{
                "message": {"content": null, "tool_calls": [call("a"), call("b")]},
                "finish_reason": "tool_calls",
            }],
            "usage": {"prompt_tokens": 1},
        });
        let request = json!({"stream_options": {"include_usage": true}});
        let events = events(&completion, &request, &Pace::default());
        let expected = [
            r#""delta":{"content":null,"refusal":null,"role":"assistant"}"#,
            r#""delta":{"tool_calls":[{"function":{"arguments":"","name":"f"},"id":"a","index":0,"type":"function"}]}"#,
            r#""delta":{"tool_calls":[{"function":{"arguments":"{}"},"index":0}]}"#,
            r#""delta":{"tool_calls":[{"function":{"arguments":"","name":"f"},"id":"b","index":1,"type":"function"}]}"#,
            r#""delta":{"tool_calls":[{"function":{"arguments":"{}"},"index":1}]}"#,
            r#""delta":{},"finish_reason":"tool_calls""#,
            r#""choices":[]"#,
            "[DONE]",
        ];
        assert_eq!(events.len(), expected.len());
        for (event, expected) in events.iter().zip(expected) {
            assert!(event.data.contains(expected), "{expected}\n{event:?}");
        }
        assert!(events[6].data.contains(r#""usage":{"prompt_tokens":1}"#));
    }
}
