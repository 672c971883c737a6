//! Level 1: large results are stored when they come in, and when the message that they are sent in
//! would hold too much.

use std::collections::BTreeMap;

use super::Context;
use crate::event::ResultsPersisted;
use crate::ids::{CallKey, Ordinal};
use crate::levels::results::{Stored, exemption, limit, persist};
use crate::session::{NotHeld, Pairing, Session};
use crate::tokens::Size;
use crate::view::{Form, Piece, Side, side};

/// Stores the results over their limits among the messages from `from` on, which wait to be served.
pub(super) fn at_intake(
    session: &Session,
    from: Ordinal,
    context: Context<'_>,
) -> Result<Option<ResultsPersisted>, NotHeld> {
    let policy = &session.policy().tool_results;
    if !policy.enabled || !context.can_store {
        return Ok(None);
    }
    let mut chosen = Vec::new();
    for item in session.pending().iter().filter(|item| item.message >= from) {
        for (_, pairing) in &item.blocks {
            let Some(Pairing::Answer(call)) = pairing else {
                continue;
            };
            let Some(known) = session.calls().get(*call) else {
                continue;
            };
            if limit(policy, &known.name, None).is_some_and(|most| known.result_chars > most) {
                chosen.push(*call);
            }
        }
    }
    store(session, &chosen)
}

/// Stores results that are about to be served, largest first, until each message that they are sent
/// in is within its limit. Results that were served count, and are left alone.
pub(super) fn at_serving(
    session: &Session,
    pieces: &mut [Piece],
    context: Context<'_>,
) -> Result<Option<ResultsPersisted>, NotHeld> {
    let policy = &session.policy().tool_results;
    if !policy.enabled || !context.can_store || policy.max_message_chars == 0 {
        return Ok(None);
    }
    let mut chosen = Vec::new();
    let mut chars = sealed_chars(session);
    let mut group = Vec::new();
    for piece in pieces.iter().filter(|piece| piece.form.is_shown()) {
        if side(piece, session.transcript()) == Side::Assistant {
            choose(session, &mut group, chars, &mut chosen);
            chars = 0;
            continue;
        }
        chars += chars_of(session, piece.form);
        if let Form::Result(call) = piece.form {
            group.push(call);
        }
    }
    choose(session, &mut group, chars, &mut chosen);
    let event = store(session, &chosen)?;
    let results = event.iter().flat_map(|event| &event.results);
    let stored: BTreeMap<CallKey, &Stored> = results.map(|one| (one.call, one)).collect();
    for piece in pieces {
        if let Form::Result(call) = piece.form
            && stored.contains_key(&call)
        {
            piece.form = Form::Stored(call);
        }
    }
    Ok(event)
}

/// The largest results of one message until the rest is within the limit.
fn choose(session: &Session, group: &mut Vec<CallKey>, mut chars: u64, chosen: &mut Vec<CallKey>) {
    let policy = &session.policy().tool_results;
    let size = |call: &CallKey| {
        session
            .calls()
            .get(*call)
            .map_or(0, |call| call.result_chars)
    };
    let may_leave = |call: &CallKey| {
        let name = session.calls().get(*call).map(|call| &*call.name);
        limit(policy, name.unwrap_or_default(), None).is_some()
    };
    group.retain(may_leave);
    // Of equals the earlier leaves first.
    group.sort_by_key(|call| (std::cmp::Reverse(size(call)), *call));
    let preview = u64::from(policy.preview_bytes) + PREVIEW_FRAME_CHARS;
    for call in group.drain(..) {
        let saved = size(&call).saturating_sub(preview);
        if chars <= policy.max_message_chars || saved == 0 {
            continue;
        }
        let exempt = session.result(call).is_ok_and(|result| {
            exemption(result, |text| session.stored().is_replacement(text)).is_some()
        });
        if !exempt {
            chars -= saved;
            chosen.push(call);
        }
    }
}

/// What a replacement has beside its preview, roughly.
const PREVIEW_FRAME_CHARS: u64 = 250;

/// The characters of the results in the last user message that was served, when the model has not
/// answered it yet.
fn sealed_chars(session: &Session) -> u64 {
    let pieces = session.sealed().pieces().iter().rev();
    let shown = pieces.filter(|piece| piece.form.is_shown());
    let open = shown.take_while(|piece| side(piece, session.transcript()) == Side::User);
    open.map(|piece| chars_of(session, piece.form)).sum()
}

fn chars_of(session: &Session, form: Form) -> u64 {
    match form {
        Form::Result(call) | Form::ResultWithoutMedia(call) => session
            .calls()
            .get(call)
            .map_or(0, |call| call.result_chars),
        Form::Stored(call) => session.stored().text(call).chars().count() as u64,
        _ => 0,
    }
}

/// The event that stores the results of some calls, as far as they can be.
fn store(session: &Session, calls: &[CallKey]) -> Result<Option<ResultsPersisted>, NotHeld> {
    let policy = &session.policy().tool_results;
    let mut event = ResultsPersisted::default();
    for call in calls {
        let result = session.result(*call)?;
        let is_known = |text: &str| session.stored().is_replacement(text);
        if session.stored().get(*call).is_none() && exemption(result, is_known).is_none() {
            event
                .results
                .push(persist(session.key(), policy, *call, result));
        }
    }
    event.sizes = shrunk(
        session,
        event.results.iter().map(|s| (s.call, s.text_tokens)),
    );
    Ok((!event.results.is_empty()).then_some(event))
}

/// The sizes that messages have when the results of some calls have other sizes.
pub(super) fn shrunk(
    session: &Session,
    results: impl Iterator<Item = (CallKey, u32)>,
) -> Vec<(Ordinal, Size)> {
    let mut sizes: BTreeMap<Ordinal, Size> = BTreeMap::new();
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
