//! Totals over the model requests of a session, for lists of sessions.

/// Totals over the model requests of a session, and the size of its view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SessionTotals {
    /// Number of answered requests.
    pub requests: u64,
    /// The sum of the tokens of these requests.
    pub sent_tokens: u64,
    /// Total tokens that answered requests saved, because the levels made them smaller.
    pub saved_tokens: u64,
    /// Total tokens that answered requests had to write to the prompt cache again, because the levels changed the view.
    pub rewritten_tokens: u64,
    /// Total prompt tokens that providers reported as read from the cache.
    pub cache_read_tokens: u64,
    /// Total prompt tokens that providers reported as written to the cache.
    pub cache_write_tokens: u64,
    /// Total prompt tokens that providers reported as neither read from the cache nor written to it.
    pub uncached_tokens: u64,
    /// Total cost of the prompts of answered requests, in thousandths of the price of an uncached token.
    pub cost: u64,
    /// The total cost of the same prompts without the levels.
    pub unmanaged_cost: u64,
    /// Number of compactions, including those that were undone.
    pub compactions: u32,
    /// Tokens of the view after the last event.
    pub view_tokens: u64,
    /// The context window of the last serving. 0 before the first.
    pub window_tokens: u64,
    /// The threshold at which a compaction is due. 0 before the first serving.
    pub compact_at_tokens: u64,
}

impl SessionTotals {
    /// Returns true if the view has reached the threshold at which a compaction is due.
    pub fn is_over_threshold(&self) -> bool {
        self.compact_at_tokens > 0 && self.view_tokens >= self.compact_at_tokens
    }

    /// Adds the totals of another session. The tokens of the view become those of the larger view. The window and the
    /// threshold stay as they are.
    pub fn add(&mut self, other: &Self) {
        self.requests = self.requests.saturating_add(other.requests);
        self.sent_tokens = self.sent_tokens.saturating_add(other.sent_tokens);
        self.saved_tokens = self.saved_tokens.saturating_add(other.saved_tokens);
        self.rewritten_tokens = self.rewritten_tokens.saturating_add(other.rewritten_tokens);
        self.cache_read_tokens = self
            .cache_read_tokens
            .saturating_add(other.cache_read_tokens);
        self.cache_write_tokens = self
            .cache_write_tokens
            .saturating_add(other.cache_write_tokens);
        self.uncached_tokens = self.uncached_tokens.saturating_add(other.uncached_tokens);
        self.cost = self.cost.saturating_add(other.cost);
        self.unmanaged_cost = self.unmanaged_cost.saturating_add(other.unmanaged_cost);
        self.compactions = self.compactions.saturating_add(other.compactions);
        self.view_tokens = self.view_tokens.max(other.view_tokens);
    }
}
