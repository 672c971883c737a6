//! An earlier state of a session with the messages that came since, as if nothing else had happened.

use super::calls::{Call, CallState};
use super::{Session, Standing};
use crate::ids::Ordinal;

impl Session {
    /// This session, which is an earlier state of `now`, with what was appended since. Messages that
    /// have left the view since they came stay away.
    pub(crate) fn with_later(mut self, now: &Self) -> Self {
        self.stored = now.stored.clone();
        for (ordinal, entry) in now.transcript.entries().skip(self.transcript.len()) {
            let visible = entry.standing == Standing::Visible;
            self.transcript.push_with(entry.clone(), None);
            if now.turns.beginning_at(ordinal).is_some() {
                self.turns.begin(ordinal);
            }
            self.take_calls(now, ordinal, visible);
            if let Some(message) = entry.content.clone().filter(|_| visible) {
                self.answer(ordinal, &message);
            }
        }
        self
    }

    /// The calls of a message, with the keys that they have.
    fn take_calls(&mut self, now: &Self, message: Ordinal, visible: bool) {
        for (_, call) in now.calls.of(message) {
            self.calls.restore_call(Call {
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
