//! The policies that are compared: the presets, variants of `economy` and of the default threshold, and given policies.

use std::sync::Arc;

use palimpsest_core::policy::{Overlay, OverlayError, Preset, Prices};

use crate::policies::{PolicyChoice, no_levels_choice};

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

/// The properties of the model. They are settings of every candidate.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ModelSettings {
    /// The context window in tokens. `None`: that of the policy.
    pub(super) window: Option<u32>,
    /// The prices, if they are known.
    pub(super) prices: Option<Prices>,
}

/// Returns the policies to compare. The first one changes nothing.
pub(super) fn candidates(
    model: ModelSettings,
    given: Vec<PolicyChoice>,
) -> Result<Vec<Candidate>, OverlayError> {
    let mut all = vec![model.without_settings(no_levels_choice())];
    for preset in Preset::ALL {
        all.push(model.variant(preset, preset.name().to_owned(), "")?);
    }
    for percent in THRESHOLDS {
        let name = format!("claude-code, compact at {percent} %");
        let setting = format!("autocompact.compact_at_percent = {percent}\n");
        all.push(model.variant(Preset::ClaudeCode, name, &setting)?);
    }
    for thousands in MIN_VIEWS {
        let name = format!("economy, from {thousands} K");
        let setting = format!("economy.min_view_tokens = {thousands}000\n");
        all.push(model.variant(Preset::Economy, name, &setting)?);
    }
    let setting = "economy.spend_savings_only = false\n";
    all.push(model.variant(Preset::Economy, "economy, early".to_owned(), setting)?);
    for choice in given {
        // A preset that is passed with `--preset` is a candidate already.
        if all.iter().all(|known| known.choice.name != choice.name) {
            all.push(model.without_settings(choice));
        }
    }
    Ok(all)
}

impl ModelSettings {
    fn without_settings(&self, mut choice: PolicyChoice) -> Candidate {
        choice.set_window(self.window, None);
        Candidate {
            choice,
            settings: None,
        }
    }

    fn variant(
        &self,
        preset: Preset,
        name: String,
        settings: &str,
    ) -> Result<Candidate, OverlayError> {
        let mut lines = vec![format!("preset = \"{}\"", preset.name())];
        lines.extend(settings.lines().map(str::to_owned));
        if let (Preset::Economy, Some(prices)) = (preset, self.prices) {
            // `{:?}` writes `1.0`, which TOML reads as a float. `{}` would write the integer `1`.
            let (write, read) = (prices.cache_write.get(), prices.cache_read.get());
            lines.push(format!("economy.cache_write_price = {write:?}"));
            lines.push(format!("economy.cache_read_price = {read:?}"));
        }
        let policy = Overlay::from_toml(&lines.join("\n"))?.resolve(preset)?;
        let mut choice = PolicyChoice {
            name,
            policy: Arc::new(policy),
        };
        choice.set_window(self.window, None);
        // `set_window` may also have lowered the reserve, so the settings contain both values.
        if let Some(window) = choice.policy.tokens.default_window_tokens {
            let reserve = choice.policy.autocompact.output_reserve_tokens;
            lines.push(format!("tokens.default_window_tokens = {window}"));
            lines.push(format!("autocompact.output_reserve_tokens = {reserve}"));
        }
        Ok(Candidate {
            choice,
            settings: Some(lines.join("\n") + "\n"),
        })
    }
}

#[cfg(test)]
mod tests {
    use palimpsest_core::policy::Price;

    use super::*;

    #[test]
    fn every_candidate_has_its_settings_and_a_name_of_its_own() {
        check(ModelSettings::default());
        check(ModelSettings {
            window: Some(60_000),
            prices: Some(Prices {
                cache_write: Price::from_milli(1_000),
                ..Prices::default()
            }),
        });
    }

    #[track_caller]
    fn check(model: ModelSettings) {
        let all = candidates(model, Vec::new()).unwrap();
        let mut names: Vec<&str> = all.iter().map(|one| &*one.choice.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all.len());
        // The first candidate is `none`, which has no settings.
        for candidate in &all[1..] {
            let settings = candidate.settings.as_deref().unwrap();
            let policy = Overlay::from_toml(settings)
                .unwrap()
                .resolve(Preset::default());
            assert_eq!(policy.unwrap(), *candidate.choice.policy, "{settings}");
        }
    }
}
