//! Adds a report to the stream of a response.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{FIELD, block, with_applied};
use crate::context::EditReport;
use crate::reading::{EventParser, Fields, Unread, write_event};

/// Adds a report to a stream of Anthropic's Messages API.
#[derive(Debug)]
pub(super) struct StreamEditor {
    report: EditReport,
    events: EventParser,
    /// The bytes of the current event.
    raw: Vec<u8>,
    /// False after an event that is not understood. The rest stays as it is.
    is_on: bool,
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow)]
    r#type: Cow<'a, str>,
}

impl StreamEditor {
    pub(super) fn new(report: EditReport) -> Self {
        Self {
            report,
            events: EventParser::default(),
            raw: Vec::new(),
            is_on: true,
        }
    }

    /// Returns the bytes for the agent after these bytes of the stream.
    pub(super) fn read(&mut self, data: &[u8]) -> Vec<u8> {
        let (mut out, mut rest) = (Vec::new(), data);
        while self.is_on {
            let before = rest;
            let event = self.events.next(&mut rest);
            self.raw
                .extend_from_slice(&before[..before.len() - rest.len()]);
            match event {
                Ok(None) => return out,
                Ok(Some(event)) => {
                    // An event that is not understood stays as it is.
                    if let Ok(Some(edited)) = self.edited(&event) {
                        self.raw = edited;
                    }
                    out.append(&mut self.raw);
                }
                Err(reason) => {
                    tracing::warn!(%reason, "cannot report the edits of a request to the end of its response");
                    self.is_on = false;
                }
            }
        }
        out.append(&mut self.raw);
        out.extend_from_slice(rest);
        out
    }

    /// Returns the rest at the end of the stream.
    pub(super) fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.raw)
    }

    /// Returns the bytes that replace those of the current event, or `None` if the event stays as it is.
    fn edited(&self, event: &[u8]) -> Result<Option<Vec<u8>>, Unread> {
        let kind: Event<'_> = serde_json::from_slice(event)?;
        let summary = self.report.summary.as_deref();
        match (&*kind.r#type, summary) {
            ("message_start", Some(summary)) => {
                let mut bytes = self.raw.clone();
                write_events(&mut bytes, &block_events(summary));
                Ok(Some(bytes))
            }
            (
                name @ ("content_block_start" | "content_block_delta" | "content_block_stop"),
                Some(_),
            ) => {
                let mut fields: Fields = serde_json::from_slice(event)?;
                let index: u64 = fields.read("index")?.ok_or(Unread::Unknown)?;
                // The summary is block 0, so that each block of the provider moves by one position.
                let index = index.checked_add(1).ok_or(Unread::Unknown)?;
                fields.set_value("index", &index)?;
                Ok(Some(changed(name, &fields)?))
            }
            ("message_delta", _) => {
                let mut fields: Fields = serde_json::from_slice(event)?;
                let providers: Option<Value> = fields.read(FIELD)?;
                fields.set_value(FIELD, &with_applied(&self.report, providers))?;
                Ok(Some(changed("message_delta", &fields)?))
            }
            _ => Ok(None),
        }
    }
}

/// Returns the events of a summary, which is the first block.
pub(super) fn block_events(summary: &str) -> [Value; 3] {
    let mut empty = block("");
    empty["content"] = Value::Null;
    let delta = json!({"type": "compaction_delta", "content": summary});
    [
        json!({"type": "content_block_start", "index": 0, "content_block": empty}),
        json!({"type": "content_block_delta", "index": 0, "delta": delta}),
        json!({"type": "content_block_stop", "index": 0}),
    ]
}

/// Appends events to `out`.
pub(super) fn write_events(out: &mut Vec<u8>, events: &[Value]) {
    for event in events {
        write_event(out, event["type"].as_str(), &event.to_string());
    }
}

fn changed(name: &str, fields: &Fields) -> serde_json::Result<Vec<u8>> {
    let mut out = Vec::new();
    write_event(&mut out, Some(name), &serde_json::to_string(fields)?);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::{ClearedResults, EditKind};

    fn report(summary: Option<&str>) -> EditReport {
        EditReport {
            kinds: vec![EditKind::Compact, EditKind::ClearToolUses],
            summary: summary.map(str::to_owned),
            pause: None,
            cleared: ClearedResults {
                count: 2,
                tokens: 30,
            },
            unused_betas: Vec::new(),
        }
    }

    /// Returns the stream for the agent if the stream of the provider arrives in frames of this size.
    fn edited(stream: &str, size: usize, report: EditReport) -> String {
        let mut editor = StreamEditor::new(report);
        let frames = stream.as_bytes().chunks(size);
        let mut out: Vec<u8> = frames.flat_map(|frame| editor.read(frame)).collect();
        out.extend(editor.rest());
        String::from_utf8(out).unwrap()
    }

    /// Returns the data of the events of a stream. The end of an event can be in the next frame, so bytes differ.
    fn events(stream: &str) -> Vec<Value> {
        let (mut parser, mut input) = (EventParser::default(), stream.as_bytes());
        let next = || parser.next(&mut input).unwrap();
        let events = std::iter::from_fn(next);
        events
            .map(|event| serde_json::from_slice(&event).unwrap())
            .collect()
    }

    #[test]
    fn a_report_is_added_for_any_frames() {
        let stream = "event: message_start\r\ndata: {\"type\":\"message_start\",\"n\":1.0}\r\n\r\n\
            event: ping\ndata: {\"type\":\"ping\"}\n\n\
            event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":4,\"delta\":{\"t\":\"ü\"}}\n\n\
            event: message_delta\ndata: {\"type\":\"message_delta\",\"context_management\":{\"applied_edits\":[{\"type\":\"x\"}]}}\n\n\
            : rest";
        let own = json!({"type": "clear_tool_uses_20250919", "cleared_tool_uses": 2, "cleared_input_tokens": 30});
        let delta = json!({"type": "compaction_delta", "content": "s"});
        let expected = [
            json!({"type": "message_start", "n": 1.0}),
            json!({"type": "content_block_start", "index": 0,
                "content_block": {"type": "compaction", "content": null}}),
            json!({"type": "content_block_delta", "index": 0, "delta": delta}),
            json!({"type": "content_block_stop", "index": 0}),
            json!({"type": "ping"}),
            json!({"type": "content_block_delta", "index": 5, "delta": {"t": "ü"}}),
            json!({"type": "message_delta", FIELD: {"applied_edits": [own, {"type": "x"}]}}),
        ];
        for size in [1, 2, 3, 7, 40, 1_000] {
            let stream = edited(stream, size, report(Some("s")));
            assert_eq!(events(&stream), expected, "{size}: {stream}");
            assert!(stream.ends_with(": rest"), "{size}: {stream}");
        }
    }

    #[test]
    fn events_that_are_not_understood_keep_their_bytes() {
        let stream = "data: {\"type\":\"content_block_stop\"}\n\n\
            data: {\"type\":\"content_block_stop\",\"index\":18446744073709551615}\n\n\
            data: {\"type\":\"content_block_delta\",\"index\":\"1\"}\n\n\
            data: {\"type\":\"message_delta\",\"type\":1}\n\n";
        for size in [1, 5, 1_000] {
            assert_eq!(edited(stream, size, report(Some("s"))), stream);
        }
    }

    #[test]
    fn events_that_need_no_change_keep_their_bytes() {
        let stream = "event: content_block_start\r\ndata: {\"type\": \"content_block_start\", \"index\": 0}\r\n\r\n\
            data: no JSON\n\nevent: error\ndata: {\"type\":\"error\"}\n\n";
        for size in [1, 5, 1_000] {
            assert_eq!(edited(stream, size, report(None)), stream);
        }
    }
}
