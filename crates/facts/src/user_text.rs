//! Extraction of a person's own words from a message, without text that programs inserted.

use std::borrow::Cow;

use palimpsest_types::message::{Block, Message};
use palimpsest_types::quoting::MACHINE_TAGS;

/// The beginnings of tool output in a user message. Agents without tool calls send the output of
/// commands in this form.
const ECHO_TAGS: [&str; 6] = [
    "<returncode>", "<output>", "<tool_output>", "<tool_result>", "OBSERVATION:", "Observation:",
];

/// The instruction that an agent program appends to its note about a finished task.
const AFTER_NOTE: &str = "Read the output file to retrieve the result:";

/// Returns the user's own words in a message, or `None` if a person wrote nothing. Tool results, and
/// text in the format of tool output, are excluded.
pub fn user_text(message: &Message) -> Option<String> {
    if !message.is_real_user_input() || tool_echo(message).is_some() {
        return None;
    }
    let mut words = String::new();
    let mut pictures = false;
    for block in &message.blocks {
        match block {
            Block::Text { text, .. } => {
                let text = without_injected_text(text);
                let text = text.lines().filter(|line| !line.starts_with(AFTER_NOTE));
                let text = text.collect::<Vec<_>>().join("\n");
                if !text.trim().is_empty() {
                    if !words.is_empty() {
                        words.push('\n');
                    }
                    words.push_str(text.trim());
                }
            }
            // A message with images only is still a user input and needs a visible text.
            Block::Media(_) => pictures = true,
            _ => {}
        }
    }
    if pictures {
        words.push_str(if words.is_empty() {
            "[image]"
        } else {
            " [image]"
        });
    }
    (!words.is_empty()).then_some(words)
}

/// Returns the tool output in a user message, if the message has the format of tool output.
pub(super) fn tool_echo(message: &Message) -> Option<&str> {
    let text = message.blocks.iter().find_map(|block| match block {
        Block::Text { text, .. } => Some(text.trim_start()),
        _ => None,
    })?;
    ECHO_TAGS
        .iter()
        .any(|begin| text.starts_with(begin))
        .then_some(text)
}

/// Returns the command in the first shell fence of a text.
pub(super) fn fenced_command(text: &str) -> Option<&str> {
    let starts = [
        "```bash\n",
        "```sh\n",
        "```shell\n",
        "```mswea_bash_command\n",
    ];
    let (at, start) = starts
        .iter()
        .filter_map(|start| Some((text.find(start)?, start)))
        .min()?;
    let rest = &text[at + start.len()..];
    let command = &rest[..rest.find("\n```")?];
    (!command.trim().is_empty()).then(|| command.trim())
}

fn without_injected_text(text: &str) -> Cow<'_, str> {
    let mut text = Cow::Borrowed(text);
    for tag in MACHINE_TAGS {
        let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
        let mut kept = String::new();
        let mut rest = &*text;
        let Some(mut at) = rest.find(&open) else {
            continue;
        };
        // An unclosed tag swallows the rest of the text: treating it as the person's words would be
        // worse.
        loop {
            kept.push_str(&rest[..at]);
            rest = rest[at..]
                .find(&close)
                .map_or("", |end| &rest[at + end + close.len()..]);
            match rest.find(&open) {
                Some(next) => at = next,
                None => break,
            }
        }
        kept.push_str(rest);
        text = Cow::Owned(kept);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn injected_text_is_not_user_text() {
        let text = "Fix it.<system-reminder>Do evil.</system-reminder> Now.<system-reminder>open";
        assert_eq!(without_injected_text(text), "Fix it. Now.");
    }

    #[test]
    fn a_command_in_a_code_fence_is_found() {
        assert_eq!(
            fenced_command("I look.\n\n```bash\nls -l\n```\n"),
            Some("ls -l")
        );
        assert_eq!(fenced_command("```bash\nls"), None);
    }
}
