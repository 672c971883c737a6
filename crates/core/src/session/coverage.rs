//! The messages that session memory covers, and the messages that its next update may read.

use super::session_memory::{MemoryGrowth, MemoryVersion};
use super::{AwaitedParty, Session};
use crate::event::CallState;
use crate::ids::Ordinal;
use crate::message::{MessageKind, Role};

/// The part of the conversation that session memory does not cover yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryLag {
    /// Number of messages.
    pub messages: u32,
    /// Estimated tokens of these messages, before calibration.
    pub tokens: u64,
}

impl Session {
    /// Returns the last message that an update may read now. A round with open calls is left to the next update, so
    /// that a result is never read apart from its call. A recorded response is read after its confirmation.
    pub fn memory_readable_through(&self) -> Option<Ordinal> {
        let recorded = self.array.responses.iter().flatten();
        let first_recorded = recorded.map(|item| item.message).min();
        let end = first_recorded.unwrap_or(self.transcript.next());
        let last = Ordinal::new(end.get().checked_sub(1)?);
        if self.info.awaits != AwaitedParty::Tools {
            return Some(last);
        }
        let begin = self.turn_start(last);
        let open = |at: Ordinal| {
            let mut calls = self.calls.of(at);
            calls.any(|(_, call)| call.state == CallState::Open)
        };
        let first = (begin..=last.get()).map(Ordinal::new).find(|at| open(*at));
        let first = first.unwrap_or(last);
        // A response may span several messages: thinking and text precede its calls. All of them are left out.
        let is_fragment = |at: &Ordinal| {
            let entry = self.transcript.get(*at);
            entry.is_some_and(|entry| entry.role == Role::Assistant)
        };
        let before = (0..first.get()).rev().map(Ordinal::new);
        before.skip_while(is_fragment).map(Some).next().flatten()
    }

    /// Returns true if session memory describes messages that left the view. Session memory then cannot replace the
    /// conversation until its next update.
    pub fn is_memory_stale(&self) -> bool {
        let version = self.memory.version.as_ref();
        version.is_some_and(|version| {
            let left = |at: Option<Ordinal>| at.is_some_and(|at| !self.is_in_view(at));
            left(version.covered_through) || left(version.read_through)
        })
    }

    /// Returns true if session memory describes messages that were rewound or snipped. Messages that a compaction
    /// replaced still count as true.
    pub fn is_memory_invalidated(&self) -> bool {
        let version = self.memory.version.as_ref();
        version.is_some_and(|version| {
            let gone = |at: Option<Ordinal>| {
                let entry = at.and_then(|at| self.transcript.get(at));
                entry.is_some_and(|entry| !entry.visibility.is_in_effect())
            };
            gone(version.covered_through) || gone(version.read_through)
        })
    }

    /// Returns the version of session memory that can replace messages in a compaction.
    pub(crate) fn memory_for_compaction(&self) -> Option<&MemoryVersion> {
        let written = self.memory.latest_written();
        // If the covered message left the view, the text describes nothing in the view.
        let usable = written.filter(|version| {
            let covers = version.covered_through;
            covers.is_some_and(|covers| self.transcript.is_in_view(covers))
        });
        usable.filter(|_| self.policy.session_memory.enabled)
    }

    /// Returns the lag: the messages after the last one that session memory covers, or all messages if it covers none.
    pub fn memory_lag(&self) -> MemoryLag {
        let covers = self
            .memory
            .version
            .as_ref()
            .and_then(|it| it.covered_through);
        let mut behind = MemoryLag::default();
        for (_, entry) in self.conversation_after(covers) {
            behind.messages += 1;
            behind.tokens += u64::from(entry.size.tokens);
        }
        behind
    }

    /// Iterates over the ordinary messages of the view after `last`, latest first.
    fn conversation_after(
        &self,
        last: Option<Ordinal>,
    ) -> impl Iterator<Item = (Ordinal, &super::transcript::TranscriptEntry)> {
        let entries = self.transcript.entries().rev();
        entries
            .take_while(move |(at, _)| last.is_none_or(|last| *at > last))
            .filter(|(_, entry)| {
                entry.visibility.is_in_view() && entry.kind == MessageKind::Ordinary
            })
    }

    /// Returns the coverage of a text that was written from all messages up to `read`. The coverage never separates a
    /// call from its result, so it stays at `before` while a call is open.
    pub(crate) fn memory_coverage(
        &self,
        read: Option<Ordinal>,
        before: Option<Ordinal>,
    ) -> Option<Ordinal> {
        let Some(read) = read else {
            return before;
        };
        if self.info.awaits == AwaitedParty::Tools || self.is_answered_after(read) {
            return before;
        }
        let read = (0..=read.get()).rev().map(Ordinal::new);
        let last = read.take_while(|at| before.is_none_or(|before| *at > before));
        // The last message that was read can be hidden, and only a message of the view can be the coverage of a
        // compaction.
        let last = last.into_iter().find(|at| self.is_in_view(*at));
        let stands = before.filter(|before| self.is_in_view(*before));
        last.or(stands).or_else(|| {
            // The covered message itself left the view. The coverage moves back to the last remaining message.
            let earlier = (0..before?.get()).rev().map(Ordinal::new);
            earlier.into_iter().find(|at| self.is_in_view(*at))
        })
    }

    /// Returns true if a call in the turn of `read` is open or has its result after `read`.
    fn is_answered_after(&self, read: Ordinal) -> bool {
        let begin = self.turn_start(read);
        (begin..=read.get()).map(Ordinal::new).any(|at| {
            let mut calls = self.calls.of(at);
            calls.any(|(_, call)| match call.state {
                CallState::Open => true,
                CallState::Interrupted | CallState::Gone => false,
                CallState::Answered { message, .. } | CallState::Late { message, .. } => {
                    message > read
                }
            })
        })
    }

    fn turn_start(&self, at: Ordinal) -> u32 {
        let starts = self.turns.starts();
        let turns = starts.partition_point(|start| *start <= at);
        starts[..turns].last().map_or(0, |start| start.get())
    }

    fn is_in_view(&self, at: Ordinal) -> bool {
        let entry = self.transcript.get(at);
        entry.is_some_and(|entry| entry.visibility.is_in_view())
    }

    /// Returns the growth since the message `read`, in tokens and calls.
    pub(super) fn memory_growth(&self, read: Option<Ordinal>) -> MemoryGrowth {
        let tokens = self
            .conversation_after(read)
            .map(|(_, entry)| entry.size.tokens);
        let calls = self.calls.iter().rev();
        let calls = calls.take_while(|(_, call)| read.is_none_or(|read| call.message > read));
        MemoryGrowth {
            tokens: tokens.map(u64::from).sum(),
            calls: crate::view::count(calls.count()),
        }
    }

    /// Advances the coverage to the last message that was read, once no call is open.
    pub(super) fn advance_memory_coverage(&mut self) {
        let Some(version) = &self.memory.version else {
            return;
        };
        let (read, covers) = (version.read_through, version.covered_through);
        // Nothing to advance, or the message that was read left the view.
        if read == covers || read.is_none_or(|read| !self.is_in_view(read)) {
            return;
        }
        let mark = self.memory_coverage(read, covers);
        if let Some(version) = &mut self.memory.version {
            version.covered_through = mark;
        }
    }
}
