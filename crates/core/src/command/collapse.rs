//! Level 4: stages spans, takes their summaries from a model, and replaces spans by placeholders.

use std::collections::BTreeSet;

use super::decision::{Decided, SkipReason};
use super::reject::Rejection;
use crate::event::{Event, RequestStamp, Span, SpansCollapsed, SpansStaged, Trigger};
use crate::ids::{CallKey, Epoch, Ordinal, Revision, SpanKey};
use crate::levels::clearing::hidden_paths;
use crate::levels::collapse::{CollapsibleSpan, choose, collapsible_spans, is_due, with_summary};
use crate::levels::repair::{PieceAction, repair_layout};
use crate::session::Session;
use crate::view::{Piece, PieceForm};

/// Stages spans that were selected from this session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageSpans {
    /// The spans, in the order of the transcript.
    pub spans: Vec<Span>,
}

/// Replaces the summaries of staged spans by those that a model wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SummarizeSpans {
    /// The epoch of the view that the model read.
    pub epoch: Epoch,
    /// The summaries.
    pub summaries: Vec<SpanSummary>,
}

/// The summary of a staged span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpanSummary {
    /// The key of the span.
    pub key: SpanKey,
    /// The text.
    pub text: Box<str>,
    /// The model that wrote the text.
    pub model: Box<str>,
}

/// Replaces spans by placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollapseSpans {
    /// The trigger and its parameters.
    pub trigger: CollapseTrigger,
    /// The revision that the caller expects. `None` accepts any.
    pub expected_revision: Option<Revision>,
    /// The stamp that identifies retries.
    pub request: Option<RequestStamp>,
}

/// The trigger of level 4 and its parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CollapseTrigger {
    /// A view is being prepared. The policy's thresholds decide.
    Auto,
    /// The provider rejected the view as too long.
    Overflow,
    /// A caller requested it. The thresholds are ignored.
    Manual {
        /// Collapses until the view has at most this number of tokens. `None`: the policy's target.
        target_tokens: Option<u64>,
    },
}

impl StageSpans {
    pub(super) fn decide(self, session: &Session) -> Decided {
        if !session.policy().collapse.enabled {
            return Decided::Skipped(SkipReason::Disabled);
        }
        Decided::events(vec![Event::SpansStaged(SpansStaged {
            armed: !self.spans.is_empty(),
            spans: self.spans,
            pass_tokens: session.tokens().tokens,
        })])
    }
}

impl SummarizeSpans {
    pub(super) fn decide(self, session: &Session) -> Decided {
        let policy = session.policy();
        if !policy.collapse.enabled || !policy.collapse.summarize_with_model {
            return Decided::Skipped(SkipReason::Disabled);
        }
        // The summaries could bring back content that has left the view since the model read it.
        if session.sealed().epoch() != self.epoch {
            return Decided::Skipped(SkipReason::NothingEligible);
        }
        let staged = session.spans();
        let mut spans = staged.staged().to_vec();
        let mut is_changed = false;
        for span in &mut spans {
            let written = self.summaries.iter().find(|one| one.key == span.key);
            let written = written.and_then(|one| with_summary(policy, span, &one.text, &one.model));
            if let Some(written) = written {
                (*span, is_changed) = (written, true);
            }
        }
        // The spans may have been collapsed meanwhile.
        if !is_changed {
            return Decided::Skipped(SkipReason::NothingEligible);
        }
        Decided::events(vec![Event::SpansStaged(SpansStaged {
            spans,
            armed: staged.armed(),
            // No span was selected anew, so the next pass is due at the same size as before.
            pass_tokens: staged.pass_tokens(),
        })])
    }
}

impl CollapseSpans {
    pub(super) fn decide(self, session: &Session) -> Result<Decided, Rejection> {
        let target = match self.target(session) {
            Ok(target) => target,
            Err(skip) => return Ok(Decided::Skipped(skip)),
        };
        // The automatic trigger uses staged spans, and selects new ones only after the view has grown. The other
        // triggers always select anew.
        let staged = session.spans().staged();
        let fresh = match self.trigger {
            CollapseTrigger::Auto if !staged.is_empty() || !is_due(session) => None,
            _ => Some(choose(session)?),
        };
        let spans = collapsible_spans(session, fresh.as_deref().unwrap_or(staged));
        let spans = lowest_risk(session, spans, target);
        if spans.is_empty() {
            // The selection is recorded as staged, so that the search is repeated only after the view has grown.
            return Ok(match (self.trigger, fresh) {
                (CollapseTrigger::Auto, Some(spans)) => StageSpans { spans }.decide(session),
                _ => Decided::Skipped(SkipReason::NothingEligible),
            });
        }
        let event = self.event(session, &spans)?;
        Ok(Decided::events(vec![Event::SpansCollapsed(event)]))
    }

    /// Returns the number of tokens that the view may keep, or the reason to skip.
    fn target(&self, session: &Session) -> Result<u64, SkipReason> {
        let policy = &session.policy().collapse;
        let effective = session.thresholds().effective;
        let tokens = session.tokens().tokens;
        match self.trigger {
            // A manual request works even if the level is disabled.
            CollapseTrigger::Manual { target_tokens } => {
                Ok(target_tokens.unwrap_or_else(|| policy.target_percent.of(effective)))
            }
            _ if !policy.enabled => Err(SkipReason::Disabled),
            CollapseTrigger::Overflow => Ok(0),
            // Above the upper threshold, all eligible spans are collapsed.
            CollapseTrigger::Auto if tokens >= policy.compact_at_percent.of(effective) => Ok(0),
            CollapseTrigger::Auto if tokens >= policy.commit_at_percent.of(effective) => {
                Ok(policy.target_percent.of(effective))
            }
            CollapseTrigger::Auto => Err(SkipReason::UnderThreshold),
        }
    }

    fn event(
        self,
        session: &Session,
        spans: &[CollapsibleSpan],
    ) -> Result<SpansCollapsed, Rejection> {
        let messages = spans
            .iter()
            .flat_map(|span| &span.placeholder.span.messages);
        let messages: BTreeSet<Ordinal> = messages.copied().collect();
        let change = repair_layout(session, |index, piece| {
            let before = spans.partition_point(|span| span.pieces.end <= index);
            match spans.get(before).filter(|span| span.pieces.start <= index) {
                Some(span) if span.pieces.start == index => PieceAction::Replace(Piece {
                    message: span.placeholder.span.first(),
                    block: 0,
                    form: PieceForm::Placeholder(span.placeholder.span.key),
                }),
                Some(_) => PieceAction::Remove,
                // A synthetic answer stays with its call. A synthetic opening or separator leaves with its message.
                None if piece.form.answered_call_key().is_some() => PieceAction::Keep,
                None if messages.contains(&piece.message) => PieceAction::Remove,
                None => PieceAction::Keep,
            }
        })?;
        let freed = spans.iter().map(|span| u64::from(span.freed_tokens)).sum();
        let removed_calls: BTreeSet<CallKey> = session.calls().of_all(&messages).collect();
        Ok(SpansCollapsed {
            trigger: match self.trigger {
                CollapseTrigger::Auto => Trigger::Auto,
                CollapseTrigger::Overflow => Trigger::PromptTooLong,
                CollapseTrigger::Manual { .. } => Trigger::Manual,
            },
            placeholders: spans.iter().map(|span| span.placeholder.clone()).collect(),
            hidden_paths: hidden_paths(session, |call| removed_calls.contains(&call))?,
            removed_calls: removed_calls.into_iter().collect(),
            messages: messages.into_iter().collect(),
            before_tokens: session.tokens().tokens,
            freed_tokens: session.ledger().calibration.apply(freed),
            change,
            request: self.request,
        })
    }
}

/// Selects the spans with the lowest risk until the view reaches its target. Returns them in the order of the view.
fn lowest_risk(
    session: &Session,
    mut spans: Vec<CollapsibleSpan>,
    target: u64,
) -> Vec<CollapsibleSpan> {
    let mut tokens = session.tokens().tokens;
    // Selection goes by risk, and the event lists spans by position, so they are sorted twice.
    spans.sort_by_key(|span| (span.placeholder.span.risk, span.placeholder.span.first()));
    spans.retain(|span| {
        let goes = tokens > target;
        if goes {
            let freed = session.ledger().calibration.apply(span.freed_tokens.into());
            // Sizes are estimates, so their sum can exceed the counted tokens.
            tokens = tokens.saturating_sub(freed);
        }
        goes
    });
    spans.sort_by_key(|span| span.pieces.start);
    spans
}
