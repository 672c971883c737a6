//! View changes that the program of the transcript made itself.
//!
//! When a policy is measured, that policy decides, and these changes are skipped. When a transcript
//! is verified, its view follows that of the program, as it does in an import.

use std::sync::Arc;

use palimpsest_core::command::{
    Append, Command, ExternalSummary, Snip, StartCompaction, SummarySource,
};
use palimpsest_core::event::Trigger;
use palimpsest_core::ids::MessageId;
use palimpsest_core::message::Message;
use palimpsest_core::session::Visibility;
use uuid::Uuid;

use super::driver::Driver;
use super::recorded_session::RecordedCompaction;

impl Driver {
    /// Applies a compaction of the program.
    pub(super) fn adopt(&mut self, compacted: &RecordedCompaction) {
        self.line = compacted.line;
        // From here on, usage was reported for the program's own view.
        self.diverged = true;
        if self.levels {
            return;
        }
        self.serve();
        let before = self.session.revision();
        let summary = ExternalSummary {
            summary: Arc::clone(&compacted.summary),
            first: compacted.first,
            last: compacted.last,
            kept: compacted.kept.clone(),
            before_tokens: compacted.before_tokens,
            // Ids count down from the maximum, because messages without an id are numbered from 1.
            mark: MessageId::new(Uuid::from_u128(u128::MAX - self.log.len() as u128)),
        };
        self.run(Command::StartCompaction(StartCompaction::new(
            compacted.manual,
            SummarySource::External(Box::new(summary)),
        )));
        // A compaction without any effect would lose the summary, so the summary is appended as a
        // message.
        if self.session.revision() == before {
            let mut message = Message::clone(&compacted.summary);
            message.machine_generated = true;
            self.run(Command::Append(Append {
                messages: vec![Arc::new(message)],
                ..Append::default()
            }));
        }
    }

    /// Applies a removal of messages from the view.
    pub(super) fn remove(&mut self, line: usize, messages: &[MessageId]) {
        self.line = line;
        self.diverged = true;
        if self.levels {
            return;
        }
        self.serve();
        let is_there = |id: &MessageId| {
            let transcript = self.session.transcript();
            let entry = transcript.find(*id).and_then(|at| transcript.get(at));
            entry.is_some_and(|entry| entry.visibility == Visibility::Visible)
        };
        let messages: Vec<MessageId> = messages.iter().copied().filter(is_there).collect();
        if messages.is_empty() {
            return;
        }
        self.run(Command::Snip(Snip {
            turns: Vec::new(),
            messages,
            blocks: Vec::new(),
            reason: "removed in the transcript".into(),
            trigger: Trigger::Model,
            expected_revision: None,
            request: None,
        }));
    }
}
