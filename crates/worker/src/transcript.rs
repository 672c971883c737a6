//! Messages as text for the prompt of a model, within a size limit. The latest messages are kept.

use std::collections::VecDeque;
use std::fmt::Write as _;

use palimpsest_core::message::{Block, Message, MessageKind, ResultContent, Role};

/// Maximum characters of one input or result, so that one long file does not displace the rest.
const MAX_PART_CHARS: usize = 4_000;
/// Maximum bytes of the whole text.
const MAX_BYTES: usize = 240_000;

/// The messages as text.
#[derive(Debug, Default)]
pub(crate) struct PromptTranscript {
    parts: VecDeque<String>,
    bytes: usize,
    dropped_messages: usize,
}

impl PromptTranscript {
    /// Appends a message. Removes the oldest messages if the limit is exceeded.
    pub(crate) fn record(&mut self, message: &Message) {
        // Only messages that a model would see belong into the prompt.
        if message.transcript_only || message.kind != MessageKind::Ordinary {
            return;
        }
        let who = match message.role {
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::System | Role::Developer => return,
        };
        let mut out = String::new();
        for block in &message.blocks {
            add(&mut out, who, block);
        }
        if out.is_empty() {
            return;
        }
        self.bytes += out.len();
        self.parts.push_back(out);
        // The latest message stays even if it exceeds the limit alone.
        while self.bytes > MAX_BYTES && self.parts.len() > 1 {
            self.bytes -= self.parts.pop_front().map_or(0, |part| part.len());
            self.dropped_messages += 1;
        }
    }

    /// The text, with a note about removed messages.
    pub(crate) fn text(&self) -> String {
        let mut out = String::with_capacity(self.bytes + 80);
        if self.dropped_messages > 0 {
            let _ = writeln!(
                out,
                "[{} earlier messages are left out]\n",
                self.dropped_messages
            );
        }
        out.extend(self.parts.iter().map(String::as_str));
        out
    }
}

fn add(out: &mut String, who: &str, block: &Block) {
    // Writing to a string cannot fail.
    let _ = match block {
        Block::Text { text, .. } if !text.trim().is_empty() => {
            write!(out, "[{who}]\n{}\n\n", shorten(text))
        }
        Block::ToolUse(call) => {
            write!(
                out,
                "[{who} calls {}]\n{}\n\n",
                call.name,
                shorten(call.input.as_str())
            )
        }
        Block::ToolResult(result) => {
            let failed = if result.is_error == Some(true) {
                " failed"
            } else {
                ""
            };
            let text = match &result.content {
                ResultContent::None => String::new(),
                ResultContent::Text(text) => shorten(text),
                ResultContent::Blocks(blocks) => {
                    let texts = blocks.iter().filter_map(|inner| match inner {
                        Block::Text { text, .. } => Some(shorten(text)),
                        _ => None,
                    });
                    texts.collect::<Vec<_>>().join("\n")
                }
            };
            write!(out, "[tool{failed}]\n{text}\n\n")
        }
        _ => Ok(()),
    };
}

/// Shortens a text to its beginning and end. The end of a log and the beginning of a file are the important parts.
fn shorten(text: &str) -> String {
    let text = text.trim();
    let chars = text.chars().count();
    if chars <= MAX_PART_CHARS {
        return text.to_owned();
    }
    let half = MAX_PART_CHARS / 2;
    let head: String = text.chars().take(half).collect();
    let tail: String = text.chars().skip(chars - half).collect();
    format!("{head}\n[… {} characters …]\n{tail}", chars - 2 * half)
}

#[cfg(test)]
mod tests {
    use palimpsest_core::ids::MessageId;

    use super::*;

    #[test]
    fn the_latest_messages_are_kept_and_long_ones_are_shortened() {
        let mut transcript = PromptTranscript::default();
        for number in 0..200 {
            let text = format!("message {number} {}", "x".repeat(5_000));
            let id = MessageId::parse(&format!("01920000-0000-7000-8000-{number:012x}")).unwrap();
            transcript.record(&Message::new(id, Role::User, vec![Block::text(text)]));
        }
        let text = transcript.text();
        assert!(text.len() < MAX_BYTES + 5_000);
        assert!(text.starts_with("[1") && text.contains("earlier messages are left out]"));
        assert!(text.contains("message 199 ") && !text.contains("message 0 "));
        assert!(text.contains("characters …]"));
    }
}
