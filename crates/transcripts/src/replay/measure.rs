//! Measurement of a policy on a transcript: tokens, cost and retained facts.

use std::collections::BTreeMap;
use std::sync::Arc;

use palimpsest_core::policy::{Policy, WindowHint};
use palimpsest_core::validate::Violation;
use palimpsest_core::view::Provider;

use super::compaction::ReplayCompaction;
use super::driver::{Driver, REWIND_REQUEST, agent_options, replay};
use super::prefix_cache::{PrefixCache, TokenSplit};
use super::probe_kind::ProbeKind;
use super::probes::{LostProbe, ProbeCounts, Probes};
use super::recorded_session::RecordedSession;
use super::survival::Survival;
use crate::import::ImportDefect;

/// The results of one or more replayed sessions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplayMetrics {
    /// The number of sessions.
    pub sessions: usize,
    /// The number of prepared views.
    pub prepares: usize,
    /// The number of sendable views. All of them were sent.
    pub sendable: usize,
    /// The number of view-changing events by trigger.
    pub changes: BTreeMap<&'static str, usize>,
    /// The number of results that level 1 stored.
    pub stored: usize,
    /// The number of results that level 3 cleared.
    pub cleared: usize,
    /// The number of messages that level 4 collapsed.
    pub collapsed: usize,
    /// Sendable views that are invalid: the line, and the violation that a provider would report.
    pub invalid: Vec<(usize, Violation)>,
    /// Lines after which the view did not continue the previous one without a view-changing event.
    pub prefix_breaks: Vec<usize>,
    /// Lines after which a caller's array differed from the complete view.
    pub delta_breaks: Vec<usize>,
    /// The tokens of all sent views.
    pub token_split: TokenSplit,
    /// The size of the largest sent view, in tokens.
    pub largest_view: u64,
    /// The size of each sent view in order, in tokens. Only for a single session.
    pub view_tokens: Vec<u64>,
    /// The indexes in `view_tokens` of the first views after compactions.
    pub compacted_at: Vec<usize>,
    /// The outcome of the probes, by kind.
    pub probes: BTreeMap<ProbeKind, ProbeCounts>,
    /// The facts that the model could neither see nor find, in the last sent view or at the end.
    pub lost: Vec<LostProbe>,
    /// Messages that could not be decoded or were rejected.
    pub defects: Vec<ImportDefect>,
    /// The compactions in order.
    pub compactions: Vec<ReplayCompaction>,
}

impl ReplayMetrics {
    /// Returns true if all guarantees held.
    pub fn is_ok(&self) -> bool {
        self.violation_count() == 0
    }

    /// Returns the number of violated guarantees.
    pub fn violation_count(&self) -> usize {
        let views = self.invalid.len() + self.prefix_breaks.len() + self.delta_breaks.len();
        views + self.lost.len() + self.lost_requests().count()
    }

    /// Returns the compactions after which the view no longer contained the latest user input
    /// verbatim.
    pub fn lost_requests(&self) -> impl Iterator<Item = &ReplayCompaction> {
        let all = self.compactions.iter();
        all.filter(|compaction| !compaction.keeps_latest)
    }

    /// Returns the facts that survived all compactions, by kind.
    pub fn survival(&self) -> Survival {
        let mut all = Survival::default();
        for compaction in &self.compactions {
            all.add(&compaction.survival);
        }
        all
    }

    /// Returns the number of view-changing events that levels caused.
    pub fn level_changes(&self) -> usize {
        let by_levels = self
            .changes
            .iter()
            .filter(|(trigger, _)| **trigger != REWIND_REQUEST);
        by_levels.map(|(_, count)| count).sum()
    }

    /// Returns the outcome of all probes.
    pub fn probe_totals(&self) -> ProbeCounts {
        let mut all = ProbeCounts::default();
        for of_kind in self.probes.values() {
            all.add(*of_kind);
        }
        all
    }

    /// Adds the results of another session, except its curve.
    pub fn add(&mut self, other: &Self) {
        self.sessions += other.sessions;
        self.prepares += other.prepares;
        self.sendable += other.sendable;
        self.stored += other.stored;
        self.cleared += other.cleared;
        self.collapsed += other.collapsed;
        for (trigger, count) in &other.changes {
            *self.changes.entry(trigger).or_default() += count;
        }
        self.invalid.extend_from_slice(&other.invalid);
        self.prefix_breaks.extend_from_slice(&other.prefix_breaks);
        self.delta_breaks.extend_from_slice(&other.delta_breaks);
        self.token_split.add(other.token_split);
        self.largest_view = self.largest_view.max(other.largest_view);
        for (kind, retained) in &other.probes {
            self.probes.entry(*kind).or_default().add(*retained);
        }
        self.lost.extend_from_slice(&other.lost);
        self.defects.extend_from_slice(&other.defects);
        self.compactions.extend_from_slice(&other.compactions);
    }
}

/// Replays one session for one provider and a model of this size under a policy, and measures the results.
pub fn measure(
    tape: &RecordedSession,
    provider: Provider,
    policy: &Arc<Policy>,
    window: WindowHint,
) -> ReplayMetrics {
    let setup = agent_options(tape, provider, Arc::clone(policy), window);
    let mut measured = ReplayMetrics::default();
    let mut cache = PrefixCache::default();
    let mut probes = Probes::default();
    let mut compactions = 0;
    let driver = replay(tape, setup, |driver: &Driver, look| {
        let line = driver.line;
        measured.prepares += 1;
        if !look.matches_full {
            measured.delta_breaks.push(line);
        }
        if !look.extends_previous {
            measured.prefix_breaks.push(line);
        }
        let found = look.violations.into_iter();
        measured.invalid.extend(found.map(|found| (line, found)));
        // The probes follow every prepared view, because a view-changing event moves their
        // locations.
        probes.update_locations(driver);
        if look.sendable {
            measured.send(driver, &mut cache, &mut compactions);
            probes.view_sent(driver);
        }
    });
    (measured.probes, measured.lost) = probes.finish(&driver);
    let tally = driver.counters;
    ReplayMetrics {
        sessions: 1,
        changes: tally.changes,
        stored: tally.stored,
        cleared: tally.cleared,
        collapsed: tally.collapsed,
        defects: tally.defects,
        compactions: tally.compactions,
        ..measured
    }
}

impl ReplayMetrics {
    fn send(&mut self, driver: &Driver, cache: &mut PrefixCache, compactions: &mut usize) {
        let calibration = driver.calibration;
        let tokens = |part: &[_]| driver.caller.tokens(part, calibration);
        let split = cache.send(driver.caller.flat(), driver.now, tokens);
        self.sendable += 1;
        if driver.counters.compactions.len() > *compactions {
            *compactions = driver.counters.compactions.len();
            self.compacted_at.push(self.view_tokens.len());
        }
        self.token_split.add(split);
        self.largest_view = self.largest_view.max(split.total());
        self.view_tokens.push(split.total());
    }
}
