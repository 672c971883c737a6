//! Level 3: old tool results are cleared, and nothing else.

use std::collections::BTreeSet;

use super::decision::{Decision, DecisionContext, SkipReason, answered, check_revision};
use super::persist::shrunk;
use super::reject::Rejection;
use crate::event::{
    CacheEditsIssued, ClearMode, Event, PinPlace, RequestStamp, ResultsCleared, StoredResult,
    Trigger,
};
use crate::ids::{CallKey, Ordinal, Revision};
use crate::levels::clearing::{hidden_paths, is_clearable, read_tool};
use crate::levels::repair::{PieceAction, repair_layout};
use crate::levels::results::save;
use crate::session::Session;
use crate::tokens::estimate_text;
use crate::view::{CLEARED, PieceForm, Speaker, shown_tokens, side};

/// Clear old results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clear {
    /// What makes it act.
    pub clearing: Clearing,
    /// The revision that the caller decided upon.
    pub expected_revision: Option<Revision>,
    /// So that a retry is recognised.
    pub request: Option<RequestStamp>,
}

/// What makes level 3 act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clearing {
    /// A view is prepared.
    Auto {
        /// Whether the caller's request supports edits of the provider's cache.
        cache_edits: bool,
        /// Where the last message of its array stands, as far as that is known.
        last: Option<PinPlace>,
    },
    /// A caller asks, whatever the thresholds say.
    Manual {
        /// Clear until the clearable results have at most so many tokens.
        target_tokens: Option<u64>,
    },
}

/// What is to be cleared.
struct ClearPlan {
    mode: ClearMode,
    calls: Vec<CallKey>,
    /// Whether they are stored first.
    save: bool,
}

impl Clear {
    pub(super) fn decide(
        self,
        session: &Session,
        context: DecisionContext<'_>,
    ) -> Result<Decision, Rejection> {
        if let Some(revision) = answered(session, self.request.as_ref(), context)? {
            return Ok(Decision::Answered(revision));
        }
        check_revision(session, self.expected_revision)?;
        let policy = &session.policy().microcompact;
        if !policy.enabled {
            return Ok(Decision::Skipped(SkipReason::Disabled));
        }
        let (plan, asked) = match self.clearing {
            Clearing::Manual { target_tokens } => {
                let target = target_tokens.unwrap_or(policy.size.target_tokens.into());
                (by_size(session, target, 0), Trigger::Manual)
            }
            Clearing::Auto { cache_edits, last } => {
                let mut outcome = by_time(session, context);
                if outcome.is_err()
                    && cache_edits
                    && policy.cached.enabled
                    && let Some(event) = cached(session, context, last)
                {
                    return Ok(Decision::Events(vec![Event::CacheEditsIssued(event)]));
                }
                if let Err(first) = outcome {
                    outcome = under_pressure(session).or_else(|second| {
                        by_pruning(session).map_err(|third| {
                            [first, second, third]
                                .into_iter()
                                .find(|skip| *skip != SkipReason::Disabled)
                                .unwrap_or(SkipReason::Disabled)
                        })
                    });
                }
                (outcome, Trigger::Auto)
            }
        };
        match plan {
            Err(skip) => Ok(Decision::Skipped(skip)),
            Ok(plan) => {
                let event = plan.event(session, asked, self.request, context)?;
                Ok(Decision::Events(vec![Event::ResultsCleared(event)]))
            }
        }
    }
}

impl ClearPlan {
    fn event(
        self,
        session: &Session,
        asked: Trigger,
        request: Option<RequestStamp>,
        context: DecisionContext<'_>,
    ) -> Result<ResultsCleared, Rejection> {
        let policy = session.policy();
        let mut saved: Vec<StoredResult> = Vec::new();
        if self.save && context.can_store {
            let tool = read_tool(policy);
            let names = context.names(session);
            for call in &self.calls {
                let result = session.result(*call)?;
                saved.push(save(names, policy, *call, result, &tool));
            }
        }
        let stored = |call| {
            saved
                .iter()
                .find(|stored: &&StoredResult| stored.call == call)
        };
        let change = repair_layout(session, |_, piece| match piece.form {
            PieceForm::Result(call) | PieceForm::ResultWithoutMedia(call)
                if self.calls.contains(&call) =>
            {
                PieceAction::Become(match stored(call) {
                    Some(_) => PieceForm::Stored(call),
                    None => PieceForm::Cleared(call),
                })
            }
            _ => PieceAction::Stay,
        })?;
        let marker = estimate_text(CLEARED);
        let after = |call| stored(call).map_or(marker, |stored| stored.text_tokens);
        let sizes = shrunk(session, self.calls.iter().map(|call| (*call, after(*call))));
        Ok(ResultsCleared {
            mode: self.mode,
            trigger: asked,
            hidden_paths: hidden_paths(session, &self.calls)?,
            before_tokens: session.tokens().tokens,
            freed_tokens: super::snip::freed(session, &BTreeSet::new(), &sizes),
            sizes,
            change,
            request,
            calls: self.calls,
            saved,
        })
    }
}

/// The live results that may be cleared, oldest first.
fn clearable(session: &Session) -> Vec<CallKey> {
    let live = session.sealed().live().iter();
    live.copied()
        .filter(|call| is_clearable(session, *call))
        .collect()
}

/// What clearing a result frees.
fn freed(session: &Session, call: CallKey) -> u64 {
    let shown = shown_tokens(session.calls(), PieceForm::Result(call), call);
    u64::from(shown.saturating_sub(estimate_text(CLEARED)))
}

/// The prompt cache is cold: all but the last few go.
fn by_time(session: &Session, context: DecisionContext<'_>) -> Result<ClearPlan, SkipReason> {
    let policy = &session.policy().microcompact.time;
    if !policy.enabled || session.about().parent.is_some() {
        return Err(SkipReason::Disabled);
    }
    let last = session.last_response().ok_or(SkipReason::NothingEligible)?;
    if context.now.millis_since(last) <= policy.idle.get() {
        return Err(SkipReason::UnderThreshold);
    }
    let mut calls = clearable(session);
    let kept = calls.len().min(policy.keep_results as usize);
    calls.truncate(calls.len() - kept);
    if calls.is_empty() {
        return Err(SkipReason::NothingEligible);
    }
    Ok(ClearPlan {
        mode: ClearMode::Time,
        calls,
        save: false,
    })
}

/// The view is over the warning threshold.
fn under_pressure(session: &Session) -> Result<ClearPlan, SkipReason> {
    let policy = &session.policy().microcompact.size;
    if !policy.enabled {
        return Err(SkipReason::Disabled);
    }
    if session.tokens().tokens <= session.thresholds().warn {
        return Err(SkipReason::UnderThreshold);
    }
    by_size(
        session,
        policy.target_tokens.into(),
        policy.min_freed_tokens.into(),
    )
}

/// The oldest go until the rest is within the target.
fn by_size(session: &Session, target: u64, least: u64) -> Result<ClearPlan, SkipReason> {
    let policy = &session.policy().microcompact.size;
    let mut calls = clearable(session);
    let size = |call: &CallKey| {
        u64::from(shown_tokens(
            session.calls(),
            PieceForm::Result(*call),
            *call,
        ))
    };
    let mut left: u64 = calls.iter().map(size).sum();
    let kept = calls.len().min(policy.keep_results as usize);
    calls.truncate(calls.len() - kept);
    calls.retain(|call| {
        let goes = left > target && freed(session, *call) > 0;
        if goes {
            left -= freed(session, *call);
        }
        goes
    });
    if calls.is_empty() {
        return Err(SkipReason::NothingEligible);
    }
    let gain: u64 = calls.iter().map(|call| freed(session, *call)).sum();
    if gain < least {
        return Err(SkipReason::TooLittleGain);
    }
    Ok(ClearPlan {
        mode: ClearMode::Size,
        calls,
        save: true,
    })
}

/// Backwards from the end: behind the last turns and the last so many tokens of results, up to where
/// an earlier pruning ended.
fn by_pruning(session: &Session) -> Result<ClearPlan, SkipReason> {
    let policy = &session.policy().microcompact.prune;
    if !policy.enabled {
        return Err(SkipReason::Disabled);
    }
    let visible = |start: &&Ordinal| session.transcript().is_visible(**start);
    let starts = session.turns().starts().iter().rev().filter(visible);
    let Some(recent) = starts.take(policy.keep_turns as usize).last() else {
        return Err(SkipReason::NothingEligible);
    };
    let mut kept = 0;
    let mut calls = Vec::new();
    let mut gain = 0;
    let floor = session.sealed().last_cleared();
    for call in session.sealed().live().iter().rev().copied() {
        if floor.is_some_and(|floor| call <= floor) {
            break;
        }
        let Some(known) = session.calls().get(call) else {
            continue;
        };
        if known.message >= *recent || !is_clearable(session, call) {
            continue;
        }
        kept += u64::from(known.result_tokens);
        if kept > u64::from(policy.keep_tokens) && freed(session, call) > 0 {
            gain += freed(session, call);
            calls.push(call);
        }
    }
    if calls.is_empty() {
        return Err(SkipReason::NothingEligible);
    }
    if gain <= u64::from(policy.min_freed_tokens) {
        return Err(SkipReason::TooLittleGain);
    }
    calls.reverse();
    Ok(ClearPlan {
        mode: ClearMode::Prune,
        calls,
        save: false,
    })
}

/// Edits of the provider's cache: only of results that an earlier request has put there.
fn cached(
    session: &Session,
    context: DecisionContext<'_>,
    place: Option<PinPlace>,
) -> Option<CacheEditsIssued> {
    let policy = &session.policy().microcompact.cached;
    let last = session
        .sealed()
        .pieces()
        .iter()
        .rfind(|piece| piece.form.is_shown())?;
    // What stands for a person's words that have left is no place that lasts.
    let lasts = session.transcript().is_visible(last.message);
    if side(last, session.transcript()) != Speaker::User || !lasts {
        return None;
    }
    let after = session.cache_edits().last();
    let live = session.sealed().live().iter().rev().copied();
    let mut fresh: Vec<CallKey> = live
        .take_while(|call| after.is_none_or(|after| *call > after))
        .filter(|call| is_clearable(session, *call))
        .collect();
    fresh.reverse();
    if fresh.len() <= policy.over_results as usize {
        return None;
    }
    fresh.truncate(fresh.len() - fresh.len().min(policy.keep_results as usize));
    let new = session.sealed().newest_results();
    fresh.retain(|call| !new.contains(call));
    if fresh.is_empty() {
        return None;
    }
    // What follows a change of the view is new to the provider too, until it has answered.
    let target = &session.last_served().target;
    let reused = session.cache_report(target, context.now).reused_pieces;
    let cached = session.sealed().pieces().iter().take(reused);
    let cached: BTreeSet<CallKey> = cached.filter_map(|piece| piece.form.answers()).collect();
    fresh.retain(|call| cached.contains(call));
    let size = |call: &CallKey| {
        let call = session.calls().get(*call);
        call.map_or(0, |call| u64::from(call.result_tokens))
    };
    (!fresh.is_empty()).then(|| CacheEditsIssued {
        before_tokens: session.tokens().tokens,
        freed_tokens: fresh.iter().map(size).sum(),
        calls: fresh,
        message: last.message,
        place,
    })
}
