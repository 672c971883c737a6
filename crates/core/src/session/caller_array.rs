//! Applies events to the array that a caller has, and to the responses that are recorded for it.

use super::Session;
use crate::array::shown_items;
use crate::event::{AppendedMessage, ArraySynced, ResultSize, Visibility};
use crate::ids::Ordinal;
use crate::levels::results::result_chars;
use crate::message::{Block, Message};
use crate::tokens::is_credible;

impl Session {
    pub(super) fn array_synced(&mut self, event: &ArraySynced) {
        for confirmed in &event.confirmed {
            self.confirm(*confirmed);
        }
        self.drop_responses();
        self.array.synced(event);
        if let Some(tip) = event.tip {
            self.tips.push(tip);
        }
    }

    /// Makes a message of a recorded response visible.
    fn confirm(&mut self, ordinal: Ordinal) {
        // The decision was made with the content in memory, and a load reads the contents of recorded responses.
        let Some(message) = self.transcript.content(ordinal).cloned() else {
            return;
        };
        let size = self.transcript.get(ordinal).map(|entry| entry.size);
        self.transcript.set_visibility(ordinal, Visibility::Visible);
        self.transcript.index_blocks(ordinal, &message);
        self.register_calls(ordinal, &message, true);
        // Calls that a gateway ran itself have their results in the response.
        let results = self.result_sizes(&message);
        // The reported tokens were added when the response was recorded.
        self.show(ordinal, &message, size.unwrap_or_default(), &results);
    }

    /// Returns the sizes of the results in a message.
    fn result_sizes(&self, message: &Message) -> Vec<ResultSize> {
        let blocks = (0_u16..).zip(&message.blocks);
        let results = blocks.filter_map(|(block, content)| match content {
            Block::ToolResult(result) => Some(ResultSize {
                block,
                chars: result_chars(result),
                tokens: self.counter().result(result),
            }),
            _ => None,
        });
        results.collect()
    }

    /// Leaves the recorded responses in the transcript for the record only.
    pub(super) fn drop_responses(&mut self) {
        for item in std::mem::take(&mut self.array.responses)
            .into_iter()
            .flatten()
        {
            let entry = self.transcript.get(item.message);
            // `array_synced` confirms messages before it drops the rest. The confirmed messages are visible and stay
            // so.
            if entry.is_some_and(|entry| entry.visibility == Visibility::Unconfirmed) {
                self.transcript
                    .set_visibility(item.message, Visibility::TranscriptOnly);
            }
        }
    }

    /// Adds the unconfirmed messages of one append to the array, as one response.
    pub(super) fn record_unconfirmed(&mut self, first: Ordinal, appended: &[AppendedMessage]) {
        let ordinals = (first.get()..).map(Ordinal::new);
        let items = appended.iter().zip(ordinals);
        let items = items.filter(|(one, _)| one.visibility == Visibility::Unconfirmed);
        let response: Vec<_> = items.map(|(one, at)| (at, &*one.message)).collect();
        let items = shown_items(&response);
        if items.is_empty() {
            return;
        }
        let usage = appended.iter().filter_map(|one| one.message.usage);
        let window = self.thresholds().window;
        let usage = usage.filter(|usage| is_credible(usage, window));
        // Each fragment reports the usage of the whole response so far, so the largest report covers all of them.
        self.add_reported_tokens(usage.map(|usage| usage.total_tokens()).max().unwrap_or(0));
        let evicted = self.array.record(items);
        for item in evicted {
            self.transcript
                .set_visibility(item.message, Visibility::TranscriptOnly);
        }
    }
}
