//! The recommended policy.

use super::candidates::Candidate;
use super::run::CandidateResult;

/// Returns the index of the cheapest policy with at least this recall. Only policies with known settings are
/// recommended.
pub(super) fn recommend(
    candidates: &[Candidate],
    results: &[CandidateResult],
    min_recall: f64,
) -> Option<usize> {
    let all = candidates.iter().zip(results).enumerate();
    let enough = all.filter(|(_, (candidate, result))| {
        candidate.settings.is_some() && result.recall() >= min_recall
    });
    let cheapest = enough.min_by_key(|(_, (_, result))| result.cost_milli);
    cheapest.map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use palimpsest_core::policy::Policy;
    use palimpsest_transcripts::replay::recall::{RecallCounts, UseCounts};
    use palimpsest_transcripts::replay::tune::PolicyRun;

    use super::*;
    use crate::policies::PolicyChoice;

    #[test]
    fn the_cheapest_policy_with_enough_recall_is_recommended() {
        let rows = [
            (9, 100, true),
            (1, 100, false),
            (3, 94, true),
            (4, 95, true),
            (5, 99, true),
        ];
        // The cheapest row has no settings, the next one lacks a point of recall, and the fourth one is left.
        let (mut candidates, mut results) = (Vec::new(), Vec::new());
        for (cost_milli, shown, has_settings) in rows {
            candidates.push(Candidate {
                choice: PolicyChoice {
                    name: cost_milli.to_string(),
                    policy: Arc::new(Policy::default()),
                },
                settings: has_settings.then(String::new),
            });
            results.push(CandidateResult {
                name: cost_milli.to_string(),
                run: PolicyRun {
                    uses: UseCounts {
                        names: RecallCounts { shown, needs: 100 },
                        ..UseCounts::default()
                    },
                    ..PolicyRun::default()
                },
                cost_milli,
                worst_share: 1.0,
                optimum_milli: None,
                is_on_frontier: false,
            });
        }
        assert_eq!(recommend(&candidates, &results, 0.95), Some(3));
        assert_eq!(recommend(&candidates, &results, 1.0), Some(0));
        assert_eq!(recommend(&candidates[1..3], &results[1..3], 0.95), None);
    }
}
