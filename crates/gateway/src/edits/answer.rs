//! The answer to a request that pauses after its compaction. Upstream gets no request.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::response::Parts as ResponseHead;
use http::{HeaderValue, Response};
use serde_json::{Value, json};

use super::{FIELD, block, stream, with_applied};
use crate::context::{EditReport, Pause};
use crate::response_body::UpstreamBody;
use crate::tee::TeeBody;

/// Returns the answer with the summary alone.
pub(crate) fn paused(
    report: &EditReport,
    (summary, pause): (&str, &Pause),
    model: Option<&str>,
) -> (ResponseHead, UpstreamBody) {
    // No model was asked.
    let usage = json!({"input_tokens": 0, "output_tokens": 0,
        "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0});
    let message = json!({
        "id": pause.id, "type": "message", "role": "assistant", "model": model,
        "content": [block(summary)], "stop_reason": "compaction", "stop_sequence": null,
        "usage": usage, FIELD: with_applied(report, None),
    });
    let (text, media) = if pause.streams {
        (
            stream_of(message, summary),
            "text/event-stream; charset=utf-8",
        )
    } else {
        (message.to_string(), "application/json")
    };
    let (mut head, ()) = Response::new(()).into_parts();
    head.headers
        .insert(CONTENT_TYPE, HeaderValue::from_static(media));
    head.headers.insert(CONTENT_LENGTH, text.len().into());
    let body = TeeBody::resumed([Bytes::from(text)].into(), None);
    (head, UpstreamBody::Tee(Box::new(body)))
}

fn stream_of(mut message: Value, summary: &str) -> String {
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
    events.iter().map(stream::event).collect()
}
