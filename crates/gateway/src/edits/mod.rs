//! Reports to the agent the edits of the context that a session has served: in the response of the provider, or in an
//! answer of the gateway if the agent asked for a pause after a compaction.
//!
//! The record of a response has no summary, because the log has its compaction.

mod answer;
mod body;
mod stream;
mod whole;

use http::header::CONTENT_ENCODING;
use http::response::Parts as ResponseHead;
use serde_json::{Value, json};

pub(crate) use self::answer::paused;
pub(crate) use self::body::EditedBody;
use self::stream::StreamEditor;
use super::context::{EditKind, EditReport};
use super::headers;
use super::reading::is_event_stream;
use super::response_body::UpstreamBody;

/// The field of a response with the applied edits.
const FIELD: &str = "context_management";
const APPLIED: &str = "applied_edits";

/// Adds the report to a response. A response that cannot be changed stays as it is. `max_bytes` is the maximum size of a
/// response without a stream.
pub(crate) async fn add_report(
    (mut head, body): (ResponseHead, UpstreamBody),
    report: &EditReport,
    max_bytes: usize,
) -> (ResponseHead, UpstreamBody) {
    // The request asked for no coding.
    let is_changeable = head.status.is_success() && !head.headers.contains_key(CONTENT_ENCODING);
    if !is_changeable || !report.changes_response() {
        return (head, body);
    }
    if is_event_stream(&head.headers) {
        let editor = StreamEditor::new(report.clone());
        head.headers = headers::without_length(&head.headers);
        let body = EditedBody::stream(body, editor);
        return (head, UpstreamBody::Edited(Box::new(body)));
    }
    let (body, length) = whole::edited(body, report, max_bytes).await;
    if let Some(length) = length {
        head.headers = headers::of_changed_response(&head.headers, length);
    }
    (head, UpstreamBody::Edited(Box::new(body)))
}

/// Returns the applied edits in the form of the API.
fn applied(report: &EditReport) -> Vec<Value> {
    let mut applied = Vec::new();
    if report.is_applied(EditKind::ClearToolUses) {
        applied.push(json!({
            "type": EditKind::ClearToolUses.api_type(),
            "cleared_tool_uses": report.cleared.count,
            "cleared_input_tokens": report.cleared.tokens,
        }));
    }
    applied
}

/// Returns the block of a summary.
fn block(summary: &str) -> Value {
    json!({"type": "compaction", "content": summary})
}

/// Returns the value of the field, with the edits that the provider has applied itself.
fn with_applied(report: &EditReport, providers: Option<Value>) -> Value {
    let mut field = providers
        .filter(Value::is_object)
        .unwrap_or_else(|| json!({}));
    let mut all = applied(report);
    if let Some(Value::Array(others)) = field.get_mut(APPLIED) {
        all.append(others);
    }
    field[APPLIED] = all.into();
    field
}
