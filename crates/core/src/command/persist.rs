//! Level 1: stores large results when they are appended, and when the message that carries them exceeds its limit.

use std::collections::BTreeMap;

use super::decision::{Decision, DecisionContext};
use crate::effect::{Effect, StoreFile};
use crate::event::{
    CallState, Event, Pairing, PersistDecisionsConsumed, ResultsPersisted, StoredResult,
};
use crate::ids::{CallKey, Ordinal};
use crate::levels::results::{FileNamer, exemption, inline_limit, stored_with_preview};
use crate::session::{Call, ContentNotLoaded, ResultMatch, Session};
use crate::tokens::TokenSize;
use crate::view::{Piece, PieceForm, Speaker, speaker};

/// Stores the results above their limits among the pending messages from `from` on. Earlier persist decisions about
/// these results are binding.
pub(super) fn persist_on_append(
    session: &Session,
    from: Ordinal,
    context: DecisionContext<'_>,
) -> Result<Decision, ContentNotLoaded> {
    let policy = &session.policy().tool_results;
    let can_store = policy.enabled && context.can_store;
    let (mut settled, mut offered) = (PersistDecisionsConsumed::default(), Vec::new());
    let mut chosen = Vec::new();
    for call in answered_calls(session, from) {
        let Some(known) = session.calls().get(call) else {
            continue;
        };
        if session.persist_decisions().iter().len() > 0 {
            let result = session.result(call)?;
            let fulfilled = session.persist_decisions().find_match(call, result);
            // A decision for this call about another result is obsolete. If it stored a file, it stays, so that the
            // reference remains valid.
            let own = session.persist_decisions().find_by_call(call);
            let overtaken = own.filter(|decision| decision.stored.is_none());
            let over = fulfilled.map(|(decision, _)| decision).or(overtaken);
            settled.decisions.extend(over.map(|decision| decision.key));
            if let Some((decision, how)) = fulfilled {
                let only_file = how == ResultMatch::Replacement;
                let stored = decision.stored.clone();
                offered.extend(stored.map(|stored| stored.bind(call, only_file)));
                continue;
            }
        }
        let over = |most| known.result_chars > most;
        // A late result is shown as text and in full.
        let is_late = matches!(known.state, CallState::Late { .. });
        let stays = is_late || is_pinned(session, call);
        if can_store && !stays && inline_limit(policy, &known.name, None).is_some_and(over) {
            chosen.push(call);
        }
    }
    let (persisted, effects) = persisted_event(session, context.names(session), &chosen, offered)?;
    let mut events: Vec<Event> = persisted.map(Event::ResultsPersisted).into_iter().collect();
    if !settled.decisions.is_empty() {
        events.push(Event::PersistDecisionsConsumed(settled));
    }
    Ok(Decision { events, effects })
}

/// Iterates over the calls that pending messages from `from` on answer.
fn answered_calls(session: &Session, from: Ordinal) -> impl Iterator<Item = CallKey> {
    let waiting = session.pending().iter();
    let new = waiting.filter(move |item| item.message >= from);
    let pairings = new.flat_map(|item| item.blocks.iter().filter_map(|(_, pairing)| *pairing));
    pairings.filter_map(|pairing| match pairing {
        Pairing::Answer(call) => Some(call),
        // The call left the view, so its late result is only reported.
        Pairing::Late(call) if session.calls().state(call) != CallState::Gone => Some(call),
        _ => None,
    })
}

/// Stores results that are about to be served, largest first, until each message is within its limit. Results that
/// were served before count toward the limit and are not changed.
pub(super) fn persist_on_serve(
    session: &Session,
    pieces: &mut [Piece],
    context: DecisionContext<'_>,
) -> Result<Persisted, ContentNotLoaded> {
    let policy = &session.policy().tool_results;
    // A limit of 0 disables the limit per message.
    if !policy.enabled || !context.can_store || policy.max_message_chars == 0 {
        return Ok((None, Vec::new()));
    }
    // The new pieces may continue a user message that was served before. Its results count as well.
    let mut chosen = Vec::new();
    let mut chars = sealed_chars(session);
    let mut group = Vec::new();
    // A user message of the array ends at the next assistant piece.
    for piece in pieces.iter().filter(|piece| piece.form.is_shown()) {
        if speaker(piece, session.transcript()) == Speaker::Assistant {
            choose_largest(session, &mut group, chars, &mut chosen);
            chars = 0;
            continue;
        }
        chars += piece_chars(session, piece);
        if let PieceForm::Result(call) = piece.form {
            group.push(call);
        }
    }
    choose_largest(session, &mut group, chars, &mut chosen);
    let (event, effects) = persisted_event(session, context.names(session), &chosen, Vec::new())?;
    let results = event.iter().flat_map(|event| &event.results);
    let stored: BTreeMap<CallKey, &StoredResult> = results.map(|one| (one.call, one)).collect();
    for piece in pieces {
        if let PieceForm::Result(call) = piece.form
            && stored.contains_key(&call)
        {
            piece.form = PieceForm::Stored(call);
        }
    }
    Ok((event, effects))
}

/// Selects the largest results of one message until the rest is within the limit.
fn choose_largest(
    session: &Session,
    group: &mut Vec<CallKey>,
    mut chars: u64,
    chosen: &mut Vec<CallKey>,
) {
    let policy = &session.policy().tool_results;
    let size = |call: &CallKey| {
        session
            .calls()
            .get(*call)
            .map_or(0, |call| call.result_chars)
    };
    let may_leave = |call: &CallKey| {
        let name = session.calls().get(*call).map(|call| &*call.name);
        inline_limit(policy, name.unwrap_or_default(), None).is_some()
    };
    group.retain(may_leave);
    // Among results of equal size, the earlier one is stored first.
    group.sort_by_key(|call| (std::cmp::Reverse(size(call)), *call));
    let preview = u64::from(policy.preview_chars) + PREVIEW_FRAME_CHARS;
    for call in group.drain(..) {
        // A result that is not larger than its replacement text saves nothing.
        let saved = size(&call).saturating_sub(preview);
        if chars <= policy.max_message_chars || saved == 0 {
            continue;
        }
        // A result whose content is not in memory counts as not exempt. `persisted_event` then returns
        // `ContentNotLoaded`, and the command is decided again with the content.
        let exempt = session
            .result(call)
            .is_ok_and(|result| exemption(result, |text| session.is_replacement(text)).is_some());
        if !exempt && !is_pinned(session, call) {
            // `chars` still includes the whole size of this result, so the difference is not negative.
            chars -= saved;
            chosen.push(call);
        }
    }
}

/// Returns true if the call's result is pinned. A pinned result stays as appended.
fn is_pinned(session: &Session, call: CallKey) -> bool {
    let place = session.calls().get(call).and_then(Call::result);
    place.is_some_and(|(message, block)| session.pins().pin_of_block(message, block).is_some())
}

/// Approximate length of a replacement text without its preview, in characters.
const PREVIEW_FRAME_CHARS: u64 = 250;

/// Returns the characters of the results in the last served user message, if the model has not answered it yet.
fn sealed_chars(session: &Session) -> u64 {
    let pieces = session.sealed().pieces().iter().rev();
    let shown = pieces.filter(|piece| piece.form.is_shown());
    let open = shown.take_while(|piece| speaker(piece, session.transcript()) == Speaker::User);
    open.map(|piece| piece_chars(session, piece)).sum()
}

fn piece_chars(session: &Session, piece: &Piece) -> u64 {
    match piece.form {
        PieceForm::Result(call) | PieceForm::ResultWithoutMedia(call) => session
            .calls()
            .get(call)
            .map_or(0, |call| call.result_chars),
        PieceForm::Stored(_) => session
            .stored_results()
            .at(piece.message, piece.block)
            .map_or(0, |stored| stored.replacement.chars().count() as u64),
        _ => 0,
    }
}

/// The event of the stored results, if there are any, and the effects that store their files.
type Persisted = (Option<ResultsPersisted>, Vec<Effect>);

/// Builds the event that stores the results of `calls`, together with results that were stored by earlier decisions.
/// The files of earlier decisions exist, so they have no effect.
fn persisted_event(
    session: &Session,
    names: FileNamer<'_>,
    calls: &[CallKey],
    offered: Vec<StoredResult>,
) -> Result<Persisted, ContentNotLoaded> {
    let policy = session.policy();
    let mut effects = Vec::new();
    let mut event = ResultsPersisted {
        results: offered,
        before_tokens: session.tokens().tokens,
        ..ResultsPersisted::default()
    };
    // A result that is stored already keeps its file and its replacement text.
    for call in calls {
        let result = session.result(*call)?;
        let is_known = |text: &str| session.is_replacement(text);
        let place = session.calls().get(*call).and_then(Call::result);
        let stored = place.and_then(|(message, block)| session.stored_results().at(message, block));
        if stored.is_none() && exemption(result, is_known).is_none() {
            let stored = stored_with_preview(names, policy, *call, result);
            effects.push(Effect::StoreFile(StoreFile::of_call(session, &stored)?));
            event.results.push(stored);
        }
    }
    // An appended replacement was counted at its own size, and a late result is shown in full.
    event.sizes = sizes_after_change(
        session,
        event
            .results
            .iter()
            .filter(|stored| !stored.original_only_in_file && is_answered(session, stored.call))
            .map(|stored| (stored.call, stored.replacement_tokens)),
    );
    let event = (!event.results.is_empty()).then_some(event);
    Ok((event, effects))
}

/// Returns true if the call has a result that is shown as a result, not as text.
fn is_answered(session: &Session, call: CallKey) -> bool {
    matches!(session.calls().state(call), CallState::Answered { .. })
}

/// Returns the new sizes of messages after the results of some calls changed their sizes.
pub(super) fn sizes_after_change(
    session: &Session,
    results: impl Iterator<Item = (CallKey, u32)>,
) -> Vec<(Ordinal, TokenSize)> {
    let mut sizes: BTreeMap<Ordinal, TokenSize> = BTreeMap::new();
    for (call, tokens) in results {
        let Some(known) = session.calls().get(call) else {
            continue;
        };
        let Some((message, _)) = known.result() else {
            continue;
        };
        let Some(entry) = session.transcript().get(message) else {
            continue;
        };
        let size = sizes.entry(message).or_insert(entry.size);
        *size = size.with_result(known.result_tokens, tokens);
    }
    sizes.into_iter().collect()
}
