//! The events of Anthropic's Messages API.

use serde_json::{Value, json};

use super::pace::Pace;
use super::{Event, deltas};

/// Returns the events for a message.
pub(crate) fn events(message: &Value, pace: &Pace) -> Vec<Event> {
    let mut start = message.clone();
    start["content"] = json!([]);
    start["stop_reason"] = Value::Null;
    // The output is unknown at the start. `message_delta` has the real count.
    start["usage"]["output_tokens"] = json!(1);
    // `applied_edits` are reported in `message_delta` and not in `message_start`.
    let edits = start
        .as_object_mut()
        .and_then(|start| start.remove("context_management"));
    let mut events = vec![json!({"type": "message_start", "message": start})];
    let content = message["content"].as_array().into_iter().flatten();
    for (index, block) in content.enumerate() {
        let (empty, deltas) = opened(block, pace.delta_bytes);
        events.push(json!({
            "type": "content_block_start", "index": index, "content_block": empty,
        }));
        if index == 0 {
            // The provider sends a ping after the first block has begun.
            events.push(json!({"type": "ping"}));
        }
        for delta in deltas {
            events.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
            events.extend(vec![json!({"type": "ping"}); pace.pings]);
        }
        events.push(json!({"type": "content_block_stop", "index": index}));
    }
    let mut end = json!({
        "type": "message_delta",
        "delta": {"stop_reason": message["stop_reason"], "stop_sequence": null},
        "usage": message["usage"],
    });
    if let Some(edits) = edits {
        end["context_management"] = edits;
    }
    if let Some(usage) = end["usage"].as_object_mut() {
        // The last event has the totals without their parts.
        usage.remove("cache_creation");
        usage.remove("service_tier");
    }
    events.push(end);
    events.push(json!({"type": "message_stop"}));
    events.iter().map(Event::named).collect()
}

/// Returns the block as it begins, and its deltas.
fn opened(block: &Value, most: usize) -> (Value, Vec<Value>) {
    let text = |name: &str| block[name].as_str().unwrap_or_default();
    match block["type"].as_str() {
        Some("tool_use") => {
            let mut empty = block.clone();
            empty["input"] = json!({});
            let input = block["input"].to_string();
            // The first delta of an input is empty.
            let parts = std::iter::once("").chain(deltas(&input, most));
            let delta = |part: &str| json!({"type": "input_json_delta", "partial_json": part});
            (empty, parts.map(delta).collect())
        }
        Some("thinking") => {
            let empty = json!({"type": "thinking", "thinking": "", "signature": ""});
            let delta = |part: &&str| json!({"type": "thinking_delta", "thinking": part});
            let mut all: Vec<Value> = deltas(text("thinking"), most).iter().map(delta).collect();
            // The signature covers the whole thinking, so it follows the text.
            all.push(json!({"type": "signature_delta", "signature": text("signature")}));
            (empty, all)
        }
        Some("compaction") => {
            let empty = json!({"type": "compaction", "content": null});
            // A summary is one delta, because it is written before the stream continues.
            let delta = json!({"type": "compaction_delta", "content": block["content"]});
            (empty, vec![delta])
        }
        Some("text") => {
            let mut empty = json!({"type": "text", "text": ""});
            let mut all = Vec::new();
            if let Some(citations) = block["citations"].as_array() {
                empty["citations"] = json!([]);
                let delta = |citation| json!({"type": "citations_delta", "citation": citation});
                all.extend(citations.iter().map(delta));
            }
            let delta = |part: &&str| json!({"type": "text_delta", "text": part});
            all.extend(deltas(text("text"), most).iter().map(delta));
            (empty, all)
        }
        _ => (block.clone(), Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::pace::Pace;
    use super::events;

    #[test]
    fn blocks_are_streamed_in_deltas() {
        let message = json!({
            "content": [
                {"type": "thinking", "thinking": "abc", "signature": "sig"},
                {"type": "text", "text": "de", "citations": [{"cited_text": "q"}]},
                {"type": "tool_use", "id": "t", "name": "n", "input": {"a": 1}},
            ],
            "stop_reason": "tool_use",
            "usage": {"input_tokens": 5, "output_tokens": 9, "cache_creation": {}},
        });
        let pace = Pace {
            delta_bytes: 2,
            ..Pace::default()
        };
        let events = events(&message, &pace);
        let short: Vec<String> = events
            .iter()
            .map(|event| {
                let data: Value = serde_json::from_str(&event.data).unwrap();
                let kind = data["delta"]["type"].as_str().or(data["type"].as_str());
                let part = ["thinking", "signature", "text", "partial_json"]
                    .iter()
                    .find_map(|name| data["delta"][name].as_str());
                format!("{} {}", kind.unwrap(), part.unwrap_or("-"))
            })
            .collect();
        let expected = [
            "message_start -",
            "content_block_start -",
            "ping -",
            "thinking_delta ab",
            "thinking_delta c",
            "signature_delta sig",
            "content_block_stop -",
            "content_block_start -",
            "citations_delta -",
            "text_delta de",
            "content_block_stop -",
            "content_block_start -",
            "input_json_delta ",
            "input_json_delta {\"",
            "input_json_delta a\"",
            "input_json_delta :1",
            "input_json_delta }",
            "content_block_stop -",
            "message_delta -",
            "message_stop -",
        ];
        assert_eq!(short, expected);
        let end: Value = serde_json::from_str(&events[18].data).unwrap();
        let usage = json!({"input_tokens": 5, "output_tokens": 9});
        assert_eq!(end["usage"], usage);
    }
}
