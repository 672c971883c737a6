//! The span of a compaction: its cause, the source of its summary, and its effect on the view.

use palimpsest_core::compaction::{CompactionOutcome, CompactionRequest, Purpose};
use palimpsest_core::event::Event;
use palimpsest_core::ids::SessionKey;
use tracing::{Span, field};

use crate::call::SPANS;
use crate::tally::{failure_reason, source, trigger};

/// Starts the span.
pub(super) fn begin(key: &SessionKey, request: &CompactionRequest) -> Span {
    tracing::debug_span!(
        target: SPANS,
        "compaction",
        session = %key,
        gen_ai.conversation.id = %key.session,
        palimpsest.compaction.trigger = trigger(request.trigger),
        palimpsest.compaction.purpose = purpose(request.purpose),
        palimpsest.compaction.outcome = field::Empty,
        palimpsest.compaction.source = field::Empty,
        palimpsest.compaction.before_tokens = field::Empty,
        palimpsest.compaction.after_tokens = field::Empty,
    )
}

/// Records the outcome. `None` if the compaction continues in another task.
pub(super) fn end(span: &Span, outcome: Option<&CompactionOutcome>) {
    if span.is_disabled() {
        return;
    }
    let name = match outcome {
        None | Some(CompactionOutcome::Running(_)) => "running",
        Some(CompactionOutcome::Skipped(_)) => "skipped",
        Some(CompactionOutcome::Answered(_)) => "repeated",
        Some(CompactionOutcome::Event(event, _)) => match &**event {
            Event::CompactionFailed(failed) => failure_reason(failed.reason),
            Event::CompactionFinished(finished) => {
                span.record("palimpsest.compaction.source", source(finished.strategy));
                for (name, tokens) in [
                    (
                        "palimpsest.compaction.before_tokens",
                        finished.before_tokens,
                    ),
                    ("palimpsest.compaction.after_tokens", finished.after_tokens),
                ] {
                    span.record(name, i64::try_from(tokens).unwrap_or(i64::MAX));
                }
                "done"
            }
            _ => "done",
        },
    };
    span.record("palimpsest.compaction.outcome", name);
}

const fn purpose(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Replace => "replace",
        Purpose::PrepareAhead => "prepare_ahead",
        Purpose::DropOldest(_) => "drop_oldest",
    }
}
