//! The policies that are compared: the presets, variants of `economy` and of the default threshold, and given policies.

use std::sync::Arc;

use palimpsest_core::policy::{Overlay, OverlayError, Preset};

use crate::policies::PolicyChoice;

/// The minimum sizes of a view in the variants of `economy`, in thousands of tokens.
const MIN_VIEWS: [u32; 3] = [20, 50, 80];
/// The compaction thresholds in the variants of the default preset, in percent of the effective window.
const THRESHOLDS: [u32; 3] = [25, 40, 60];

/// A policy with the settings that produce it.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub(super) choice: PolicyChoice,
    /// The settings as TOML. `None` for a policy without settings, or whose settings the caller has.
    pub(super) settings: Option<String>,
}

/// Returns the policies to compare. The first one changes nothing.
pub(super) fn candidates(
    unchanged: PolicyChoice,
    given: Vec<PolicyChoice>,
) -> Result<Vec<Candidate>, OverlayError> {
    let mut all = vec![Candidate {
        choice: unchanged,
        settings: None,
    }];
    for preset in Preset::ALL {
        all.push(variant(preset, preset.name().to_owned(), "")?);
    }
    for percent in THRESHOLDS {
        let name = format!("claude-code, compact at {percent} %");
        let setting = format!("autocompact.compact_at_percent = {percent}\n");
        all.push(variant(Preset::ClaudeCode, name, &setting)?);
    }
    for thousands in MIN_VIEWS {
        let name = format!("economy, from {thousands} K");
        let setting = format!("economy.min_view_tokens = {thousands}000\n");
        all.push(variant(Preset::Economy, name, &setting)?);
    }
    let early = "economy.spend_savings_only = false\n";
    all.push(variant(
        Preset::Economy,
        "economy, early".to_owned(),
        early,
    )?);
    for choice in given {
        if all.iter().all(|known| known.choice.name != choice.name) {
            all.push(Candidate {
                choice,
                settings: None,
            });
        }
    }
    Ok(all)
}

fn variant(preset: Preset, name: String, settings: &str) -> Result<Candidate, OverlayError> {
    let settings = format!("preset = \"{}\"\n{settings}", preset.name());
    let policy = Arc::new(Overlay::from_toml(&settings)?.resolve(preset)?);
    Ok(Candidate {
        choice: PolicyChoice { name, policy },
        settings: Some(settings),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::no_levels_choice;

    #[test]
    fn every_candidate_has_valid_settings_and_a_name_of_its_own() {
        let all = candidates(no_levels_choice(), Vec::new()).unwrap();
        let mut names: Vec<&str> = all.iter().map(|one| &*one.choice.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all.len());
        for candidate in &all[1..] {
            let settings = candidate.settings.as_deref().unwrap();
            let policy = Overlay::from_toml(settings)
                .unwrap()
                .resolve(Preset::default());
            assert_eq!(policy.unwrap(), *candidate.choice.policy);
        }
    }
}
