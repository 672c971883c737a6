//! The state that is shown: the last figures of the service and the timeline.

use std::collections::VecDeque;

use palimpsest_core::policy::Prices;
use palimpsest_proto::context::v1::{Budget, SessionMemory, TokenBreakdown};

use super::player::RequestTotals;
use super::timeline::TimelineEntry;

/// The maximum number of timeline entries. No terminal shows as many.
const MAX_TIMELINE: usize = 500;

/// The data of a frame.
#[derive(Debug, Clone)]
pub(super) struct Picture {
    pub(super) seed: u64,
    /// The number of requests in the whole session.
    pub(super) requests: usize,
    /// The number of user turns in the whole session.
    pub(super) asks: usize,
    /// The number of user turns so far.
    pub(super) asked: usize,
    pub(super) messages: usize,
    pub(super) budget: Budget,
    pub(super) breakdown: TokenBreakdown,
    /// The figures of the session with the levels.
    pub(super) with: RequestTotals,
    /// The figures of the session with every level off.
    pub(super) without: RequestTotals,
    /// The request of `with` that corresponds to each request of `without`.
    pub(super) without_at: Vec<usize>,
    pub(super) timeline: VecDeque<TimelineEntry>,
    pub(super) memory: SessionMemory,
    pub(super) prices: Prices,
    /// The current message: its role and text.
    pub(super) now: (&'static str, String),
    /// True if the whole session was played.
    pub(super) done: bool,
    /// The results of the final checks.
    pub(super) verdict: String,
}

impl Picture {
    pub(super) fn new(seed: u64, requests: usize, asks: usize, prices: Prices) -> Self {
        Self {
            seed,
            requests,
            asks,
            asked: 0,
            messages: 0,
            budget: Budget::default(),
            breakdown: TokenBreakdown::default(),
            with: RequestTotals::default(),
            without: RequestTotals::default(),
            without_at: Vec::new(),
            timeline: VecDeque::new(),
            memory: SessionMemory::default(),
            prices,
            now: ("", String::new()),
            done: false,
            verdict: String::new(),
        }
    }

    pub(super) fn add(&mut self, entry: TimelineEntry) {
        if self.timeline.len() == MAX_TIMELINE {
            self.timeline.pop_front();
        }
        self.timeline.push_back(entry);
    }

    /// Returns the costs with and without the levels in uncached tokens, and their ratio in thousandths.
    pub(super) fn costs(&self) -> (u64, u64, u64) {
        let with = self.with.split.cost_milli(&self.prices);
        let without = self.without.split.cost_milli(&self.prices);
        // Before the first request, both costs are 0. The share is then 100 %.
        let share = with
            .saturating_mul(1_000)
            .checked_div(without)
            .unwrap_or(1_000);
        (with / 1_000, without / 1_000, share)
    }
}
