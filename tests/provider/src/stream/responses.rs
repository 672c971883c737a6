//! The events of OpenAI's Responses API.

use serde_json::{Value, json};

use super::pace::Pace;
use super::{Event, deltas};

/// Returns the events for a response.
pub(crate) fn events(response: &Value, pace: &Pace) -> Vec<Event> {
    // The first events contain the complete response object in its state before the first item.
    let mut open = response.clone();
    open["status"] = json!("in_progress");
    open["output"] = json!([]);
    open["usage"] = Value::Null;
    open["incomplete_details"] = Value::Null;
    open["completed_at"] = Value::Null;
    let mut events = vec![
        json!({"type": "response.created", "response": open}),
        json!({"type": "response.in_progress", "response": open}),
    ];
    let output = response["output"].as_array().into_iter().flatten();
    for (index, item) in output.enumerate() {
        let (empty, content) = opened(item, pace.delta_bytes);
        events.push(json!({
            "type": "response.output_item.added", "output_index": index, "item": empty,
        }));
        events.extend(content.into_iter().map(|mut event| {
            event["output_index"] = json!(index);
            event["item_id"] = item["id"].clone();
            event
        }));
        events.push(json!({
            "type": "response.output_item.done", "output_index": index, "item": item,
        }));
    }
    let status = response["status"].as_str().unwrap_or("completed");
    // The last event has the status in its name, such as `response.completed` or `response.incomplete`.
    events.push(json!({"type": format!("response.{status}"), "response": response}));
    for (number, event) in events.iter_mut().enumerate() {
        // One sequence counts the events of all items.
        event["sequence_number"] = json!(number);
    }
    events.iter().map(Event::named).collect()
}

/// Returns the item as it begins, and the events of its content without the index and the id of the item.
fn opened(item: &Value, most: usize) -> (Value, Vec<Value>) {
    // `output_item.added` has the item without its content, which the following events add.
    let mut empty = item.clone();
    if empty.get("status").is_some() {
        empty["status"] = json!("in_progress");
    }
    let text = |name: &str| item[name].as_str().unwrap_or_default();
    let content = match item["type"].as_str() {
        Some("message") => {
            empty["content"] = json!([]);
            let parts = item["content"].as_array().into_iter().flatten();
            parts
                .enumerate()
                .flat_map(|(index, part)| part_events(index, part, most))
                .collect()
        }
        Some("reasoning") => {
            empty["summary"] = json!([]);
            let parts = item["summary"].as_array().into_iter().flatten();
            parts
                .enumerate()
                .flat_map(|(index, part)| summary_events(index, part, most))
                .collect()
        }
        Some("function_call") => {
            empty["arguments"] = json!("");
            let kind = "response.function_call_arguments";
            let mut events = delta_events(kind, text("arguments"), most);
            events.push(json!({
                "type": format!("{kind}.done"), "arguments": text("arguments"),
                "name": text("name"),
            }));
            events
        }
        Some("custom_tool_call") => {
            empty["input"] = json!("");
            let kind = "response.custom_tool_call_input";
            let mut events = delta_events(kind, text("input"), most);
            events.push(json!({"type": format!("{kind}.done"), "input": text("input")}));
            events
        }
        _ => Vec::new(),
    };
    (empty, content)
}

fn delta_events(kind: &str, text: &str, most: usize) -> Vec<Value> {
    let delta = |part: &&str| json!({"type": format!("{kind}.delta"), "delta": part});
    deltas(text, most).iter().map(delta).collect()
}

/// Returns the events of a content part: a text or a refusal.
fn part_events(index: usize, part: &Value, most: usize) -> Vec<Value> {
    let is_text = part["type"] == "output_text";
    let (kind, name) = if is_text {
        ("response.output_text", "text")
    } else {
        ("response.refusal", "refusal")
    };
    let mut empty = part.clone();
    empty[name] = json!("");
    let text = part[name].as_str().unwrap_or_default();
    let mut events = vec![json!({"type": "response.content_part.added", "part": empty})];
    events.extend(delta_events(kind, text, most));
    events.push(json!({"type": format!("{kind}.done"), name: text}));
    if is_text {
        for event in &mut events[1..] {
            event["logprobs"] = json!([]);
        }
    }
    events.push(json!({"type": "response.content_part.done", "part": part}));
    for event in &mut events {
        event["content_index"] = json!(index);
    }
    events
}

fn summary_events(index: usize, part: &Value, most: usize) -> Vec<Value> {
    let kind = "response.reasoning_summary_text";
    let text = part["text"].as_str().unwrap_or_default();
    let empty = json!({"type": "summary_text", "text": ""});
    let mut events = vec![json!({
        "type": "response.reasoning_summary_part.added", "part": empty,
    })];
    events.extend(delta_events(kind, text, most));
    events.push(json!({"type": format!("{kind}.done"), "text": text}));
    events.push(json!({"type": "response.reasoning_summary_part.done", "part": part}));
    for event in &mut events {
        event["summary_index"] = json!(index);
    }
    events
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::pace::Pace;
    use super::events;

    #[test]
    fn items_are_streamed_in_parts() {
        let response = json!({
            "status": "incomplete",
            "output": [
                {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "why"}]},
                {"type": "message", "id": "msg", "status": "completed",
                    "content": [{"type": "output_text", "text": "abc", "annotations": []}]},
                {"type": "function_call", "id": "fc", "status": "completed", "name": "f", "arguments": "{}"},
                {"type": "custom_tool_call", "id": "ctc", "name": "g", "input": "x"},
            ],
        });
        let pace = Pace {
            delta_bytes: 2,
            ..Pace::default()
        };
        let events = events(&response, &pace);
        let mut short = Vec::new();
        for (number, event) in events.iter().enumerate() {
            let data: Value = serde_json::from_str(&event.data).unwrap();
            assert_eq!(data["sequence_number"], number, "{data}");
            assert_eq!(event.name.as_deref(), data["type"].as_str(), "{data}");
            let kind = data["type"].as_str().unwrap();
            let index = data["output_index"].as_u64();
            let index = index.map_or(String::new(), |index| format!("{index} "));
            short.push(format!("{index}{}", kind.trim_start_matches("response.")));
        }
        let expected = [
            "created",
            "in_progress",
            "0 output_item.added",
            "0 reasoning_summary_part.added",
            "0 reasoning_summary_text.delta",
            "0 reasoning_summary_text.delta",
            "0 reasoning_summary_text.done",
            "0 reasoning_summary_part.done",
            "0 output_item.done",
            "1 output_item.added",
            "1 content_part.added",
            "1 output_text.delta",
            "1 output_text.delta",
            "1 output_text.done",
            "1 content_part.done",
            "1 output_item.done",
            "2 output_item.added",
            "2 function_call_arguments.delta",
            "2 function_call_arguments.done",
            "2 output_item.done",
            "3 output_item.added",
            "3 custom_tool_call_input.delta",
            "3 custom_tool_call_input.done",
            "3 output_item.done",
            "incomplete",
        ];
        assert_eq!(short, expected);
    }
}
