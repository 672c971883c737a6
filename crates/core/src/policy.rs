//! What a session is allowed to do with its context. The resolved policy is a part of the session, so
//! that a server's settings seed new sessions and never alter an old one.

/// Every setting of a session. Levels 1 to 5 add theirs here.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    /// What fills the window, and when that is too much.
    pub budget: BudgetPolicy,
}

/// What fills the window, and when that is too much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetPolicy {
    /// The model's context window, where a call does not say.
    pub window_tokens: u64,
    /// The most that is set aside for the model's answer.
    pub output_reserve_tokens: u64,
    /// How far below the effective window compaction is due.
    pub compact_buffer_tokens: u64,
    /// How far below that a warning is due.
    pub warn_buffer_tokens: u64,
    /// How far below the effective window requests are to be blocked.
    pub block_buffer_tokens: u64,
}

impl Default for BudgetPolicy {
    fn default() -> Self {
        Self {
            window_tokens: 200_000,
            output_reserve_tokens: 20_000,
            compact_buffer_tokens: 13_000,
            warn_buffer_tokens: 20_000,
            block_buffer_tokens: 3_000,
        }
    }
}

/// What a call says about its model; what it leaves out, the policy fills in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WindowHint {
    /// The model's context window.
    pub window_tokens: Option<u64>,
    /// The most that the request lets the model answer.
    pub max_output_tokens: Option<u64>,
}

/// The points on the way to a full window, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thresholds {
    /// The whole window.
    pub window: u64,
    /// The window without what is set aside for the answer.
    pub effective: u64,
    /// Where a warning is due.
    pub warn: u64,
    /// Where compaction is due.
    pub compact: u64,
    /// Where requests are to be blocked.
    pub block: u64,
}

/// How full the window is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BudgetState {
    /// There is room.
    Normal,
    /// Compaction is near.
    Warning,
    /// Compaction is due.
    Critical,
    /// A request may not fit.
    Exhausted,
}

impl BudgetPolicy {
    /// The points on the way to a full window.
    pub fn thresholds(&self, hint: WindowHint) -> Thresholds {
        let window = hint.window_tokens.unwrap_or(self.window_tokens);
        let max_output = hint.max_output_tokens.unwrap_or(self.output_reserve_tokens);
        let effective = window.saturating_sub(max_output.min(self.output_reserve_tokens));
        let compact = effective.saturating_sub(self.compact_buffer_tokens);
        Thresholds {
            window,
            effective,
            warn: compact.saturating_sub(self.warn_buffer_tokens),
            compact,
            block: effective.saturating_sub(self.block_buffer_tokens),
        }
    }
}

impl Thresholds {
    /// How full the window is with `tokens` in it.
    pub fn state(&self, tokens: u64) -> BudgetState {
        if tokens >= self.block {
            BudgetState::Exhausted
        } else if tokens >= self.compact {
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
    use super::*;

    #[test]
    fn the_points_of_a_200k_window_are_the_known_ones() {
        let points = BudgetPolicy::default().thresholds(WindowHint::default());
        assert_eq!(
            (points.compact, points.warn, points.block),
            (167_000, 147_000, 177_000)
        );
        assert_eq!(points.state(146_999), BudgetState::Normal);
        assert_eq!(points.state(147_000), BudgetState::Warning);
        assert_eq!(points.state(167_000), BudgetState::Critical);
        assert_eq!(points.state(177_000), BudgetState::Exhausted);
    }

    #[test]
    fn the_callers_model_decides() {
        let hint = WindowHint {
            window_tokens: Some(1_000_000),
            max_output_tokens: Some(8_000),
        };
        let points = BudgetPolicy::default().thresholds(hint);
        assert_eq!((points.effective, points.compact), (992_000, 979_000));
        let tiny = WindowHint {
            window_tokens: Some(1_000),
            max_output_tokens: None,
        };
        assert_eq!(BudgetPolicy::default().thresholds(tiny).effective, 0);
    }
}
