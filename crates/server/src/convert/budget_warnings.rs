//! Warnings about the context window in successful replies.

use palimpsest_core::command::SkipReason;
use palimpsest_core::event::Event;
use palimpsest_core::policy::WindowHint;
use palimpsest_core::session::Session;
use palimpsest_core::view::Target;
use palimpsest_proto::context::v1::{self, WarningCode};

/// The outcome of a compaction as far as warnings depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompactionResult {
    /// No compaction was due, or it freed space.
    None,
    /// The compaction failed.
    Failed,
    /// No removable content was left.
    NothingToRemove,
}

impl CompactionResult {
    /// Returns the result for the event that ended the compaction.
    pub const fn of(event: &Event) -> Self {
        match event {
            Event::CompactionFailed(_) => Self::Failed,
            _ => Self::None,
        }
    }

    /// Returns the result for a skipped compaction.
    pub const fn of_skip(skip: SkipReason) -> Self {
        match skip {
            SkipReason::Irreducible
            | SkipReason::NothingEligible
            | SkipReason::TooLittleInput
            | SkipReason::TooLittleGain => Self::NothingToRemove,
            _ => Self::None,
        }
    }
}

/// Returns the warnings about the window and about attempts to free space.
pub fn budget_warnings(
    session: &Session,
    (target, window): (&Target, WindowHint),
    result: CompactionResult,
) -> Vec<v1::Warning> {
    let points = session.policy().thresholds(window);
    let (tokens, auto) = (session.tokens().tokens, &session.policy().autocompact);
    let failures = session.compactions().consecutive_failures;
    let is_paused = auto.enabled && super::compaction::is_paused(session);
    // After an earlier attempt without removable content, the session remembers its floor, so later calls get the
    // warning too.
    let is_floor = session.compactions().irreducible_tokens.is_some()
        || result == CompactionResult::NothingToRemove;
    let is_over = tokens >= points.compact;
    let mut warnings = Vec::new();
    let mut warn = |code: WarningCode, detail: String| {
        warnings.push(v1::Warning {
            code: code.into(),
            detail,
            ..v1::Warning::default()
        });
    };
    if window.window_tokens.is_none() && session.policy().tokens.default_window_tokens.is_none() {
        warn(WarningCode::WindowAssumed, assumed(target, points.window));
    }
    if tokens >= points.block {
        warn(
            WarningCode::OverBlockThreshold,
            format!(
                "The view has {tokens} tokens, and requests should be blocked from {} tokens. Compact, \
                 snip or rewind before you send the view.",
                points.block
            ),
        );
    }
    if is_over && is_floor {
        warn(
            WarningCode::Irreducible,
            format!(
                "The view has {tokens} tokens, a compaction is due at {}, and the removable content is \
                 too small. The token breakdown shows the content that stays.",
                points.compact
            ),
        );
    }
    if is_paused {
        warn(
            WarningCode::AutoPaused,
            format!(
                "Automatic compaction is paused after {failures} consecutive failures. A successful \
                 Compact call or an undo with RestoreContext resumes it."
            ),
        );
    }
    // Earlier failures are reported too, until the counter is reset.
    if result == CompactionResult::Failed || failures > 0 {
        warn(
            WarningCode::CompactionFailed,
            format!(
                "A compaction failed, and the view is unchanged. Consecutive automatic failures: \
                 {failures}."
            ),
        );
    }
    warnings
}

/// Describes a window that is neither stated nor known.
fn assumed(target: &Target, window: u64) -> String {
    if target.model.is_empty() {
        return format!(
            "The target has no model and no window, so {window} tokens are assumed. Set target.model or \
             target.window_tokens."
        );
    }
    format!(
        "The server does not know the window of the model, so {window} tokens are assumed. Set \
         target.window_tokens, or add the model to [[models]] of the configuration."
    )
}
