//! Level 3: clears old tool results. Their calls stay in the view.

use std::collections::BTreeSet;

use super::decision::{Decided, Decision, DecisionContext, SkipReason};
use super::persist::sizes_after_change;
use super::reject::Rejection;
use crate::effect::{Effect, StoreFile};
use crate::event::{
    ArrayPosition, CacheEditsIssued, ClearMode, Event, RequestStamp, ResultsCleared, StoredResult,
    Trigger,
};
use crate::ids::{CallKey, Ordinal, Revision, Timestamp};
use crate::levels::clearing::{hidden_paths, is_clearable, read_tool};
use crate::levels::repair::{PieceAction, repair_layout};
use crate::levels::results::stored_for_clearing;
use crate::session::Session;
use crate::tokens::estimate_text;
use crate::view::{CLEARED, PieceForm, Speaker, shown_tokens, speaker};

/// Clears old tool results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClearResults {
    /// The trigger and its parameters.
    pub trigger: ClearTrigger,
    /// The revision that the caller expects. `None` accepts any.
    pub expected_revision: Option<Revision>,
    /// The stamp that identifies retries.
    pub request: Option<RequestStamp>,
}

/// The trigger of level 3 and its parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClearTrigger {
    /// A view is being prepared. The policy's thresholds decide.
    Auto {
        /// True if the caller's request supports cache edits.
        cache_edits: bool,
        /// The position of the last message in the caller's array, if known.
        last: Option<ArrayPosition>,
    },
    /// A caller requested it. The thresholds are ignored.
    Manual {
        /// Clears until the clearable results have at most this number of tokens. `None`: the policy's target.
        target_tokens: Option<u64>,
    },
}

/// The results to clear.
pub(super) struct ClearPlan {
    mode: ClearMode,
    calls: Vec<CallKey>,
    /// True if the results are stored first.
    stores_results: bool,
}

impl ClearResults {
    pub(super) fn decide(
        self,
        session: &Session,
        context: DecisionContext<'_>,
    ) -> Result<Decided, Rejection> {
        let policy = &session.policy().microcompact;
        if !policy.enabled {
            return Ok(Decided::Skipped(SkipReason::Disabled));
        }
        let (plan, asked) = match self.trigger {
            ClearTrigger::Manual { target_tokens } => {
                let target = target_tokens.unwrap_or(policy.size.target_tokens.into());
                (plan_by_size(session, target, 0), Trigger::Manual)
            }
            ClearTrigger::Auto { cache_edits, last } => {
                // The order follows the cost. A cold cache makes clearing free, and a cache edit keeps the cached
                // prefix. Clearing by size and pruning rewrite the prefix.
                let mut outcome = plan_by_time(session, context.now);
                if outcome.is_err()
                    && cache_edits
                    && policy.cached.enabled
                    && let Some(event) = issue_cache_edits(session, context, last)
                {
                    return Ok(Decided::events(vec![Event::CacheEditsIssued(event)]));
                }
                if let Err(first) = outcome {
                    outcome = plan_by_pressure(session).or_else(|second| {
                        let least = policy.prune.min_freed_tokens.into();
                        // The most specific reason is reported: the first that is not `Disabled`.
                        plan_by_pruning(session, least).map_err(|third| {
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
        decide_plan(plan, session, (asked, self.request), context)
    }
}

/// Returns the results that the input of a summary leaves out. Before a compaction by hand, these are the results that
/// the enabled modes of level 3 would clear without their thresholds. Before other compactions, level 3 has run on the
/// view already.
pub fn cleared_for_summary(
    session: &Session,
    trigger: Trigger,
    now: Timestamp,
) -> BTreeSet<CallKey> {
    let policy = &session.policy().microcompact;
    if !policy.enabled || !trigger.is_by_hand() {
        return BTreeSet::new();
    }
    let by_size = |_| {
        let size = &policy.size;
        let is_enabled = size.enabled.then_some(()).ok_or(SkipReason::Disabled);
        is_enabled.and_then(|()| plan_by_size(session, size.target_tokens.into(), 0))
    };
    let plan = plan_by_time(session, now)
        .or_else(by_size)
        .or_else(|_| plan_by_pruning(session, 0));
    plan.map_or_else(|_| BTreeSet::new(), |plan| plan.calls.into_iter().collect())
}

/// Carries out a plan.
pub(super) fn decide_plan(
    plan: Result<ClearPlan, SkipReason>,
    session: &Session,
    (asked, request): (Trigger, Option<RequestStamp>),
    context: DecisionContext<'_>,
) -> Result<Decided, Rejection> {
    Ok(match plan {
        Err(skip) => Decided::Skipped(skip),
        Ok(plan) => Decided::Now(plan.decision(session, asked, request, context)?),
    })
}

impl ClearPlan {
    /// Creates a plan by size. Skips if less than `least` tokens would be freed.
    pub(super) fn by_size(
        session: &Session,
        calls: Vec<CallKey>,
        least: u64,
        stores_results: bool,
    ) -> Result<Self, SkipReason> {
        if calls.is_empty() {
            return Err(SkipReason::NothingEligible);
        }
        let gain: u64 = calls.iter().map(|call| freed_tokens(session, *call)).sum();
        if gain < least {
            return Err(SkipReason::TooLittleGain);
        }
        Ok(Self {
            mode: ClearMode::Size,
            calls,
            stores_results,
        })
    }

    fn decision(
        self,
        session: &Session,
        asked: Trigger,
        request: Option<RequestStamp>,
        context: DecisionContext<'_>,
    ) -> Result<Decision, Rejection> {
        let policy = session.policy();
        // Without a usable file store, the results are cleared without a copy. The log still has the originals.
        let mut saved: Vec<StoredResult> = Vec::new();
        let mut effects = Vec::new();
        if self.stores_results && context.can_store {
            let tool = read_tool(policy);
            let names = context.names(session);
            for call in &self.calls {
                let result = session.result(*call)?;
                let stored = stored_for_clearing(names, policy, *call, result, &tool);
                effects.push(Effect::StoreFile(StoreFile::of_call(session, &stored)?));
                saved.push(stored);
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
                PieceAction::ChangeForm(match stored(call) {
                    Some(_) => PieceForm::Stored(call),
                    None => PieceForm::Cleared(call),
                })
            }
            _ => PieceAction::Keep,
        })?;
        let marker = estimate_text(CLEARED);
        let after = |call| stored(call).map_or(marker, |stored| stored.replacement_tokens);
        let sizes =
            sizes_after_change(session, self.calls.iter().map(|call| (*call, after(*call))));
        let event = ResultsCleared {
            mode: self.mode,
            trigger: asked,
            hidden_paths: hidden_paths(session, |call| self.calls.contains(&call))?,
            before_tokens: session.tokens().tokens,
            freed_tokens: super::snip::freed_tokens(session, &BTreeSet::new(), &sizes),
            sizes,
            change,
            request,
            calls: self.calls,
            stored: saved,
        };
        Ok(Decision {
            events: vec![Event::ResultsCleared(event)],
            effects,
        })
    }
}

/// Returns the clearable results of the sealed view, oldest first.
fn clearable(session: &Session) -> Vec<CallKey> {
    let live = session.sealed().live_results().iter();
    live.copied()
        .filter(|call| is_clearable(session, *call))
        .collect()
}

/// Returns the tokens that clearing a result frees.
pub(super) fn freed_tokens(session: &Session, call: CallKey) -> u64 {
    let shown = shown_tokens(session.calls(), PieceForm::Result(call), call);
    u64::from(shown.saturating_sub(estimate_text(CLEARED)))
}

/// Clears all but the latest results, because the prompt cache is cold.
fn plan_by_time(session: &Session, now: Timestamp) -> Result<ClearPlan, SkipReason> {
    // Subagent sessions are never cleared by time.
    let policy = &session.policy().microcompact.time;
    if !policy.enabled || session.info().parent.is_some() {
        return Err(SkipReason::Disabled);
    }
    let last = session.last_response().ok_or(SkipReason::NothingEligible)?;
    if now.millis_since(last) <= policy.idle.get() {
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
        stores_results: false,
    })
}

/// Clears by size if the view is above the warning threshold.
fn plan_by_pressure(session: &Session) -> Result<ClearPlan, SkipReason> {
    let policy = &session.policy().microcompact.size;
    if !policy.enabled {
        return Err(SkipReason::Disabled);
    }
    if session.tokens().tokens <= session.thresholds().warn {
        return Err(SkipReason::UnderThreshold);
    }
    plan_by_size(
        session,
        policy.target_tokens.into(),
        policy.min_freed_tokens.into(),
    )
}

/// Clears the oldest results until the remaining ones are within `target` tokens. Skips if less than `least` tokens
/// would be freed.
fn plan_by_size(session: &Session, target: u64, least: u64) -> Result<ClearPlan, SkipReason> {
    let policy = &session.policy().microcompact.size;
    let mut calls = clearable(session);
    let size = |call: &CallKey| {
        u64::from(shown_tokens(
            session.calls(),
            PieceForm::Result(*call),
            *call,
        ))
    };
    // The target applies to all clearable results, so the protected ones are included.
    let mut left: u64 = calls.iter().map(size).sum();
    let kept = calls.len().min(policy.keep_results as usize);
    calls.truncate(calls.len() - kept);
    calls.retain(|call| {
        // A result that is not larger than the marker would free nothing, so it stays.
        let goes = left > target && freed_tokens(session, *call) > 0;
        if goes {
            left -= freed_tokens(session, *call);
        }
        goes
    });
    ClearPlan::by_size(session, calls, least, true)
}

/// Clears backwards from the end. The latest turns and the latest `keep_tokens` of results stay. The search stops at
/// the newest result that was cleared before. Skips unless more than `least` tokens are freed.
fn plan_by_pruning(session: &Session, least: u64) -> Result<ClearPlan, SkipReason> {
    let policy = &session.policy().microcompact.prune;
    if !policy.enabled {
        return Err(SkipReason::Disabled);
    }
    let visible = |start: &&Ordinal| session.transcript().is_in_view(**start);
    let starts = session.turns().starts().iter().rev().filter(visible);
    let Some(recent) = starts.take(policy.keep_turns as usize).last() else {
        return Err(SkipReason::NothingEligible);
    };
    let mut kept = 0;
    let mut calls = Vec::new();
    let mut gain = 0;
    let floor = session.sealed().last_cleared();
    for call in session.sealed().live_results().iter().rev().copied() {
        // Older results were considered by an earlier pass.
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
        if kept > u64::from(policy.keep_tokens) && freed_tokens(session, call) > 0 {
            gain += freed_tokens(session, call);
            calls.push(call);
        }
    }
    if calls.is_empty() {
        return Err(SkipReason::NothingEligible);
    }
    // Pruning frees more than the minimum or nothing. Clearing by size accepts the minimum itself.
    if gain <= least {
        return Err(SkipReason::TooLittleGain);
    }
    calls.reverse();
    Ok(ClearPlan {
        mode: ClearMode::Prune,
        calls,
        stores_results: false,
    })
}

/// Issues cache edits for results that an earlier request has put into the provider's cache.
fn issue_cache_edits(
    session: &Session,
    context: DecisionContext<'_>,
    position: Option<ArrayPosition>,
) -> Option<CacheEditsIssued> {
    // The edit is carried by the last message of the array, which must be a user message.
    let policy = &session.policy().microcompact.cached;
    let last = session
        .sealed()
        .pieces()
        .iter()
        .rfind(|piece| piece.form.is_shown())?;
    // The position must stay valid, so the message itself has to be visible and not only a synthetic piece of it.
    let lasts = session.transcript().is_in_view(last.message);
    if speaker(last, session.transcript()) != Speaker::User || !lasts {
        return None;
    }
    // Earlier edits stay in effect and are repeated with each request, so only later results are new.
    let after = session.cache_edits().last();
    let live = session.sealed().live_results().iter().rev().copied();
    let mut fresh: Vec<CallKey> = live
        .take_while(|call| after.is_none_or(|after| *call > after))
        .filter(|call| is_clearable(session, *call))
        .collect();
    fresh.reverse();
    if fresh.len() <= policy.over_results as usize {
        return None;
    }
    fresh.truncate(fresh.len() - fresh.len().min(policy.keep_results as usize));
    // No request before the latest serving contained these results, so they are not cached.
    let new = session.sealed().newest_results();
    fresh.retain(|call| !new.contains(call));
    if fresh.is_empty() {
        return None;
    }
    // After a view-changing event, the rest of the view is not cached until the next response.
    let target = &session.last_served().target;
    let reused = session.cache_report(target, context.now).reused_pieces;
    let cached = session.sealed().pieces().iter().take(reused);
    let cached: BTreeSet<CallKey> = cached
        .filter_map(|piece| piece.form.answered_call_key())
        .collect();
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
        position,
    })
}
