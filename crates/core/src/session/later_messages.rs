//! Rebuilds an earlier state of a session with the messages that were appended later. Used by undo.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::Session;
use super::calls::Call;
use crate::event::{CallState, Placeholder, Visibility};
use crate::ids::{MessageId, Ordinal};
use crate::message::Message;

/// The messages that became part of the conversation after an earlier state: those that were appended later, and
/// responses that were recorded before and confirmed later.
#[derive(Debug)]
pub(crate) struct LaterMessages {
    from: Ordinal,
    confirmed: Vec<Ordinal>,
}

impl LaterMessages {
    /// Compares an earlier state with the current one.
    pub(crate) fn between(past: &Session, now: &Session) -> Self {
        let recorded = past.array.responses.iter().flatten();
        let is_confirmed = |message: &Ordinal| {
            let entry = now.transcript.get(*message);
            entry.is_some_and(|entry| {
                !matches!(
                    entry.visibility,
                    Visibility::Unconfirmed | Visibility::TranscriptOnly
                )
            })
        };
        let confirmed = recorded.map(|item| item.message).filter(is_confirmed);
        Self {
            from: past.transcript.next(),
            confirmed: confirmed.collect(),
        }
    }

    /// Returns true if a message is one of them.
    pub(crate) fn contains(&self, message: Ordinal) -> bool {
        message >= self.from || self.confirmed.contains(&message)
    }
}

impl Session {
    /// Extends this earlier state of `now` by the messages that were appended since. Messages that left the view since
    /// then stay hidden, unless a compaction replaced them.
    pub(crate) fn with_later_messages(mut self, now: &Self, later: &[Arc<Message>]) -> Self {
        let later: HashMap<MessageId, &Arc<Message>> =
            later.iter().map(|message| (message.id, message)).collect();
        let sizes = now.calls.result_sizes();
        // An undo keeps the policy, stored results and spans: `ContextRestored` does not change them.
        self.policy = Arc::clone(&now.policy);
        self.stored_results = now.stored_results.clone();
        self.spans = now.spans.clone();
        let later_messages = LaterMessages::between(&self, now);
        // A response that is still not confirmed is not part of the view, then or now.
        for (ordinal, entry) in now.transcript.entries().take(self.transcript.len()) {
            if self.is_unconfirmed(ordinal) && !later_messages.contains(ordinal) {
                self.transcript.set_visibility(ordinal, entry.visibility);
            }
        }
        let mut seen = BTreeSet::new();
        for (ordinal, entry) in now.transcript.entries() {
            if !later_messages.contains(ordinal) {
                continue;
            }
            let mut entry = entry.clone();
            // Later compactions are undone. Their own messages are withdrawn, and the messages that they replaced
            // become visible again.
            if now.compactions.made_by(entry.revision).is_some() {
                entry.visibility = match entry.visibility {
                    Visibility::TranscriptOnly => Visibility::TranscriptOnly,
                    _ => Visibility::Withdrawn,
                };
                entry.content = None;
            } else if entry.visibility == Visibility::Compacted {
                entry.visibility = Visibility::Visible;
                // A response that was confirmed later was appended before, so the earlier state holds its content.
                let held = self.transcript.content(ordinal);
                let content = later.get(&entry.id).copied().or(held);
                entry.content = content.map(Arc::clone);
                if let Some(message) = &entry.content {
                    entry.size = now.counter_of(ordinal).message(message);
                }
            }
            let visible = entry.visibility == Visibility::Visible;
            if entry.visibility == Visibility::Collapsed {
                // The first remaining message of a collapsed span carries the placeholder's size.
                let holding = now.placeholder_of(ordinal);
                let first = holding.filter(|one| seen.insert(one.span.key));
                entry.size = first.map(Placeholder::size).unwrap_or_default();
            }
            let content = entry.content.clone();
            if ordinal < self.transcript.next() {
                self.transcript.replace(ordinal, entry);
            } else {
                // No re-emission key: this state is used only to compute the undo event.
                self.transcript.push_with(entry, None);
            }
            if now.turns.beginning_at(ordinal).is_some() {
                self.turns.begin(ordinal);
            }
            self.copy_calls(now, ordinal, visible);
            if let Some(message) = content.filter(|_| visible) {
                self.answer(ordinal, &message);
            }
        }
        // An undo can pair a result with another call. Sizes belong to the result's block, so they are copied by block.
        let calls: Vec<_> = self.calls.iter().map(|(call, _)| call).collect();
        for call in calls {
            self.calls.restore_result_size(call, &sizes);
        }
        self
    }

    fn is_unconfirmed(&self, message: Ordinal) -> bool {
        let entry = self.transcript.get(message);
        entry.is_some_and(|entry| entry.visibility == Visibility::Unconfirmed)
    }

    /// Copies the calls of a message. Their keys stay the same, because all calls are copied in order.
    fn copy_calls(&mut self, now: &Self, message: Ordinal, visible: bool) {
        for (_, call) in now.calls.of(message) {
            self.calls.restore_call(Call {
                // `answer` pairs visible calls with their results again, so they start as open.
                state: if visible {
                    CallState::Open
                } else {
                    CallState::Gone
                },
                ..call.clone()
            });
        }
    }
}
