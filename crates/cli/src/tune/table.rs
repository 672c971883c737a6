//! The result of a comparison as a table: one row per policy.

use super::run::{CandidateResult, TuneResults, ratio, share};
use crate::output::{align_right, number, print, table};

pub(super) fn show(tuned: &TuneResults) -> anyhow::Result<()> {
    let header = [
        "policy", "cost", "optimum", "dearest session", "recall", "names", "edits", "compactions",
        "mean view", "largest view", "frontier",
    ];
    let mut table = table(&header);
    let unchanged = tuned.results.first().map_or(0, |first| first.cost_milli);
    for result in &tuned.results {
        table.add_row(row(result, unchanged));
    }
    align_right(&mut table, &(1..header.len() - 1).collect::<Vec<_>>());
    print(&format!("{table}\n"))
}

fn row(result: &CandidateResult, unchanged: u64) -> [String; 11] {
    let relative = |cost: u64| percent(ratio(cost, unchanged).unwrap_or(1.0));
    [
        result.name.clone(),
        relative(result.cost_milli),
        result
            .optimum_milli
            .map_or_else(|| "–".to_owned(), relative),
        percent(result.worst_share),
        percent(result.recall()),
        percent(share(result.run.uses.names)),
        percent(share(result.run.uses.edits)),
        number(result.run.compacted_tokens.len() as u64),
        number(result.run.mean_view_tokens()),
        number(result.run.largest_view_tokens()),
        if result.is_on_frontier { "●" } else { "" }.to_owned(),
    ]
}

/// Formats a share with one decimal.
pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
