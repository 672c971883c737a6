//! The span of a turn: the model whose next request the view is for, and the effect of the levels on the view.

use std::sync::{Mutex, PoisonError};

use palimpsest_core::event::Event;
use palimpsest_core::ids::{SessionKey, Timestamp};
use palimpsest_core::session::{CacheReport, Session};
use palimpsest_core::view::Provider;
use tracing::{Span, field};

use super::{TurnCall, TurnOutcome};
use crate::call::SPANS;
use crate::tally::level_effect;

/// The span of a turn.
pub(super) struct TurnSpan {
    span: Span,
    /// The figures of the last view that was served. A compaction serves the view again.
    figures: Mutex<Option<Figures>>,
}

/// The figures of a served view, in tokens.
struct Figures {
    view: u64,
    /// The names of the levels that acted, in order.
    levels: Vec<&'static str>,
    freed: u64,
    cache: CacheReport,
}

impl TurnSpan {
    /// Starts the span.
    pub(super) fn begin(key: &SessionKey, call: &TurnCall) -> Self {
        let target = &call.target;
        let span = tracing::debug_span!(
            target: SPANS,
            "turn",
            session = %key,
            gen_ai.conversation.id = %key.session,
            gen_ai.provider.name = target.provider.map(provider_name),
            gen_ai.request.model = target.model.as_deref(),
            palimpsest.dry_run = call.dry_run.then_some(true),
            palimpsest.view.tokens = field::Empty,
            palimpsest.levels = field::Empty,
            palimpsest.freed_tokens = field::Empty,
            palimpsest.cache.reused_tokens = field::Empty,
            palimpsest.cache.invalidated_tokens = field::Empty,
            palimpsest.cache.saved_tokens = field::Empty,
            palimpsest.cache.cold = field::Empty,
        );
        Self {
            span,
            figures: Mutex::default(),
        }
    }

    pub(super) fn span(&self) -> &Span {
        &self.span
    }

    /// Notes the figures of a view that the turn serves. Several views can be served, so they are recorded at the end.
    pub(super) fn serves(
        &self,
        call: &TurnCall,
        (session, outcome): (&Session, &TurnOutcome),
        now: Timestamp,
    ) {
        if self.span.is_disabled() {
            return;
        }
        let (target, _) = call.target(session);
        let mut figures = Figures {
            view: session.tokens().tokens,
            levels: Vec::new(),
            freed: 0,
            cache: session.cache_report(&target, now),
        };
        for (level, tokens) in outcome.changes().filter_map(effect) {
            if !figures.levels.contains(&level) {
                figures.levels.push(level);
            }
            figures.freed = figures.freed.saturating_add(tokens);
        }
        *self.figures.lock().unwrap_or_else(PoisonError::into_inner) = Some(figures);
    }

    /// Records the figures.
    pub(super) fn end(self) {
        let figures = self.figures.into_inner();
        let Some(figures) = figures.unwrap_or_else(PoisonError::into_inner) else {
            return;
        };
        let span = &self.span;
        let cache = &figures.cache;
        for (name, tokens) in [
            ("palimpsest.view.tokens", figures.view),
            ("palimpsest.freed_tokens", figures.freed),
            ("palimpsest.cache.reused_tokens", cache.reused),
            ("palimpsest.cache.invalidated_tokens", cache.invalidated),
            ("palimpsest.cache.saved_tokens", cache.saved),
        ] {
            span.record(name, integer(tokens));
        }
        span.record("palimpsest.cache.cold", cache.cold);
        if !figures.levels.is_empty() {
            span.record("palimpsest.levels", figures.levels.join(","));
        }
    }
}

fn effect<R>((_, event): (R, &Event)) -> Option<(&'static str, u64)> {
    level_effect(event)
}

/// Returns the name of the provider in the conventions for generative AI.
const fn provider_name(provider: Provider) -> &'static str {
    match provider {
        Provider::Anthropic => "anthropic",
        Provider::OpenAi | Provider::OpenAiResponses => "openai",
        Provider::Bedrock => "aws.bedrock",
    }
}

fn integer(tokens: u64) -> i64 {
    i64::try_from(tokens).unwrap_or(i64::MAX)
}
