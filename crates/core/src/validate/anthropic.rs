//! Rules of Anthropic's Messages API.

use std::collections::HashSet;

use base64::Engine as _;
use serde_json::Value;

use super::report::{ViolationReport, has_only, is_name, text};

/// The options of a request that decide about its messages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Options {
    pub(super) thinking: bool,
    /// True if the request may have messages with the role `system`.
    pub(super) system_messages: bool,
}

pub(super) fn check(all: &[&Value], options: Options, report: &mut ViolationReport) {
    let is_system = |message: &&Value| text(message, "role") == Some("system");
    if options.system_messages {
        system_messages(all, report);
    }
    // Valid system messages do not separate the messages around them.
    let conversation: Vec<(usize, &Value)> = (all.iter().copied().enumerate())
        .filter(|(_, message)| !(options.system_messages && is_system(message)))
        .collect();
    let messages: Vec<&Value> = conversation.iter().map(|(_, message)| *message).collect();
    report.unless(
        !messages.is_empty(),
        "messages",
        "at least one message is required",
    );
    let role = |message: Option<&&Value>| message.and_then(|m| text(m, "role").map(str::to_owned));
    report.unless(
        role(messages.first()).as_deref() == Some("user"),
        "messages[0]",
        "first message must use the \"user\" role",
    );
    report.unless(
        role(messages.last()).as_deref() == Some("user"),
        "messages",
        "the last message must be the user's: the model does not support prefilling",
    );
    let mut walk = ConversationValidator {
        report,
        thinking: options.thinking,
        ids: HashSet::new(),
        images: 0,
    };
    // `open` contains the call ids of the previous assistant message. The next message must answer all of them.
    let mut open: Vec<String> = Vec::new();
    let mut previous = None;
    for (index, message) in conversation {
        let path = format!("messages[{index}]");
        let role = text(message, "role");
        walk.report.unless(
            has_only(message, &["role", "content"]),
            &path,
            "extra inputs are not permitted",
        );
        walk.report
            .unless(previous != Some(role), &path, "roles must alternate");
        previous = Some(role);
        let Some(blocks) = message.get("content").and_then(Value::as_array) else {
            walk.report.add(path, "content must be an array of blocks");
            continue;
        };
        walk.report.unless(
            !blocks.is_empty(),
            &path,
            "all messages must have non-empty content",
        );
        match role {
            Some("user") => {
                walk.user(blocks, &open, &path);
                open.clear();
            }
            Some("assistant") => {
                walk.report.unless(
                    open.is_empty(),
                    &path,
                    "`tool_use` ids were found without `tool_result` blocks immediately after",
                );
                open = walk.assistant(blocks, &path);
            }
            _ => walk
                .report
                .add(path, "role must be \"user\" or \"assistant\""),
        }
    }
    walk.report.unless(
        open.is_empty(),
        "messages",
        "the last calls have no results",
    );
    let images = walk.images;
    report.unless(images <= 100, "messages", "too many images in one request");
}

/// Checks the messages of the operator: their places and their content.
fn system_messages(messages: &[&Value], report: &mut ViolationReport) {
    let role = |index: usize| {
        messages
            .get(index)
            .and_then(|message| text(message, "role"))
    };
    for (index, message) in messages.iter().enumerate() {
        if text(message, "role") != Some("system") {
            continue;
        }
        let path = format!("messages[{index}]");
        // Neighbouring system messages share one place, so the search skips them.
        let before = (0..index)
            .rev()
            .map(role)
            .find(|role| *role != Some("system"));
        report.unless(
            before == Some(Some("user")),
            &path,
            "role 'system' must follow a 'user' message",
        );
        let after = (index + 1..messages.len())
            .map(role)
            .find(|role| *role != Some("system"));
        report.unless(
            after.is_none_or(|role| role == Some("assistant")),
            &path,
            "role 'system' must precede an 'assistant' message or end the array",
        );
        report.unless(
            has_only(message, &["role", "content", "clear_at", "output_config"]),
            &path,
            "extra inputs are not permitted",
        );
        let content = message.get("content").and_then(Value::as_array);
        let is_text = |block: &Value| {
            text(block, "type") == Some("text")
                && text(block, "text").is_some_and(|text| !text.trim().is_empty())
        };
        report.unless(
            content.is_some_and(|blocks| !blocks.is_empty() && blocks.iter().all(is_text)),
            &path,
            "system messages must have text",
        );
    }
}

struct ConversationValidator<'r> {
    report: &'r mut ViolationReport,
    thinking: bool,
    ids: HashSet<String>,
    images: usize,
}

impl ConversationValidator<'_> {
    fn user(&mut self, blocks: &[Value], open: &[String], path: &str) {
        let mut answered = HashSet::new();
        // Results must precede all other content of a user message.
        let mut words = false;
        for (index, block) in blocks.iter().enumerate() {
            let path = format!("{path}.content[{index}]");
            match text(block, "type") {
                Some("tool_result") => {
                    self.report.unless(
                        !words,
                        &path,
                        "`tool_result` blocks must come before other content",
                    );
                    let id = text(block, "tool_use_id").unwrap_or_default();
                    self.report.unless(open.iter().any(|o| o == id), &path, "unexpected `tool_use_id`: it must have a corresponding `tool_use` block in the previous message");
                    self.report.unless(
                        answered.insert(id.to_owned()),
                        &path,
                        "each `tool_use` must have a single result",
                    );
                    self.result(block, &path);
                }
                Some("tool_use" | "thinking" | "redacted_thinking") => {
                    self.report
                        .add(path, "this block is allowed in assistant messages only");
                }
                _ => {
                    words = true;
                    self.content(block, &path);
                }
            }
        }
        self.report.unless(
            open.iter().all(|id| answered.contains(id)),
            path,
            "`tool_use` ids were found without `tool_result` blocks immediately after",
        );
    }

    fn assistant(&mut self, blocks: &[Value], path: &str) -> Vec<String> {
        let mut calls = Vec::new();
        for (index, block) in blocks.iter().enumerate() {
            let path = format!("{path}.content[{index}]");
            match text(block, "type") {
                Some("tool_use") => calls.push(self.call(block, &path)),
                Some("thinking") => {
                    self.report
                        .unless(self.thinking, &path, "thinking is off for this request");
                    self.report.unless(
                        has_only(block, &["type", "thinking", "signature"]),
                        &path,
                        "extra inputs are not permitted",
                    );
                    self.report.unless(
                        text(block, "signature").is_some_and(|s| !s.is_empty()),
                        &path,
                        "thinking needs its signature",
                    );
                }
                Some("redacted_thinking") => {
                    self.report
                        .unless(self.thinking, &path, "thinking is off for this request");
                    self.report.unless(
                        text(block, "data").is_some_and(|s| !s.is_empty()),
                        &path,
                        "redacted thinking needs its data",
                    );
                }
                Some("tool_result" | "image" | "document") => {
                    self.report
                        .add(path, "this block is allowed in user messages only");
                }
                _ => self.content(block, &path),
            }
        }
        // Only the last block matters: thinking elsewhere in the message is legal.
        let last = blocks.last().and_then(|block| text(block, "type"));
        self.report.unless(
            !matches!(last, Some("thinking" | "redacted_thinking")),
            path,
            "the final block in an assistant message cannot be `thinking`",
        );
        calls
    }

    fn call(&mut self, block: &Value, path: &str) -> String {
        // A missing id becomes an empty one, which violates the rule for names below.
        let id = text(block, "id").unwrap_or_default().to_owned();
        self.report.unless(
            has_only(
                block,
                &["type", "id", "name", "input", "cache_control", "caller"],
            ),
            path,
            "extra inputs are not permitted",
        );
        self.report
            .unless(is_name(&id, 64), path, "`id` must match ^[a-zA-Z0-9_-]+$");
        self.report.unless(
            self.ids.insert(id.clone()),
            path,
            "`tool_use` ids must be unique",
        );
        self.report.unless(
            text(block, "name").is_some_and(|name| is_name(name, 128)),
            path,
            "`name` must match ^[a-zA-Z0-9_-]{1,128}$",
        );
        self.report.unless(
            block.get("input").is_some_and(Value::is_object),
            path,
            "`input` must be an object",
        );
        id
    }

    fn result(&mut self, block: &Value, path: &str) {
        self.report.unless(
            has_only(
                block,
                &[
                    "type", "tool_use_id", "content", "is_error", "cache_control",
                ],
            ),
            path,
            "extra inputs are not permitted",
        );
        let content = block.get("content");
        // An empty result is legal unless it reports a failure.
        let empty = match content {
            None => true,
            Some(Value::String(text)) => text.is_empty(),
            Some(Value::Array(blocks)) => {
                for (index, nested) in blocks.iter().enumerate() {
                    self.content(nested, &format!("{path}.content[{index}]"));
                }
                blocks.is_empty()
            }
            Some(_) => {
                self.report
                    .add(path.to_owned(), "`content` must be a string or an array");
                false
            }
        };
        let failed = match block.get("is_error") {
            None => false,
            Some(flag) => {
                self.report
                    .unless(flag.is_boolean(), path, "`is_error` must be a boolean");
                flag == &Value::Bool(true)
            }
        };
        self.report.unless(
            !(failed && empty),
            path,
            "content cannot be empty if `is_error` is true",
        );
    }

    fn content(&mut self, block: &Value, path: &str) {
        match text(block, "type") {
            Some("text") => {
                self.report.unless(
                    has_only(block, &["type", "text", "citations", "cache_control"]),
                    path,
                    "extra inputs are not permitted",
                );
                self.report.unless(
                    text(block, "text").is_some_and(|t| !t.trim().is_empty()),
                    path,
                    "text content blocks must contain non-whitespace text",
                );
            }
            Some("image") => {
                self.images += 1;
                self.report.unless(
                    has_only(block, &["type", "source", "cache_control"]),
                    path,
                    "extra inputs are not permitted",
                );
                self.image(block.get("source"), path);
            }
            Some("document") => {
                let fields = [
                    "type", "source", "title", "context", "citations", "cache_control",
                ];
                self.report.unless(
                    has_only(block, &fields),
                    path,
                    "extra inputs are not permitted",
                );
                self.report.unless(
                    block.get("source").is_some_and(Value::is_object),
                    path,
                    "a document needs its source",
                );
            }
            // Blocks of unknown types are not checked: their rules are unknown.
            Some(_) => {}
            None => self.report.add(path.to_owned(), "a block needs its type"),
        }
    }

    fn image(&mut self, source: Option<&Value>, path: &str) {
        let Some(source) = source else {
            self.report
                .add(path.to_owned(), "an image needs its source");
            return;
        };
        // Only embedded images can be checked. Other sources are resolved by the provider.
        if text(source, "type") != Some("base64") {
            return;
        }
        let types = ["image/jpeg", "image/png", "image/gif", "image/webp"];
        self.report.unless(
            text(source, "media_type").is_some_and(|t| types.contains(&t)),
            path,
            "the media type is not supported",
        );
        // The limit of 5 MiB applies to the base64 text.
        let data = text(source, "data").unwrap_or_default();
        self.report.unless(
            data.len() <= 5 * 1024 * 1024,
            path,
            "image exceeds 5 MB maximum",
        );
        let Ok(bytes) = base64::engine::general_purpose::STANDARD.decode(data) else {
            self.report.add(path.to_owned(), "image data is not base64");
            return;
        };
        self.report
            .unless(!bytes.is_empty(), path, "image cannot be empty");
        // An image with an unreadable header is left to the provider.
        if let Ok(size) = imagesize::blob_size(&bytes) {
            self.report.unless(
                size.width <= 8_000 && size.height <= 8_000,
                path,
                "image dimensions exceed 8000 pixels",
            );
        }
    }
}
