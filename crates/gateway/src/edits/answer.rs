//! The answer to a request that pauses after its compaction. Upstream gets no request.

use serde_json::{Value, json};

use super::{FIELD, block, stream, with_applied};
use crate::answer::OwnAnswer;
use crate::context::{EditReport, Pause};

/// Returns the answer with the summary alone.
pub(crate) fn paused(
    report: &EditReport,
    (summary, pause): (&str, &Pause),
    model: Option<&str>,
) -> OwnAnswer {
    // No model was asked.
    let usage = json!({"input_tokens": 0, "output_tokens": 0,
        "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0});
    let message = json!({
        "id": pause.id, "type": "message", "role": "assistant", "model": model,
        "content": [block(summary)], "stop_reason": "compaction", "stop_sequence": null,
        "usage": usage, FIELD: with_applied(report, None),
    });
    if pause.streams {
        OwnAnswer::events(stream_of(message, summary))
    } else {
        OwnAnswer::json(message.to_string())
    }
}

fn stream_of(mut message: Value, summary: &str) -> Vec<u8> {
    // In a stream, `message_start` has no edits and no stop reason. `message_delta` has both.
    let edits = message[FIELD].take();
    let usage = message["usage"].clone();
    if let Some(fields) = message.as_object_mut() {
        fields.remove(FIELD);
    }
    message["content"] = json!([]);
    message["stop_reason"] = Value::Null;
    let delta = json!({"stop_reason": "compaction", "stop_sequence": null});
    let end = json!({"type": "message_delta", "delta": delta, "usage": usage, FIELD: edits});
    let mut events = vec![json!({"type": "message_start", "message": message})];
    events.extend(stream::block_events(summary));
    events.extend([end, json!({"type": "message_stop"})]);
    let mut text = Vec::new();
    stream::write_events(&mut text, &events);
    text
}
