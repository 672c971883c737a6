//! What a policy makes of a transcript: in tokens, in cost, and in what stays within the model's reach.

use std::collections::BTreeMap;
use std::sync::Arc;

use palimpsest_core::policy::Policy;
use palimpsest_core::validate::Violation;
use palimpsest_core::view::Provider;

use super::compaction::Compaction;
use super::driver::{Driver, REWOUND, calibration, drive};
use super::kinds::ProbeKind;
use super::prefix_cache::{PrefixCache, Split};
use super::probes::{LostProbe, ProbeCounts, Probes};
use super::recorded_session::RecordedSession;
use super::setup::{PrepareFrequency, Setup};
use super::survival::Survival;
use crate::import::ImportDefect;

/// What came of one session, or of several together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplayMetrics {
    /// How many sessions.
    pub sessions: usize,
    /// Views that were prepared.
    pub prepares: usize,
    /// Those of them that could be sent, and so were.
    pub sendable: usize,
    /// View-changing events, by what made them.
    pub changes: BTreeMap<&'static str, usize>,
    /// Results that level 1 stored.
    pub stored: usize,
    /// Results that level 3 cleared.
    pub cleared: usize,
    /// Messages that level 4 folded.
    pub folded: usize,
    /// Views that could be sent and should not have been: the line, and what the provider would say.
    pub invalid: Vec<(usize, Violation)>,
    /// Lines after which the view did not continue the one before, though nothing had changed it.
    pub prefix_breaks: Vec<usize>,
    /// Lines after which a caller's array was not the whole view.
    pub delta_breaks: Vec<usize>,
    /// The tokens of everything that was sent.
    pub split: Split,
    /// The largest view that was sent, in tokens.
    pub largest_view: u64,
    /// The tokens of each view that was sent, in order; of one session alone.
    pub curve: Vec<u64>,
    /// Where in the curve compactions took effect: the places of the views that came after them.
    pub compacted_at: Vec<usize>,
    /// What became of the probes by the end.
    pub probes: BTreeMap<ProbeKind, ProbeCounts>,
    /// Those that the model can neither see nor find, at the last view that was sent or at the end.
    pub lost: Vec<LostProbe>,
    /// What could not be decoded, or was refused.
    pub defects: Vec<ImportDefect>,
    /// The compactions, in order.
    pub compactions: Vec<Compaction>,
}

impl ReplayMetrics {
    /// Whether every promise was kept.
    pub fn holds(&self) -> bool {
        self.broken() == 0
    }

    /// How many promises were not.
    pub fn broken(&self) -> usize {
        let views = self.invalid.len() + self.prefix_breaks.len() + self.delta_breaks.len();
        views + self.lost.len() + self.forgotten().count()
    }

    /// Compactions after which what the user said last was not in the view any more, word for word.
    pub fn forgotten(&self) -> impl Iterator<Item = &Compaction> {
        let all = self.compactions.iter();
        all.filter(|compaction| !compaction.keeps_latest)
    }

    /// What survived all compactions, by kind.
    pub fn survived(&self) -> Survival {
        let mut all = Survival::default();
        for compaction in &self.compactions {
            all.add(&compaction.survived);
        }
        all
    }

    /// View-changing events that a level made, and not the user.
    pub fn level_changes(&self) -> usize {
        let by_levels = self
            .changes
            .iter()
            .filter(|(trigger, _)| **trigger != REWOUND);
        by_levels.map(|(_, count)| count).sum()
    }

    /// What became of all probes.
    pub fn retained(&self) -> ProbeCounts {
        let mut all = ProbeCounts::default();
        for of_kind in self.probes.values() {
            all.add(*of_kind);
        }
        all
    }

    /// Counts another session in. Its curve, and what belongs to that, is its own.
    pub fn add(&mut self, other: &Self) {
        self.sessions += other.sessions;
        self.prepares += other.prepares;
        self.sendable += other.sendable;
        self.stored += other.stored;
        self.cleared += other.cleared;
        self.folded += other.folded;
        for (trigger, count) in &other.changes {
            *self.changes.entry(trigger).or_default() += count;
        }
        self.invalid.extend_from_slice(&other.invalid);
        self.prefix_breaks.extend_from_slice(&other.prefix_breaks);
        self.delta_breaks.extend_from_slice(&other.delta_breaks);
        self.split.add(other.split);
        self.largest_view = self.largest_view.max(other.largest_view);
        for (kind, retained) in &other.probes {
            self.probes.entry(*kind).or_default().add(*retained);
        }
        self.lost.extend_from_slice(&other.lost);
        self.defects.extend_from_slice(&other.defects);
        self.compactions.extend_from_slice(&other.compactions);
    }
}

/// Replays one session for one provider under a policy.
pub fn measure(tape: &RecordedSession, provider: Provider, policy: &Arc<Policy>) -> ReplayMetrics {
    let calibration = calibration(tape);
    let setup = Setup {
        provider,
        policy: Arc::clone(policy),
        pace: PrepareFrequency::PerResponse,
        levels: true,
        calibration,
    };
    let mut measured = ReplayMetrics::default();
    let mut cache = PrefixCache::default();
    let mut probes = Probes::default();
    let mut compactions = 0;
    let driver = drive(tape, setup, |driver: &Driver, look| {
        let line = driver.line;
        measured.prepares += 1;
        if !look.whole {
            measured.delta_breaks.push(line);
        }
        if !look.continues {
            measured.prefix_breaks.push(line);
        }
        let found = look.violations.into_iter();
        measured.invalid.extend(found.map(|found| (line, found)));
        probes.follow(driver);
        if look.sendable {
            measured.send(driver, &mut cache, &mut compactions);
            probes.sent(driver);
        }
    });
    (measured.probes, measured.lost) = probes.finish(&driver);
    let tally = driver.tally;
    ReplayMetrics {
        sessions: 1,
        changes: tally.changes,
        stored: tally.stored,
        cleared: tally.cleared,
        folded: tally.folded,
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
        if driver.tally.compactions.len() > *compactions {
            *compactions = driver.tally.compactions.len();
            self.compacted_at.push(self.curve.len());
        }
        self.split.add(split);
        self.largest_view = self.largest_view.max(split.total());
        self.curve.push(split.total());
    }
}
