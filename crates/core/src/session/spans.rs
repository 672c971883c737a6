//! The spans of a session: those for which a summary is ready, and those that one stands for.

use crate::event::{Placeholder, Span};
use std::collections::BTreeMap;

use crate::ids::{Revision, SpanKey};

/// The spans of a session.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Spans {
    staged: Vec<Span>,
    armed: bool,
    pass_tokens: u64,
    placeholders: BTreeMap<SpanKey, (Revision, Placeholder)>,
    next: u32,
}

impl Spans {
    /// Puts them together again from what a snapshot holds.
    pub fn restore(
        staged: Vec<Span>,
        armed: bool,
        pass_tokens: u64,
        placeholders: Vec<(Revision, Placeholder)>,
        next: u32,
    ) -> Self {
        let by_key = placeholders.into_iter();
        let by_key = by_key.map(|(at, one)| (one.span.key, (at, one)));
        Self {
            staged,
            armed,
            pass_tokens,
            placeholders: by_key.collect(),
            next,
        }
    }

    /// Those that a summary may stand for, in the order of the transcript.
    pub fn staged(&self) -> &[Span] {
        &self.staged
    }

    /// Whether they take effect when the view has grown large enough.
    pub fn armed(&self) -> bool {
        self.armed
    }

    /// The tokens of the view when they were chosen, or what was left of it since.
    pub fn pass_tokens(&self) -> u64 {
        self.pass_tokens
    }

    /// What stands in the place of a span.
    pub fn placeholder(&self, key: SpanKey) -> Option<&Placeholder> {
        self.placeholders.get(&key).map(|(_, one)| one)
    }

    /// The event that put it there.
    pub fn folded_at(&self, key: SpanKey) -> Option<Revision> {
        self.placeholders.get(&key).map(|(at, _)| *at)
    }

    /// Everything that ever stood in the place of a span, with the event that put it there, in the order
    /// in which they were chosen.
    pub fn placeholders(&self) -> impl ExactSizeIterator<Item = &(Revision, Placeholder)> {
        self.placeholders.values()
    }

    /// The key that the next span will have.
    pub fn next(&self) -> SpanKey {
        SpanKey::new(self.next)
    }

    pub(crate) fn stage(&mut self, spans: &[Span], armed: bool, pass_tokens: u64) {
        self.staged = spans.to_vec();
        self.armed = armed;
        self.pass_tokens = pass_tokens;
        let last = spans.iter().map(|span| span.key.get() + 1).max();
        self.next = self.next.max(last.unwrap_or(0));
    }

    /// Placeholders stand from now on, and their spans are not staged any more.
    pub(crate) fn collapse(&mut self, at: Revision, placeholders: &[Placeholder]) {
        for one in placeholders {
            self.staged.retain(|span| span.key != one.span.key);
            self.next = self.next.max(one.span.key.get() + 1);
            self.placeholders.insert(one.span.key, (at, one.clone()));
        }
    }

    /// The view has shrunk: growth counts from what is left of it.
    pub(crate) fn shrunk(&mut self, tokens: u64) {
        self.pass_tokens = self.pass_tokens.min(tokens);
    }
}
