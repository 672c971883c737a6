//! How far the running summary covers the session, and how far the next version of it may read.

use super::session_memory::Since;
use super::{Session, WaitsFor};
use crate::event::CallState;
use crate::ids::Ordinal;
use crate::message::{MessageKind, Role};

/// What came after the last message that the running summary covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryLag {
    /// Messages.
    pub messages: u32,
    /// Their estimated tokens, before calibration.
    pub tokens: u64,
}

impl Session {
    /// The last message that an update may read now: a round whose calls wait for results is left to
    /// the next one, so that no result is read apart from its call.
    pub fn memory_reach(&self) -> Option<Ordinal> {
        let last = Ordinal::new(self.transcript.next().get().checked_sub(1)?);
        if self.about.waits_for != WaitsFor::Tools {
            return Some(last);
        }
        let begin = self.turn_start(last);
        let open = |at: Ordinal| {
            let mut calls = self.calls.of(at);
            calls.any(|(_, call)| call.state == CallState::Open)
        };
        let first = (begin..=last.get()).map(Ordinal::new).find(|at| open(*at));
        let first = first.unwrap_or(last);
        // The response has its thoughts and its words before its calls.
        let is_fragment = |at: &Ordinal| {
            let entry = self.transcript.get(*at);
            entry.is_some_and(|entry| entry.role == Role::Assistant)
        };
        let before = (0..first.get()).rev().map(Ordinal::new);
        before.skip_while(is_fragment).map(Some).next().flatten()
    }

    /// Whether the running summary speaks of messages that have left the view: it cannot stand for the
    /// conversation before the next update.
    pub fn memory_is_stale(&self) -> bool {
        let version = self.memory.version.as_ref();
        version.is_some_and(|version| {
            let left = |at: Option<Ordinal>| at.is_some_and(|at| !self.takes_part(at));
            left(version.covers) || left(version.read)
        })
    }

    /// Whether the running summary speaks of messages that were taken back: rewound or snipped. What a
    /// compaction has replaced was not taken back.
    pub fn memory_is_false(&self) -> bool {
        let version = self.memory.version.as_ref();
        version.is_some_and(|version| {
            let gone = |at: Option<Ordinal>| {
                let entry = at.and_then(|at| self.transcript.get(at));
                entry.is_some_and(|entry| !entry.standing.holds())
            };
            gone(version.covers) || gone(version.read)
        })
    }

    /// What came after the last message that the running summary covers; all there is when it covers
    /// none.
    pub fn memory_behind(&self) -> MemoryLag {
        let covers = self.memory.version.as_ref().and_then(|it| it.covers);
        let mut behind = MemoryLag::default();
        for (_, entry) in self.after(covers) {
            behind.messages += 1;
            behind.tokens += u64::from(entry.size.tokens);
        }
        behind
    }

    /// The messages of the conversation after one that take part in the view, latest first.
    fn after(
        &self,
        last: Option<Ordinal>,
    ) -> impl Iterator<Item = (Ordinal, &super::transcript::TranscriptEntry)> {
        let entries = self.transcript.entries().rev();
        entries
            .take_while(move |(at, _)| last.is_none_or(|last| *at > last))
            .filter(|(_, entry)| entry.standing.takes_part() && entry.kind == MessageKind::Ordinary)
    }

    /// The mark of a text that was written from all up to `read`. It moves only while no call of the
    /// last response waits for its result, and never to between a call and its result.
    pub(crate) fn memory_mark(
        &self,
        read: Option<Ordinal>,
        before: Option<Ordinal>,
    ) -> Option<Ordinal> {
        let Some(read) = read else {
            return before;
        };
        if self.about.waits_for == WaitsFor::Tools || self.is_answered_after(read) {
            return before;
        }
        let read = (0..=read.get()).rev().map(Ordinal::new);
        let last = read.take_while(|at| before.is_none_or(|before| *at > before));
        let last = last.into_iter().find(|at| self.takes_part(*at));
        let stands = before.filter(|before| self.takes_part(*before));
        last.or(stands).or_else(|| {
            // The mark itself has left the view: it goes back to what is still there.
            let earlier = (0..before?.get()).rev().map(Ordinal::new);
            earlier.into_iter().find(|at| self.takes_part(*at))
        })
    }

    /// Whether a call of the turn that `read` stands in has its result after it, or none.
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

    fn takes_part(&self, at: Ordinal) -> bool {
        let entry = self.transcript.get(at);
        entry.is_some_and(|entry| entry.standing.takes_part())
    }

    /// What came since a text was written that read up to `read`.
    pub(super) fn memory_since(&self, read: Option<Ordinal>) -> Since {
        let tokens = self.after(read).map(|(_, entry)| entry.size.tokens);
        let calls = self.calls.iter().rev();
        let calls = calls.take_while(|(_, call)| read.is_none_or(|read| call.message > read));
        Since {
            tokens: tokens.map(u64::from).sum(),
            calls: crate::view::count(calls.count()),
        }
    }

    /// Lets the mark follow to where the text was read to, as soon as no call waits any more.
    pub(super) fn settle_memory_mark(&mut self) {
        let Some(version) = &self.memory.version else {
            return;
        };
        let (read, covers) = (version.read, version.covers);
        if read == covers || read.is_none_or(|read| !self.takes_part(read)) {
            return;
        }
        let mark = self.memory_mark(read, covers);
        if let Some(version) = &mut self.memory.version {
            version.covers = mark;
        }
    }
}
