//! What there is to see: the numbers as the service told them last, and what happened.

use std::collections::VecDeque;

use palimpsest_core::policy::Prices;
use palimpsest_proto::context::v1::{Budget, SessionMemory, TokenBreakdown};

use super::player::RequestTotals;
use super::timeline::TimelineEntry;

/// How many lines of what happened are kept: more than any terminal shows.
const MAX_TIMELINE: usize = 500;

/// Everything that a frame is drawn from.
#[derive(Debug, Clone)]
pub(super) struct Picture {
    pub(super) seed: u64,
    /// How many requests there will be, and how many times a person speaks.
    pub(super) requests: usize,
    pub(super) asks: usize,
    /// How many times a person has spoken.
    pub(super) asked: usize,
    pub(super) messages: usize,
    pub(super) budget: Budget,
    pub(super) breakdown: TokenBreakdown,
    /// The session with the levels.
    pub(super) with: RequestTotals,
    /// The same messages without them.
    pub(super) without: RequestTotals,
    /// The request of `with` that each request of `without` belongs to.
    pub(super) without_at: Vec<usize>,
    pub(super) timeline: VecDeque<TimelineEntry>,
    pub(super) memory: SessionMemory,
    pub(super) prices: Prices,
    /// Who speaks, and what is said.
    pub(super) now: (&'static str, String),
    /// All of it was played.
    pub(super) done: bool,
    /// What was found at the end.
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

    pub(super) fn add(&mut self, happened: TimelineEntry) {
        if self.timeline.len() == MAX_TIMELINE {
            self.timeline.pop_front();
        }
        self.timeline.push_back(happened);
    }

    /// What both cost, in uncached tokens, and the one as a share of the other in thousandths.
    pub(super) fn costs(&self) -> (u64, u64, u64) {
        let with = self.with.split.cost_milli(&self.prices);
        let without = self.without.split.cost_milli(&self.prices);
        let share = with
            .saturating_mul(1_000)
            .checked_div(without)
            .unwrap_or(1_000);
        (with / 1_000, without / 1_000, share)
    }
}
