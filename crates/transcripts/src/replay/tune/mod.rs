//! The cost and the recall of a policy on a recorded session, and the lowest cost in hindsight.

mod optimum;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use palimpsest_core::ids::Timestamp;
use palimpsest_core::policy::{Policy, WindowHint};
use palimpsest_core::view::Provider;

use super::driver::{Driver, agent_options, replay};
use super::prefix_cache::{PrefixCache, TokenSplit};
use super::recall::{UseCounter, UseCounts};
use super::recorded_session::RecordedSession;

pub use optimum::{CompactionModel, lowest_cost_milli};

/// A request to the provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SentRequest {
    /// The time.
    pub at: Timestamp,
    /// The size in tokens.
    pub tokens: u64,
}

/// The result of one policy on one session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyRun {
    /// The requests in order.
    pub requests: Vec<SentRequest>,
    /// The tokens of all requests by cache usage.
    pub token_split: TokenSplit,
    /// The parts of the earlier conversation that tool calls used.
    pub uses: UseCounts,
    /// The sizes of the first requests after compactions, in tokens.
    pub compacted_tokens: Vec<u64>,
}

/// Replays a session under a policy.
pub fn run_policy(
    tape: &RecordedSession,
    provider: Provider,
    policy: &Arc<Policy>,
    window: WindowHint,
) -> PolicyRun {
    let setup = agent_options(tape, provider, Arc::clone(policy), window);
    let mut run = PolicyRun::default();
    let mut cache = PrefixCache::default();
    let mut uses = UseCounter::default();
    let driver = replay(tape, setup, |driver: &Driver, look| {
        if !look.sendable {
            return;
        }
        uses.view_sent(driver);
        let tokens = |part: &[_]| driver.caller.tokens(part, driver.calibration);
        let split = cache.send(driver.caller.flat(), driver.now, tokens);
        if driver.counters.compactions.len() > run.compacted_tokens.len() {
            run.compacted_tokens.push(split.total());
        }
        run.token_split.add(split);
        run.requests.push(SentRequest {
            at: driver.now,
            tokens: split.total(),
        });
    });
    run.uses = uses.finish(&driver);
    run
}

impl PolicyRun {
    /// Adds the result of another session.
    pub fn add(&mut self, other: Self) {
        self.requests.extend(other.requests);
        self.token_split.add(other.token_split);
        self.uses.add(other.uses);
        self.compacted_tokens.extend(other.compacted_tokens);
    }

    /// Returns the average size of the first request after a compaction, in tokens. `None` without a compaction.
    pub fn mean_compacted_tokens(&self) -> Option<u64> {
        let sum: u64 = self.compacted_tokens.iter().sum();
        sum.checked_div(self.compacted_tokens.len() as u64)
    }

    /// Returns the average size of a request, in tokens.
    pub fn mean_view_tokens(&self) -> u64 {
        let requests = self.requests.len() as u64;
        self.token_split.total().checked_div(requests).unwrap_or(0)
    }

    /// Returns the size of the largest request, in tokens.
    pub fn largest_view_tokens(&self) -> u64 {
        let sizes = self.requests.iter().map(|request| request.tokens);
        sizes.max().unwrap_or(0)
    }
}
