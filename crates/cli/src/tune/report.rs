//! The result of a comparison as JSON.

use serde::Serialize;

use super::candidates::Candidate;
use super::run::{TuneResults, ratio};
use crate::shown_counts::ShownCounts;

#[derive(Serialize)]
struct Report<'r> {
    sessions: usize,
    policies: Vec<PolicyReport<'r>>,
    /// The name of the recommended policy.
    recommended: Option<&'r str>,
    /// The unrecognized files with the reasons.
    defects: &'r [String],
}

#[derive(Serialize)]
struct PolicyReport<'r> {
    policy: &'r str,
    /// The settings as TOML.
    #[serde(skip_serializing_if = "Option::is_none")]
    settings: Option<&'r str>,
    requests: usize,
    /// The cost in thousandths of an uncached token.
    cost_milli: u64,
    relative_cost: Option<f64>,
    /// The lowest cost in hindsight, in the same units.
    #[serde(skip_serializing_if = "Option::is_none")]
    optimum_milli: Option<u64>,
    dearest_session_relative_cost: f64,
    names: ShownCounts,
    edits: ShownCounts,
    compactions: usize,
    mean_view_tokens: u64,
    largest_view_tokens: u64,
    is_on_frontier: bool,
}

/// Builds the report.
pub(super) fn json(
    tuned: &TuneResults,
    candidates: &[Candidate],
    recommended: Option<usize>,
) -> anyhow::Result<String> {
    let unchanged = tuned.results.first().map_or(0, |first| first.cost_milli);
    let results = candidates.iter().zip(&tuned.results);
    let policies = results.map(|(candidate, result)| PolicyReport {
        policy: &result.name,
        settings: candidate.settings.as_deref(),
        requests: result.run.requests.len(),
        cost_milli: result.cost_milli,
        relative_cost: ratio(result.cost_milli, unchanged),
        optimum_milli: result.optimum_milli,
        dearest_session_relative_cost: result.worst_share,
        names: result.run.uses.names.into(),
        edits: result.run.uses.edits.into(),
        compactions: result.run.compacted_tokens.len(),
        mean_view_tokens: result.run.mean_view_tokens(),
        largest_view_tokens: result.run.largest_view_tokens(),
        is_on_frontier: result.is_on_frontier,
    });
    let report = Report {
        sessions: tuned.sessions,
        policies: policies.collect(),
        recommended: recommended.map(|index| tuned.results[index].name.as_str()),
        defects: &tuned.unrecognized,
    };
    Ok(serde_json::to_string_pretty(&report)?)
}
