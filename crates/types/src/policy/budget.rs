//! The thresholds of the context window at which warnings, compactions and blocks are due.

use super::{AutocompactPolicy, Policy, ThresholdBasis};

/// The context window of a model about which nothing is known, in tokens.
pub const ASSUMED_WINDOW_TOKENS: u64 = 200_000;

/// The properties of a model as a call or the table of models states them. The policy supplies missing values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WindowHint {
    /// The model's context window, in tokens.
    pub window_tokens: Option<u64>,
    /// The maximum output of the request, in tokens.
    pub max_output_tokens: Option<u64>,
    /// The provider's input limit in tokens, if lower than the window.
    pub input_limit_tokens: Option<u64>,
}

/// The thresholds of a context window, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thresholds {
    /// The whole window.
    pub window: u64,
    /// The window minus the reserve for output.
    pub effective: u64,
    /// The warning threshold.
    pub warn: u64,
    /// The threshold at which a caller should show an error.
    pub error: u64,
    /// The compaction threshold.
    pub compact: u64,
    /// The critical threshold.
    pub critical: u64,
    /// The threshold at which callers should block requests.
    pub block: u64,
}

/// The fill state of the context window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BudgetState {
    /// Below the warning threshold.
    Normal,
    /// Compaction is near.
    Warning,
    /// Compaction is due.
    Critical,
    /// A request may exceed the window.
    Exhausted,
}

impl Policy {
    /// Calculates the thresholds for a model.
    pub fn thresholds(&self, hint: WindowHint) -> Thresholds {
        let auto = &self.autocompact;
        let default = self.tokens.default_window_tokens.map(u64::from);
        let window = hint.window_tokens.or(default);
        let window = window.unwrap_or(ASSUMED_WINDOW_TOKENS);
        // Some providers reject an input far below the window, so no threshold may be above this limit.
        let capped = |tokens: u64| {
            hint.input_limit_tokens
                .map_or(tokens, |most| tokens.min(most))
        };
        let reserve = u64::from(auto.output_reserve_tokens);
        // A request with a lower output limit needs a smaller reserve.
        let reserve = reserve.min(hint.max_output_tokens.unwrap_or(reserve));
        let rest = window.saturating_sub(reserve);
        let effective = match auto.basis {
            // With this basis, the limit replaces the reserve.
            ThresholdBasis::InputLimit => hint.input_limit_tokens.unwrap_or(rest).min(window),
            ThresholdBasis::Reserve | ThresholdBasis::WindowPercent => capped(rest),
        };
        let compact = capped(auto.compact_at(window, effective));
        // With automatic compaction off, the warning is relative to the end of the effective window.
        let counted_from = if auto.enabled { compact } else { effective };
        let (warn, critical) = match auto.basis {
            // With shares, compaction itself is the warning, and the critical point has its own
            // setting.
            ThresholdBasis::WindowPercent => (compact, capped(auto.critical_at_percent.of(window))),
            _ => (below(counted_from, auto.warn_buffer_tokens), compact),
        };
        let error = auto.error_buffer_tokens.unwrap_or(auto.warn_buffer_tokens);
        Thresholds {
            window,
            effective,
            warn,
            error: below(counted_from, error),
            compact,
            // `state` requires that the critical threshold is not below the warning threshold.
            critical: critical.max(warn),
            block: capped(auto.block_at(window, effective)).max(critical),
        }
    }
}

impl AutocompactPolicy {
    fn compact_at(&self, window: u64, effective: u64) -> u64 {
        let buffered = below(effective, self.compact_buffer_tokens);
        match (self.basis, self.compact_at_percent) {
            // A high share must not use up the buffer, so the lower threshold applies.
            (ThresholdBasis::Reserve, Some(share)) => share.of(effective).min(buffered),
            (ThresholdBasis::Reserve, None) => buffered,
            (ThresholdBasis::WindowPercent, Some(share)) => share.of(window),
            (ThresholdBasis::WindowPercent | ThresholdBasis::InputLimit, _) => effective,
        }
    }

    fn block_at(&self, window: u64, effective: u64) -> u64 {
        match (self.block_at_tokens, self.block_at_percent, self.basis) {
            (Some(tokens), ..) => tokens.into(),
            (None, Some(share), _) => share.of(window),
            (None, None, ThresholdBasis::Reserve) => {
                let end = if self.block_from_window {
                    window
                } else {
                    effective
                };
                below(end, self.block_buffer_tokens)
            }
            (None, None, _) => window,
        }
    }
}

fn below(tokens: u64, buffer: u32) -> u64 {
    tokens.saturating_sub(buffer.into())
}

impl Thresholds {
    /// Returns the fill state for a view of `tokens` tokens.
    pub fn state(&self, tokens: u64) -> BudgetState {
        if tokens >= self.block {
            BudgetState::Exhausted
        } else if tokens >= self.critical {
            BudgetState::Critical
        } else if tokens >= self.warn {
            BudgetState::Warning
        } else {
            BudgetState::Normal
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Percent, Preset};
    use super::*;

    fn points(preset: Preset) -> Thresholds {
        preset.policy().thresholds(WindowHint::default())
    }

    #[test]
    fn the_thresholds_of_a_200k_window_match_claude_code() {
        let code = points(Preset::ClaudeCode);
        // The reserve for output is 20,000, so the effective window has 180,000 tokens. The buffers are 13,000 for
        // compaction, 20,000 more for the warning, and 3,000 for the block.
        assert_eq!(
            (code.compact, code.warn, code.block),
            (167_000, 147_000, 177_000)
        );
        assert_eq!(code.state(146_999), BudgetState::Normal);
        assert_eq!(code.state(147_000), BudgetState::Warning);
        assert_eq!(code.state(167_000), BudgetState::Critical);
        assert_eq!(code.state(177_000), BudgetState::Exhausted);
        let old = points(Preset::ClaudeCode2119);
        assert_eq!(
            (old.compact, old.warn, old.block),
            (155_000, 135_000, 197_000)
        );
        let shares = points(Preset::Threshold);
        assert_eq!(
            (shares.compact, shares.warn, shares.critical, shares.block),
            (160_000, 160_000, 190_000, 200_000)
        );
        let open = points(Preset::OpenCode);
        assert_eq!((open.compact, open.block), (168_000, 200_000));
    }

    #[test]
    fn the_window_of_the_caller_determines_the_thresholds() {
        let hint = WindowHint {
            window_tokens: Some(1_000_000),
            max_output_tokens: Some(8_000),
            input_limit_tokens: Some(900_000),
        };
        let points = Preset::OpenCode.policy().thresholds(hint);
        assert_eq!(points.compact, 900_000);
        let unlimited = WindowHint {
            input_limit_tokens: None,
            ..hint
        };
        let points = Preset::ClaudeCode.policy().thresholds(unlimited);
        assert_eq!((points.effective, points.compact), (992_000, 979_000));
        let tiny = WindowHint {
            window_tokens: Some(1_000),
            ..WindowHint::default()
        };
        assert_eq!(Policy::default().thresholds(tiny).effective, 0);
    }

    #[test]
    fn no_threshold_is_above_the_input_limit() {
        let hint = WindowHint {
            window_tokens: Some(400_000),
            max_output_tokens: Some(128_000),
            input_limit_tokens: Some(272_000),
        };
        for preset in Preset::ALL {
            let points = preset.policy().thresholds(hint);
            let all = [points.warn, points.compact, points.critical, points.block];
            let highest = all.into_iter().max();
            assert!(highest <= Some(272_000), "{}: {points:?}", preset.name());
        }
        let points = Preset::ClaudeCode.policy().thresholds(hint);
        assert_eq!((points.compact, points.block), (259_000, 269_000));
    }

    #[test]
    fn the_policy_replaces_the_assumed_window() {
        let mut policy = Policy::default();
        assert_eq!(policy.thresholds(WindowHint::default()).window, 200_000);
        policy.tokens.default_window_tokens = Some(90_000);
        assert_eq!(policy.thresholds(WindowHint::default()).window, 90_000);
        let hint = WindowHint {
            window_tokens: Some(50_000),
            ..WindowHint::default()
        };
        assert_eq!(policy.thresholds(hint).window, 50_000);
    }

    #[test]
    fn claude_code_2_1_19_blocks_3000_below_the_end_of_every_window() {
        for window in [32_000, 200_000, 1_000_000] {
            let hint = WindowHint {
                window_tokens: Some(window),
                ..WindowHint::default()
            };
            let points = Preset::ClaudeCode2119.policy().thresholds(hint);
            assert_eq!(points.block, window - 3_000);
        }
    }

    #[test]
    fn policy_settings_move_the_thresholds() {
        let mut policy = Policy::default();
        policy.autocompact.compact_at_percent = Some(Percent::new(50));
        assert_eq!(policy.thresholds(WindowHint::default()).compact, 90_000);
        // A share of 100 % would leave no buffer of 13,000 tokens.
        policy.autocompact.compact_at_percent = Some(Percent::new(100));
        assert_eq!(policy.thresholds(WindowHint::default()).compact, 167_000);
        policy.autocompact.enabled = false;
        // The buffer of 20,000 tokens counts from the end of the effective window.
        assert_eq!(policy.thresholds(WindowHint::default()).warn, 160_000);
        policy.autocompact.block_at_tokens = Some(190_000);
        assert_eq!(policy.thresholds(WindowHint::default()).block, 190_000);
    }
}
