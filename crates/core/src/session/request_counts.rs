//! Counts the model requests of a session, their tokens and the usage that providers report.

use super::{CompactionBoundary, Session};
use crate::ids::Ordinal;
use crate::message::{Message, Usage};
use crate::tokens::{PrefixTokens, RequestParts, TokenLedger, TokenSize};

impl Session {
    /// Returns the tokens of the next request by kind of content. Without a prefix, the last known sum counts as the
    /// system prompt.
    pub fn request_parts(&self, prefix: Option<PrefixTokens>) -> RequestParts {
        self.parts_of(&self.ledger, prefix)
    }

    /// Returns the parts of a request with the count of another state.
    pub(crate) fn parts_of(
        &self,
        ledger: &TokenLedger,
        prefix: Option<PrefixTokens>,
    ) -> RequestParts {
        let prefix = prefix.unwrap_or(PrefixTokens {
            system: self.last_served.overhead_tokens,
            tools: 0,
        });
        let total = ledger.count(prefix.total()).tokens;
        RequestParts::of(total, prefix, &ledger.all, ledger.calibration)
    }

    /// Returns the count of the view with other sizes of messages.
    pub(crate) fn ledger_with(
        &self,
        sizes: impl Iterator<Item = (Ordinal, TokenSize)>,
    ) -> TokenLedger {
        let mut ledger = self.ledger.clone();
        for (ordinal, size) in sizes {
            self.transcript.recount(&mut ledger, ordinal, size);
        }
        ledger
    }

    /// Returns the tokens by which the levels have made the next request smaller.
    pub fn saved_tokens(&self) -> u64 {
        self.ledger.calibration.apply(self.prompt_cache.saving)
    }

    /// Adds the served view to the totals when its first response arrives. A view that another one replaced before is
    /// no request.
    pub(super) fn count_request(&mut self) {
        // `take` counts each view once: a later fragment of its response finds no open request.
        let Some(tokens) = self.prompt_cache.open_request_tokens.take() else {
            return;
        };
        let totals = &mut self.info.totals;
        totals.requests += 1;
        totals.sent_tokens = totals.sent_tokens.saturating_add(tokens);
    }

    /// Adds the usage of a message. Must be called before the ledger reads the message.
    pub(super) fn count_usage(&mut self, message: &Message) {
        let Some(usage) = message.usage else {
            return;
        };
        // Each fragment of a response reports the usage of the whole response so far.
        let earlier = self.ledger.anchor.as_ref();
        let counted = earlier
            .filter(|earlier| earlier.is_continued_by(message))
            .map_or(Usage::default(), |earlier| earlier.usage);
        let totals = &mut self.info.totals;
        let add = |total: &mut u64, now: u64, before: u64| {
            // A fragment can report less than the one before it, and a total must not fall.
            *total = total.saturating_add(now.saturating_sub(before));
        };
        add(
            &mut totals.cache_read_tokens,
            usage.cache_read_tokens,
            counted.cache_read_tokens,
        );
        add(
            &mut totals.cache_write_tokens,
            usage.cache_write_tokens,
            counted.cache_write_tokens,
        );
        add(
            &mut totals.uncached_tokens,
            usage.input_tokens,
            counted.input_tokens,
        );
    }

    /// Computes the totals anew that follow from the rest of the state.
    pub(super) fn derive_totals(&mut self) {
        let boundaries: &[CompactionBoundary] = &self.compactions.boundaries;
        let compactions = crate::view::count(boundaries.len());
        let view_tokens = self.tokens().tokens;
        // Before the first serving, no caller has stated a model or a window.
        let thresholds = self.prompt_cache.since.is_some().then(|| self.thresholds());
        let totals = &mut self.info.totals;
        totals.compactions = compactions;
        totals.view_tokens = view_tokens;
        totals.saved_tokens = self.prompt_cache.total_saved;
        totals.rewritten_tokens = self.prompt_cache.total_invalidated;
        totals.cost = self.prompt_cache.costs.sent;
        totals.unmanaged_cost = self.prompt_cache.costs.unmanaged;
        if let Some(thresholds) = thresholds {
            totals.window_tokens = thresholds.window;
            totals.compact_at_tokens = thresholds.compact;
        }
    }
}
