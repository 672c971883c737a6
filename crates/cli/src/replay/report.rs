//! The figures of a replay as JSON.

use std::collections::BTreeMap;

use palimpsest_core::policy::Prices;
use palimpsest_transcripts::replay::{FactRetention, ProbeCounts, ReplayMetrics};
use serde::Serialize;

use super::run::ReplayResults;

/// The figures of one policy, in total and per file.
#[derive(Serialize)]
struct PolicyReport<'r> {
    preset: &'r str,
    #[serde(flatten)]
    total: Numbers,
    files: Vec<FileNumbers<'r>>,
}

#[derive(Serialize)]
struct FileNumbers<'r> {
    file: &'r str,
    #[serde(flatten)]
    numbers: Numbers,
    /// The unreadable lines and the rejected messages.
    defects: Vec<String>,
    /// The failed checks.
    problems: Vec<String>,
}

#[derive(Serialize)]
struct Numbers {
    sessions: usize,
    prepares: usize,
    sent_views: usize,
    view_changes: usize,
    view_changes_by_trigger: BTreeMap<&'static str, usize>,
    stored_results: usize,
    cleared_results: usize,
    collapsed_messages: usize,
    compactions: usize,
    compactions_by_strategy: BTreeMap<&'static str, usize>,
    compacted_tokens_before: u64,
    compacted_tokens_after: u64,
    /// Facts of replaced messages that the summaries contain, by kind.
    facts_in_summaries_by_kind: BTreeMap<&'static str, FactCounts>,
    /// The sum over all kinds except errors.
    facts_in_summaries: FactCounts,
    lost_requests: usize,
    invalid_views: usize,
    prefix_violations: usize,
    delta_violations: usize,
    sent_tokens: u64,
    cache_read_tokens: u64,
    cache_write_tokens: u64,
    uncached_tokens: u64,
    /// The cost in thousandths of an uncached token.
    cost_milli: u64,
    /// The cost of the input in US dollars. Only with `--model`.
    #[serde(skip_serializing_if = "Option::is_none")]
    cost_usd: Option<f64>,
    relative_cost: Option<f64>,
    largest_view_tokens: u64,
    probes: ProbeNumbers,
    probes_by_kind: BTreeMap<&'static str, ProbeNumbers>,
}

#[derive(Serialize)]
struct FactCounts {
    found: usize,
    word_for_word: usize,
    all: usize,
}

impl From<FactRetention> for FactCounts {
    fn from(share: FactRetention) -> Self {
        Self {
            found: share.kept,
            word_for_word: share.kept_verbatim,
            all: share.total,
        }
    }
}

#[derive(Serialize)]
struct ProbeNumbers {
    visible: usize,
    recoverable: usize,
    lost: usize,
}

impl From<ProbeCounts> for ProbeNumbers {
    fn from(retained: ProbeCounts) -> Self {
        Self {
            visible: retained.visible,
            recoverable: retained.recoverable,
            lost: retained.lost,
        }
    }
}

impl Numbers {
    /// Builds the figures of one policy. `all` contains the metrics of every policy for the same transcripts.
    fn new(replayed: &ReplayResults, measured: &ReplayMetrics, all: &[ReplayMetrics]) -> Self {
        let prices = replayed.prices();
        let split = &measured.token_split;
        let by_kind = measured.probes.iter();
        let survived = measured.survival();
        Self {
            sessions: measured.sessions,
            prepares: measured.prepares,
            sent_views: measured.sendable,
            view_changes: measured.changes.values().sum(),
            view_changes_by_trigger: measured.changes.clone(),
            stored_results: measured.stored,
            cleared_results: measured.cleared,
            collapsed_messages: measured.collapsed,
            compactions: measured.compactions.len(),
            compactions_by_strategy: by_strategy(measured),
            compacted_tokens_before: measured.compactions.iter().map(|it| it.before_tokens).sum(),
            compacted_tokens_after: measured.compactions.iter().map(|it| it.after_tokens).sum(),
            facts_in_summaries_by_kind: survived
                .0
                .iter()
                .map(|(kind, share)| (kind.name(), (*share).into()))
                .collect(),
            facts_in_summaries: survived.combined().into(),
            lost_requests: measured.lost_requests().count(),
            invalid_views: measured.invalid.len(),
            prefix_violations: measured.prefix_breaks.len(),
            delta_violations: measured.delta_breaks.len(),
            sent_tokens: split.total(),
            cache_read_tokens: split.cache_read,
            cache_write_tokens: split.cache_write,
            uncached_tokens: split.uncached,
            cost_milli: split.cost_milli(&prices),
            cost_usd: replayed.model.and_then(|model| model.input_usd(split)),
            relative_cost: relative_cost(measured, all, &prices),
            largest_view_tokens: measured.largest_view,
            probes: measured.probe_totals().into(),
            probes_by_kind: by_kind
                .map(|(kind, retained)| (kind.name(), (*retained).into()))
                .collect(),
        }
    }
}

fn by_strategy(measured: &ReplayMetrics) -> BTreeMap<&'static str, usize> {
    let mut by_strategy = BTreeMap::new();
    for compaction in &measured.compactions {
        *by_strategy.entry(compaction.strategy_name()).or_default() += 1;
    }
    by_strategy
}

pub(super) fn json(replayed: &ReplayResults) -> anyhow::Result<String> {
    let of_policy = |index: usize| PolicyReport {
        preset: &replayed.policies[index],
        total: Numbers::new(replayed, &replayed.totals[index], &replayed.totals),
        files: replayed
            .files
            .iter()
            .map(|file| {
                let measured = &file.measured[index];
                let refused = measured.defects.iter().map(ToString::to_string);
                FileNumbers {
                    file: &file.file,
                    numbers: Numbers::new(replayed, measured, &file.measured),
                    defects: (file.unrecognized.iter().chain(&file.unreadable))
                        .cloned()
                        .chain(refused)
                        .collect(),
                    problems: super::table::problems(measured),
                }
            })
            .collect(),
    };
    let all: Vec<PolicyReport<'_>> = (0..replayed.policies.len()).map(of_policy).collect();
    Ok(serde_json::to_string_pretty(&all)?)
}

/// Returns the cost of a policy relative to the cost of `none`, which is the last one.
#[expect(clippy::cast_precision_loss, reason = "three digits of it are shown")]
pub(super) fn relative_cost(
    measured: &ReplayMetrics,
    all: &[ReplayMetrics],
    prices: &Prices,
) -> Option<f64> {
    let none = all.last()?.token_split.cost_milli(prices);
    (none > 0).then(|| measured.token_split.cost_milli(prices) as f64 / none as f64)
}
