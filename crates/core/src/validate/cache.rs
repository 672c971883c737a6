//! Rules for cache breakpoints, in Anthropic's and in Bedrock's form.

use serde_json::Value;

use super::report::{ViolationReport, has_only, text};

/// Maximum number of breakpoints in a request.
const MAX_BREAKPOINTS: usize = 4;

/// Checks breakpoints that are fields of blocks, as in Anthropic's API.
pub(super) fn check_fields(messages: &[&Value], report: &mut ViolationReport) {
    let mut markers = BreakpointValidator::new(report);
    for (index, message) in messages.iter().enumerate() {
        let blocks = message.get("content").and_then(Value::as_array);
        for (block_index, block) in blocks.into_iter().flatten().enumerate() {
            let path = format!("messages[{index}].content[{block_index}]");
            markers.field(block, &path);
            // Blocks inside a tool result can carry breakpoints too.
            let nested = block.get("content").and_then(Value::as_array);
            for (nested_index, block) in nested.into_iter().flatten().enumerate() {
                markers.field(block, &format!("{path}.content[{nested_index}]"));
            }
        }
    }
    markers.end();
}

/// Checks breakpoints that are blocks, as in Bedrock's API. Returns the messages without these blocks.
pub(super) fn check_blocks(messages: &[&Value], report: &mut ViolationReport) -> Vec<Value> {
    let mut markers = BreakpointValidator::new(report);
    let mut without: Vec<Value> = messages.iter().map(|message| (*message).clone()).collect();
    for (index, message) in without.iter_mut().enumerate() {
        let Some(blocks) = message.get_mut("content").and_then(Value::as_array_mut) else {
            continue;
        };
        let mut before: Option<Value> = None;
        // The block before a cache point is recorded with cache points included, so that two in a row are detected.
        let mut kept = Vec::with_capacity(blocks.len());
        for (block_index, block) in blocks.drain(..).enumerate() {
            if let Some(point) = block.get("cachePoint") {
                let path = format!("messages[{index}].content[{block_index}]");
                markers.block(&block, point, before.as_ref(), &path);
            } else {
                kept.push(block.clone());
            }
            before = Some(block);
        }
        *blocks = kept;
    }
    markers.end();
    without
}

struct BreakpointValidator<'r> {
    report: &'r mut ViolationReport,
    found: usize,
    short_lived: bool,
}

impl<'r> BreakpointValidator<'r> {
    fn new(report: &'r mut ViolationReport) -> Self {
        Self {
            report,
            found: 0,
            short_lived: false,
        }
    }

    fn field(&mut self, block: &Value, path: &str) {
        let Some(marker) = block.get("cache_control") else {
            return;
        };
        self.report.unless(
            !matches!(
                text(block, "type"),
                Some("thinking" | "redacted_thinking") | None
            ),
            path,
            "cache_control: extra inputs are not permitted",
        );
        self.report.unless(
            text(block, "type") != Some("text")
                || text(block, "text").is_some_and(|words| !words.trim().is_empty()),
            path,
            "cache_control cannot be set for empty text blocks",
        );
        self.report.unless(
            text(marker, "type") == Some("ephemeral") && has_only(marker, &["type", "ttl"]),
            path,
            "cache_control must be of the type \"ephemeral\"",
        );
        self.count(marker, path);
    }

    fn block(&mut self, block: &Value, point: &Value, before: Option<&Value>, path: &str) {
        self.report.unless(
            has_only(block, &["cachePoint"]),
            path,
            "a block can only set one of its keys",
        );
        self.report.unless(
            text(point, "type") == Some("default") && has_only(point, &["type", "ttl"]),
            path,
            "a cache point must be of the type \"default\"",
        );
        let Some(before) = before.filter(|before| before.get("cachePoint").is_none()) else {
            self.report
                .add(path.to_owned(), "the request has no content to cache");
            return;
        };
        self.report.unless(
            !matches!(
                text(before, "type"),
                Some("thinking" | "redacted_thinking" | "document")
            ),
            path,
            "a cache point cannot be inserted after this block",
        );
        self.count(point, path);
    }

    fn count(&mut self, marker: &Value, path: &str) {
        self.found += 1;
        // A lifetime that is not a string becomes an empty one, which the next check rejects.
        let ttl = marker.get("ttl").map(|ttl| ttl.as_str().unwrap_or(""));
        self.report.unless(
            matches!(ttl, None | Some("5m" | "1h")),
            path,
            "a breakpoint lives for \"5m\" or \"1h\"",
        );
        // A breakpoint with a shorter lifetime must not precede one with a longer lifetime.
        self.report.unless(
            !(self.short_lived && ttl == Some("1h")),
            path,
            "a breakpoint of 1h must not come after one of 5m",
        );
        // Without `ttl`, a breakpoint lives for five minutes.
        self.short_lived |= ttl != Some("1h");
    }

    fn end(self) {
        self.report.unless(
            self.found <= MAX_BREAKPOINTS,
            "messages",
            "a maximum of 4 blocks with cache_control may be provided",
        );
    }
}
