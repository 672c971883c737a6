//! The spans of a session: the staged ones, and the collapsed ones with their placeholders.

use crate::event::{Placeholder, Span};
use std::collections::BTreeMap;

use crate::ids::{Ordinal, Revision, SpanKey};

/// The staged and collapsed spans of a session.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Spans {
    staged: Vec<Span>,
    armed: bool,
    pass_tokens: u64,
    placeholders: BTreeMap<SpanKey, (Revision, Placeholder)>,
    next: u32,
}

impl Spans {
    /// Rebuilds the spans from a snapshot.
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

    /// Returns the staged spans, in the order of the transcript.
    pub fn staged(&self) -> &[Span] {
        &self.staged
    }

    /// Returns true if the staged spans are collapsed automatically when the view reaches its threshold.
    pub fn armed(&self) -> bool {
        self.armed
    }

    /// Returns the tokens of the view at the time of staging, or the smallest size since then.
    pub fn pass_tokens(&self) -> u64 {
        self.pass_tokens
    }

    /// Returns the placeholder of a span.
    pub fn placeholder(&self, key: SpanKey) -> Option<&Placeholder> {
        self.placeholders.get(&key).map(|(_, one)| one)
    }

    /// Returns the revision at which a span was collapsed.
    pub fn collapsed_at(&self, key: SpanKey) -> Option<Revision> {
        self.placeholders.get(&key).map(|(at, _)| *at)
    }

    /// Iterates over all placeholders that were ever created, with the revision of each, in the order of span keys.
    pub fn placeholders(&self) -> impl ExactSizeIterator<Item = &(Revision, Placeholder)> {
        self.placeholders.values()
    }

    /// Returns the key of the next span.
    pub fn next_key(&self) -> SpanKey {
        SpanKey::new(self.next)
    }

    pub(crate) fn stage(&mut self, spans: &[Span], armed: bool, pass_tokens: u64) {
        self.staged = spans.to_vec();
        self.armed = armed;
        self.pass_tokens = pass_tokens;
        let last = spans.iter().map(|span| span.key.get() + 1).max();
        // Keys are never reused, so the counter only grows.
        self.next = self.next.max(last.unwrap_or(0));
    }

    /// Records placeholders and removes their spans from the staged ones.
    pub(crate) fn collapse(&mut self, at: Revision, placeholders: &[Placeholder]) {
        for one in placeholders {
            self.staged.retain(|span| span.key != one.span.key);
            self.next = self.next.max(one.span.key.get() + 1);
            self.placeholders.insert(one.span.key, (at, one.clone()));
        }
    }

    /// Removes the staged spans with a summary of a model that describes one of these messages.
    pub(crate) fn forget_written(&mut self, messages: impl Fn(Ordinal) -> bool) {
        self.staged.retain(|span| {
            span.model.is_empty() || !span.messages.iter().any(|message| messages(*message))
        });
    }

    /// Lowers the base from which growth counts, because the view became smaller.
    pub(crate) fn lower_pass_tokens(&mut self, tokens: u64) {
        self.pass_tokens = self.pass_tokens.min(tokens);
    }
}
