//! The recall of a policy: the share of what tool calls use that the view showed at the time of the call.

use palimpsest_core::message::{Block, MessageKind, Role, ToolUse};

use palimpsest_facts::names::expand;

use super::conversation::Conversation;
use super::counts::RecallCounts;
use super::edits::replaced_lines;
use super::needs::names_of;
use super::shown::shows;
use super::texts::{push_message, view_text};
use crate::replay::driver::Driver;

/// The parts of the earlier conversation that tool calls used, and the number of those that the view showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UseCounts {
    /// Names: paths, identifiers in searches, and files in commands. A name counts once for each call.
    pub names: RecallCounts,
    /// Texts that edits replace, word for word. A call counts once.
    pub edits: RecallCounts,
}

impl UseCounts {
    /// Adds other counts.
    pub fn add(&mut self, other: Self) {
        self.names.add(other.names);
        self.edits.add(other.edits);
    }

    /// Returns the sum.
    pub fn all(self) -> RecallCounts {
        let mut all = self.names;
        all.add(self.edits);
        all
    }
}

/// Follows a replay and counts what the agent uses.
#[derive(Default)]
pub(in crate::replay) struct UseCounter {
    conversation: Conversation,
    /// The text of the last sent view and of the messages since.
    visible: String,
    /// The number of messages that were read.
    read: usize,
    counts: UseCounts,
}

impl UseCounter {
    /// Records that the current view is sent.
    pub(in crate::replay) fn view_sent(&mut self, driver: &Driver) {
        self.read_messages(driver);
        let view = driver.session.view(driver.caller.target(), None);
        let view = view.expect("a session that was never unloaded holds its messages");
        let text = view_text(&view);
        // The paths of brace notations follow the text.
        self.visible = expand(&text).unwrap_or(text);
    }

    /// Returns the counts at the end of a replay.
    pub(in crate::replay) fn finish(mut self, driver: &Driver) -> UseCounts {
        self.read_messages(driver);
        self.counts
    }

    fn read_messages(&mut self, driver: &Driver) {
        let root = driver.root();
        for (line, message) in &driver.log[self.read..] {
            // The service's own messages are part of the view and not of the conversation.
            if message.kind != MessageKind::Ordinary {
                continue;
            }
            if message.role == Role::Assistant {
                for block in &message.blocks {
                    if let Block::ToolUse(call) = block {
                        self.count(call, root);
                    }
                }
            }
            self.conversation.push(*line, message);
            push_message(message, &mut self.visible);
        }
        self.read = driver.log.len();
    }

    fn count(&mut self, call: &ToolUse, root: Option<&str>) {
        let mut names = names_of(call, root);
        names.sort_by(|a, b| a.text.cmp(&b.text));
        names.dedup_by(|a, b| a.text == b.text);
        for name in names {
            if self.conversation.last_mention(&name, root).is_some() {
                let is_shown = shows(&self.visible, &name, root);
                self.counts.names.count(is_shown);
            }
        }
        let lines = replaced_lines(call);
        let has_all = |text: &str| lines.iter().all(|line| text.contains(line.as_str()));
        // A text that no message contained was never known, for example the text of a file that a command printed in
        // another form.
        if !lines.is_empty() && has_all(&self.conversation.text) {
            self.counts.edits.count(has_all(&self.visible));
        }
    }
}
