//! Runs all candidates over all files.

use std::path::Path;

use anyhow::Context as _;
use palimpsest_core::policy::{Prices, WindowHint};
use palimpsest_transcripts::replay::RecordedSession;
use palimpsest_transcripts::replay::recall::RecallCounts;
use palimpsest_transcripts::replay::tune::{
    CompactionModel, PolicyRun, SentRequest, lowest_cost_milli, run_policy,
};

use super::candidates::Candidate;
use crate::agent_logs::{FileOutcome, Transcripts};
use crate::each_file::{each_file, file_name};
use crate::files;

/// The input of a comparison.
#[derive(Debug)]
pub(super) struct TuneInput<'a> {
    pub(super) transcripts: &'a Transcripts,
    pub(super) candidates: &'a [Candidate],
    pub(super) window: WindowHint,
    pub(super) prices: Prices,
}

/// The results of all files.
#[derive(Debug)]
pub(super) struct TuneResults {
    pub(super) sessions: usize,
    /// The results in the order of the candidates.
    pub(super) results: Vec<CandidateResult>,
    /// The unrecognized files with the reasons.
    pub(super) unrecognized: Vec<String>,
    /// The outcome of each file.
    pub(super) outcomes: Vec<FileOutcome>,
}

/// The result of one candidate.
#[derive(Debug)]
pub(super) struct CandidateResult {
    pub(super) name: String,
    pub(super) run: PolicyRun,
    /// The cost, in thousandths of an uncached token.
    pub(super) cost_milli: u64,
    /// The highest cost of a session relative to the unchanged session.
    pub(super) worst_share: f64,
    /// The lowest cost in hindsight, if the policy chooses the time of compactions by their cost.
    pub(super) optimum_milli: Option<u64>,
    /// True if no other candidate has a lower cost and at least the same recall.
    pub(super) is_on_frontier: bool,
}

impl CandidateResult {
    /// Returns the share of what tool calls used that the view showed.
    pub(super) fn recall(&self) -> f64 {
        share(self.run.uses.all())
    }
}

/// Returns the share that was shown, or 1 if nothing was needed.
pub(super) fn share(counts: RecallCounts) -> f64 {
    ratio(counts.shown as u64, counts.needs as u64).unwrap_or(1.0)
}

/// Returns the quotient of two numbers. `None` if the second one is 0.
pub(super) fn ratio(part: u64, whole: u64) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "only a share is shown")]
    let (part, whole) = (part as f64, whole as f64);
    (whole > 0.0).then(|| part / whole)
}

struct FileRun {
    /// The results of each session in the order of the candidates.
    sessions: Vec<Vec<PolicyRun>>,
    unrecognized: Option<String>,
}

/// Compares the candidates.
pub(super) fn tune(input: &TuneInput<'_>) -> anyhow::Result<TuneResults> {
    let files = each_file(input.transcripts.files(), |file| run_file(file, input))?;
    let unrecognized = files.iter().filter_map(|file| file.unrecognized.clone());
    let unrecognized = unrecognized.collect();
    let outcomes = files.iter().map(|file| FileOutcome {
        sessions: file.sessions.len(),
        is_recognized: file.unrecognized.is_none(),
    });
    let outcomes = outcomes.collect();
    let sessions: Vec<Vec<PolicyRun>> = files.into_iter().flat_map(|file| file.sessions).collect();
    // The first candidate is `none`, so its requests are those of the unchanged conversation.
    let unchanged: Vec<Vec<SentRequest>> = sessions
        .iter()
        .filter_map(|runs| Some(runs.first()?.requests.clone()))
        .collect();
    let mut results: Vec<CandidateResult> = Vec::new();
    let costs_of = |index: usize| {
        let cost = |runs: &Vec<PolicyRun>| runs[index].token_split.cost_milli(&input.prices);
        sessions.iter().map(cost).collect::<Vec<u64>>()
    };
    let unchanged_costs = costs_of(0);
    for (index, candidate) in input.candidates.iter().enumerate() {
        let costs = costs_of(index);
        let shares = costs.iter().zip(&unchanged_costs);
        let shares = shares.filter_map(|(cost, unchanged)| ratio(*cost, *unchanged));
        // A policy can be cheap in total and dear for one kind of session.
        let worst_share = shares.fold(0.0, f64::max);
        let mut run = PolicyRun::default();
        for runs in &sessions {
            run.add(runs[index].clone());
        }
        let economy = &candidate.choice.policy.economy;
        // The optimum assumes compactions to the average size of this policy. Without a compaction, the size is
        // unknown.
        let optimum = run.mean_compacted_tokens().filter(|_| economy.enabled);
        let optimum_milli = optimum.map(|compacted_tokens| {
            let model = CompactionModel {
                compacted_tokens,
                min_view_tokens: economy.min_view_tokens.into(),
            };
            let lowest =
                |requests: &Vec<SentRequest>| lowest_cost_milli(requests, model, &input.prices);
            unchanged.iter().map(lowest).sum()
        });
        results.push(CandidateResult {
            name: candidate.choice.name.clone(),
            run,
            cost_milli: costs.iter().sum(),
            worst_share,
            optimum_milli,
            is_on_frontier: false,
        });
    }
    mark_frontier(&mut results);
    Ok(TuneResults {
        sessions: sessions.len(),
        results,
        unrecognized,
        outcomes,
    })
}

fn mark_frontier(results: &mut [CandidateResult]) {
    let points: Vec<(u64, f64)> = results
        .iter()
        .map(|result| (result.cost_milli, result.recall()))
        .collect();
    for (result, (cost, recall)) in results.iter_mut().zip(&points) {
        // One of both must be strictly better. Equal results therefore stay on the frontier together.
        let is_better = |(other_cost, other_recall): &(u64, f64)| {
            (other_cost < cost && other_recall >= recall)
                || (other_cost <= cost && other_recall > recall)
        };
        result.is_on_frontier = !points.iter().any(is_better);
    }
}

fn run_file(file: &Path, input: &TuneInput<'_>) -> anyhow::Result<FileRun> {
    let text = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let imported = input.transcripts.read(file, &text);
    let provider = files::provider_of(&imported);
    let run_session = |session| {
        let tape = RecordedSession::new(session);
        let policies = input.candidates.iter().map(|one| &one.choice.policy);
        policies
            .map(|policy| run_policy(&tape, provider, policy, input.window))
            .collect()
    };
    Ok(FileRun {
        sessions: imported.sessions.iter().map(run_session).collect(),
        unrecognized: imported
            .unrecognized
            .as_ref()
            .map(|reason| format!("{} {reason}", file_name(file))),
    })
}
