//! Level 4: spans are chosen, and later summaries are put in their places.

use std::collections::BTreeSet;

use super::decision::{Context, Decision, Skip, answered, check_revision};
use super::reject::Rejection;
use crate::event::{Asked, Event, RequestStamp, Span, SpansCollapsed, SpansStaged};
use crate::ids::{Ordinal, Revision};
use crate::levels::collapse::{Foldable, choose, foldable, is_due};
use crate::levels::mend::{Fate, mend};
use crate::session::Session;
use crate::view::{Form, Piece};

/// Stage spans that were chosen of this session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    /// The spans, in the order of the transcript.
    pub spans: Vec<Span>,
}

/// Put summaries in the places of spans.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collapse {
    /// What makes it act.
    pub collapsing: Collapsing,
    /// The revision that the caller decided upon.
    pub expected_revision: Option<Revision>,
    /// So that a retry is recognised.
    pub request: Option<RequestStamp>,
}

/// What makes level 4 act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Collapsing {
    /// A view is prepared.
    Auto,
    /// The provider refused the view as too long.
    Overflow,
    /// A caller asks, whatever the thresholds say.
    Manual {
        /// Until the view has at most so many tokens; by default what the policy says.
        target_tokens: Option<u64>,
    },
}

impl Stage {
    pub(super) fn decide(self, session: &Session) -> Decision {
        if !session.policy().collapse.enabled {
            return Decision::Skipped(Skip::Disabled);
        }
        Decision::Events(vec![Event::SpansStaged(SpansStaged {
            armed: !self.spans.is_empty(),
            spans: self.spans,
            pass_tokens: session.tokens().tokens,
        })])
    }
}

impl Collapse {
    pub(super) fn decide(
        self,
        session: &Session,
        context: Context<'_>,
    ) -> Result<Decision, Rejection> {
        if let Some(revision) = answered(session, self.request.as_ref(), context)? {
            return Ok(Decision::Answered(revision));
        }
        check_revision(session, self.expected_revision)?;
        let target = match self.target(session) {
            Ok(target) => target,
            Err(skip) => return Ok(Decision::Skipped(skip)),
        };
        let staged = session.spans().staged();
        let fresh = match self.collapsing {
            Collapsing::Auto if !staged.is_empty() || !is_due(session) => None,
            _ => Some(choose(session)?),
        };
        let spans = foldable(session, fresh.as_deref().unwrap_or(staged));
        let spans = safest(session, spans, target);
        if spans.is_empty() {
            // It is not looked for again before the view has grown.
            return Ok(match (self.collapsing, fresh) {
                (Collapsing::Auto, Some(spans)) => Stage { spans }.decide(session),
                _ => Decision::Skipped(Skip::NothingEligible),
            });
        }
        let event = self.event(session, &spans)?;
        Ok(Decision::Events(vec![Event::SpansCollapsed(event)]))
    }

    /// How many tokens the view may keep.
    fn target(&self, session: &Session) -> Result<u64, Skip> {
        let policy = &session.policy().collapse;
        let effective = session.thresholds().effective;
        let tokens = session.tokens().tokens;
        match self.collapsing {
            Collapsing::Manual { target_tokens } => {
                Ok(target_tokens.unwrap_or_else(|| policy.target_percent.of(effective)))
            }
            _ if !policy.enabled => Err(Skip::Disabled),
            Collapsing::Overflow => Ok(0),
            Collapsing::Auto if tokens >= policy.compact_at_percent.of(effective) => Ok(0),
            Collapsing::Auto if tokens >= policy.commit_at_percent.of(effective) => {
                Ok(policy.target_percent.of(effective))
            }
            Collapsing::Auto => Err(Skip::UnderThreshold),
        }
    }

    fn event(self, session: &Session, spans: &[Foldable]) -> Result<SpansCollapsed, Rejection> {
        let messages = spans
            .iter()
            .flat_map(|span| &span.placeholder.span.messages);
        let messages: BTreeSet<Ordinal> = messages.copied().collect();
        let change = mend(session, |index, piece| {
            let before = spans.partition_point(|span| span.pieces.end <= index);
            match spans.get(before).filter(|span| span.pieces.start <= index) {
                Some(span) if span.pieces.start == index => Fate::Yield(Piece {
                    message: span.placeholder.span.first(),
                    block: 0,
                    form: Form::Placeholder(span.placeholder.span.key),
                }),
                Some(_) => Fate::Leave,
                // What stands for an answer stays with its call. What opened the view for a message,
                // or kept it apart, leaves with it.
                None if piece.form.answers().is_some() => Fate::Stay,
                None if messages.contains(&piece.message) => Fate::Leave,
                None => Fate::Stay,
            }
        })?;
        let freed = spans.iter().map(|span| u64::from(span.freed)).sum();
        Ok(SpansCollapsed {
            asked: match self.collapsing {
                Collapsing::Auto => Asked::Auto,
                Collapsing::Overflow => Asked::Provider,
                Collapsing::Manual { .. } => Asked::Manual,
            },
            placeholders: spans.iter().map(|span| span.placeholder.clone()).collect(),
            gone: session.calls().of_all(&messages).collect(),
            messages: messages.into_iter().collect(),
            before_tokens: session.tokens().tokens,
            freed_tokens: session.ledger().calibration.apply(freed),
            change,
            request: self.request,
        })
    }
}

/// The spans with the least risk whose going brings the view to its target, in the order of the view.
fn safest(session: &Session, mut spans: Vec<Foldable>, target: u64) -> Vec<Foldable> {
    let mut tokens = session.tokens().tokens;
    spans.sort_by_key(|span| (span.placeholder.span.risk, span.placeholder.span.first()));
    spans.retain(|span| {
        let goes = tokens > target;
        if goes {
            let freed = session.ledger().calibration.apply(span.freed.into());
            tokens = tokens.saturating_sub(freed);
        }
        goes
    });
    spans.sort_by_key(|span| span.pieces.start);
    spans
}
