//! Adds a report to a response without a stream.

use std::collections::VecDeque;
use std::future::poll_fn;

use bytes::Bytes;
use http_body::Frame;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::{EditedBody, FIELD, block, with_applied};
use crate::context::EditReport;
use crate::reading::Fields;
use crate::response_body::UpstreamBody;

/// Returns the body with the report, and its length. A body that breaks, exceeds `max_bytes` or is not understood stays as
/// it is, without a length.
pub(super) async fn edited(
    mut body: UpstreamBody,
    report: &EditReport,
    max_bytes: usize,
) -> (EditedBody, Option<usize>) {
    let mut received: VecDeque<Frame<Bytes>> = VecDeque::new();
    let mut json: Vec<u8> = Vec::new();
    loop {
        match poll_fn(|cx| body.poll_next(cx)).await {
            Some(Ok(frame)) => {
                json.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
                received.push_back(frame);
            }
            Some(Err(error)) => return (EditedBody::received(received, None, Some(error)), None),
            None => break,
        }
        if json.len() > max_bytes {
            return (EditedBody::received(received, Some(body), None), None);
        }
    }
    match with_report(&json, report) {
        Ok(json) => {
            let length = json.len();
            let frames = [Frame::data(json.into())].into();
            (EditedBody::received(frames, None, None), Some(length))
        }
        Err(error) => {
            tracing::warn!(kind = ?error.classify(), "cannot report the edits of a request in its response");
            (EditedBody::received(received, None, None), None)
        }
    }
}

fn with_report(json: &[u8], report: &EditReport) -> serde_json::Result<Vec<u8>> {
    let mut fields: Fields = serde_json::from_slice(json)?;
    if let Some(summary) = &report.summary {
        let content: Option<Vec<Box<RawValue>>> = fields.read("content")?;
        let mut with_summary = vec![to_raw_value(&block(summary))?];
        with_summary.extend(content.unwrap_or_default());
        fields.set_value("content", &with_summary)?;
    }
    let providers: Option<Value> = fields.read(FIELD)?;
    fields.set_value(FIELD, &with_applied(report, providers))?;
    serde_json::to_vec(&fields)
}
