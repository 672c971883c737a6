//! Token reports and budgets of replies.

use palimpsest_core::ids::Ordinal;
use palimpsest_core::policy::{BudgetState, TokenEstimator, WindowHint};
use palimpsest_core::session::Session;
use palimpsest_core::tokens::{CountMethod, PrefixTokens, RequestParts};
use palimpsest_core::view::{Piece, Target};
use palimpsest_proto::context::v1;

use super::saturate_tokens;
use super::scalars::export_message_id;

/// Returns the number of tokens of the next request and the method of the count.
pub fn token_report(session: &Session, breakdown: Option<v1::TokenBreakdown>) -> v1::TokenReport {
    let count = session.tokens();
    let ledger = session.ledger();
    let (total, anchor) = (
        saturate_tokens(count.tokens),
        saturate_tokens(count.reported),
    );
    // Content removed after the anchor is still part of the reported count, so it is subtracted. It cannot exceed
    // that count.
    let removed = match count.method {
        CountMethod::Estimated => 0,
        CountMethod::Anchored => {
            saturate_tokens(ledger.calibration.apply(ledger.removed)).min(anchor)
        }
    };
    let method = match count.method {
        CountMethod::Estimated => v1::TokenMethod::Estimated,
        CountMethod::Anchored if ledger.tail == 0 => v1::TokenMethod::Reported,
        CountMethod::Anchored => v1::TokenMethod::ReportedAndEstimated,
    };
    let anchored = ledger.anchor.as_ref().map(|anchor| anchor.message);
    v1::TokenReport {
        total_tokens: total,
        method: method.into(),
        anchor_tokens: anchor,
        anchor_message_id: export_message_id(session, anchored),
        tail_tokens: (total + removed).saturating_sub(anchor),
        removed_tokens: removed,
        calibration_factor: f64::from(ledger.calibration.milli()) / 1_000.0,
        breakdown,
        estimator: encoding(session.policy().tokens.estimator).into(),
    }
}

convert_enum! {
    /// Converts an estimator to its encoding. `bytes` has no encoding and is unspecified.
    fn encoding(TokenEstimator) -> v1::TokenEstimator { Bytes = Unspecified, O200k, Cl100k }
}

convert_enum! {
    fn budget_state(BudgetState) -> v1::BudgetState { Normal, Warning, Critical, Exhausted }
}

/// Returns the tokens by kind of content. The parts add up to the total.
///
/// `prefix` contains the sizes of the prompt prefix. With `None`, the last known sum counts as the system prompt.
pub fn breakdown(session: &Session, prefix: Option<PrefixTokens>) -> v1::TokenBreakdown {
    request_parts(&session.request_parts(prefix))
}

/// Converts the tokens of a request by kind of content.
pub(super) const fn request_parts(parts: &RequestParts) -> v1::TokenBreakdown {
    v1::TokenBreakdown {
        system_tokens: parts.system,
        tools_tokens: parts.tools,
        summary_tokens: parts.memory,
        messages_tokens: parts.messages,
        results_tokens: parts.results,
        attachments_tokens: parts.attachments,
    }
}

/// Returns the budget for a target. If automatic compaction is off, the remaining tokens extend to the end of the
/// effective window.
pub fn budget(session: &Session, target: &Target, window: WindowHint) -> v1::Budget {
    let points = session.policy().thresholds(window);
    let auto_enabled = session.policy().autocompact.enabled;
    // Without automatic compaction, the view can grow to the end of the effective window.
    let end = if auto_enabled {
        points.compact
    } else {
        points.effective
    };
    let used = session.tokens().tokens;
    let buffer = points.window.saturating_sub(points.compact);
    let left = end.saturating_sub(used);
    let state = budget_state(points.state(used));
    v1::Budget {
        state: state.into(),
        model: target.model.to_string(),
        window_tokens: saturate_tokens(points.window),
        effective_window_tokens: saturate_tokens(points.effective),
        used_tokens: saturate_tokens(used),
        warn_at_tokens: saturate_tokens(points.warn),
        error_at_tokens: saturate_tokens(points.error),
        compact_at_tokens: saturate_tokens(points.compact),
        block_at_tokens: saturate_tokens(points.block),
        remaining_tokens: saturate_tokens(left),
        remaining_percent: percent(left, end),
        // The buffer is not free space, because a compaction starts before it is used.
        free_tokens: saturate_tokens(points.window.saturating_sub(used).saturating_sub(buffer)),
        autocompact_buffer_tokens: saturate_tokens(buffer),
        auto_enabled,
        consecutive_failures: session.compactions().consecutive_failures,
        auto_paused: super::compaction::is_paused(session),
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    f64::from(saturate_tokens(part)) * 100.0 / f64::from(saturate_tokens(whole))
}

/// Returns the last ordinal with a piece in the view.
pub(super) fn last_place(pieces: &[Piece]) -> Option<Ordinal> {
    pieces
        .iter()
        .filter(|piece| piece.form.represents_block())
        .map(|piece| piece.message)
        .max()
}
