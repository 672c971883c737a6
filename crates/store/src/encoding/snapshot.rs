//! Encoding of snapshots and list rows.

use std::collections::HashMap;
use std::sync::Arc;

use palimpsest_core::ids::{Epoch, MessageId, Ordinal, Revision, SessionKey, Timestamp};
use palimpsest_core::message::Digest;
use palimpsest_core::policy::TokenEstimator;
use palimpsest_core::session::{
    About, AnsweredRequest, Call, PositionedResult, RequestMethod, RequestStamp, Snapshot,
    SnapshotEntry, SnipGrowth, WaitsFor,
};
use palimpsest_core::tokens::Size;
use palimpsest_core::view::{Seal, Sealed};
use uuid::Uuid;

use super::error::{DecodeError, sixteen, sixteens};
use super::stamp::{read_stamp, write_stamp};
use super::{
    compaction, event, levels, message, persist_decisions, prompt_cache, session_memory, spans,
    state, v1, view, working,
};

const CUT: DecodeError = DecodeError::Damaged("a list in a snapshot is cut");

pub(super) fn write(snapshot: &Snapshot) -> v1::Snapshot {
    // The lists are stored as columns, one repeated field per attribute, which is smaller and compresses
    // better.
    let mut stored = v1::Snapshot {
        revision: snapshot.revision.get(),
        rules: snapshot.rules,
        policy: Some(event::write_policy(&snapshot.policy)),
        about: Some(write_about(&snapshot.about)),
        entries: Some(write_entries(snapshot)),
        calls: Some(write_calls(&snapshot.calls)),
        pending: snapshot.pending.iter().map(state::write_pending).collect(),
        sealed: Some(write_sealed(&snapshot.sealed)),
        ledger: Some(state::write_ledger(&snapshot.ledger)),
        requests: snapshot.requests.iter().map(write_request).collect(),
        served: Some(view::write_served(&snapshot.last_served)),
        last_reemitted: snapshot.last_reemitted.map(Ordinal::get),
        stored: snapshot
            .stored
            .iter()
            .map(|placed| levels::write_stored(&placed.stored))
            .collect(),
        stored_message: places(snapshot).map(|(message, _)| message).collect(),
        stored_block: places(snapshot).map(|(_, block)| block).collect(),
        offers: snapshot
            .persist_decisions
            .iter()
            .map(persist_decisions::write)
            .collect(),
        next_offer: snapshot.next_persist_decision,
        cache_edits: snapshot.cache_edits.iter().map(levels::write_pin).collect(),
        last_response_ms: snapshot.last_response.map(Timestamp::as_millis),
        messages_since_snip: snapshot.since_snip.messages,
        tokens_since_snip: snapshot.since_snip.tokens,
        spans: Some(spans::write_spans(&snapshot.spans)),
        notes: Some(session_memory::write(&snapshot.memory)),
        compactions: Some(compaction::write(&snapshot.compactions)),
        prompt_cache: Some(prompt_cache::write(&snapshot.prompt_cache)),
        working: working::write(&snapshot.working),
        ..v1::Snapshot::default()
    };
    prompt_cache::write_changes(&snapshot.view_changes, &mut stored);
    stored
}

pub(super) fn read(key: SessionKey, stored: v1::Snapshot) -> Result<Snapshot, DecodeError> {
    let view_changes = prompt_cache::read_changes(&stored)?;
    let entries = stored.entries.unwrap_or_default();
    Ok(Snapshot {
        key,
        view_changes,
        prompt_cache: prompt_cache::read(stored.prompt_cache)?,
        working: working::read(stored.working)?,
        revision: Revision::new(stored.revision),
        rules: stored.rules,
        policy: Arc::new(event::read_policy(stored.policy)?),
        about: read_about(stored.about.unwrap_or_default())?,
        // Absent messages and lists decode to their defaults, because older releases did not write all of
        // them.
        entries: read_entries(&entries)?,
        pictures: read_pictures(&entries)?,
        turns: entries
            .turns
            .iter()
            .map(|turn| Ordinal::new(*turn))
            .collect(),
        calls: read_calls(&stored.calls.unwrap_or_default())?,
        pending: stored
            .pending
            .iter()
            .map(state::read_pending)
            .collect::<Result<_, _>>()?,
        sealed: read_sealed(stored.sealed.unwrap_or_default())?,
        ledger: state::read_ledger(stored.ledger.unwrap_or_default()),
        requests: stored
            .requests
            .into_iter()
            .map(read_request)
            .collect::<Result<_, _>>()?,
        last_served: view::read_served(stored.served)?,
        last_reemitted: stored.last_reemitted.map(Ordinal::new),
        stored: read_placed(stored.stored, &stored.stored_message, &stored.stored_block)?,
        persist_decisions: stored
            .offers
            .into_iter()
            .map(persist_decisions::read)
            .collect::<Result<_, _>>()?,
        next_persist_decision: stored.next_offer,
        cache_edits: stored
            .cache_edits
            .into_iter()
            .map(levels::read_pin)
            .collect::<Result<_, _>>()?,
        last_response: stored.last_response_ms.map(Timestamp::from_millis),
        since_snip: SnipGrowth {
            messages: stored.messages_since_snip,
            tokens: stored.tokens_since_snip,
        },
        spans: spans::read_spans(stored.spans)?,
        memory: session_memory::read(stored.notes)?,
        compactions: compaction::read(stored.compactions)?,
    })
}

/// Returns the positions of stored results as message and block. The core supplies a position for every
/// result.
fn places(snapshot: &Snapshot) -> impl Iterator<Item = (u32, u32)> {
    let places = snapshot.stored.iter().map(|placed| placed.place);
    places.map(|place| place.map_or((0, 0), |(message, block)| (message.get(), block.into())))
}

/// Decodes stored results. The first snapshots of version 1 contain no positions.
fn read_placed(
    stored: Vec<v1::StoredResult>,
    messages: &[u32],
    blocks: &[u32],
) -> Result<Vec<PositionedResult>, DecodeError> {
    let has_places = !messages.is_empty();
    let placed = |(index, stored)| {
        let place = if has_places {
            let message = Ordinal::new(*messages.get(index).ok_or(CUT)?);
            Some((message, view::block(*blocks.get(index).ok_or(CUT)?)?))
        } else {
            None
        };
        Ok(PositionedResult {
            place,
            stored: levels::read_stored(stored)?,
        })
    };
    stored.into_iter().enumerate().map(placed).collect()
}

pub(super) fn write_about(about: &About) -> v1::About {
    v1::About {
        title: about.title.to_string(),
        first_prompt: about.first_prompt.to_string(),
        parent: event::write_parent(about.parent.as_ref()),
        attributes: message::write_attributes(&about.attributes),
        created_ms: about.created.as_millis(),
        modified_ms: about.modified.as_millis(),
        project_path: about.project_path.to_string(),
        branch: about.branch.to_string(),
        hold: about.hold.to_string(),
        user_messages: about.user_messages,
        assistant_messages: about.assistant_messages,
        reported_tokens: about.reported_tokens,
        epoch: about.epoch.get(),
        last_model: about.last_model.to_string(),
        waits_for: match about.waits_for {
            WaitsFor::Anything => v1::WaitsFor::Unspecified,
            WaitsFor::User => v1::WaitsFor::User,
            WaitsFor::Tools => v1::WaitsFor::Tools,
            WaitsFor::Model => v1::WaitsFor::Model,
        }
        .into(),
    }
}

pub(super) fn read_about(stored: v1::About) -> Result<About, DecodeError> {
    let waits_for = match stored.waits_for() {
        v1::WaitsFor::Unspecified => WaitsFor::Anything,
        v1::WaitsFor::User => WaitsFor::User,
        v1::WaitsFor::Tools => WaitsFor::Tools,
        v1::WaitsFor::Model => WaitsFor::Model,
    };
    Ok(About {
        waits_for,
        epoch: Epoch::new(stored.epoch),
        last_model: stored.last_model.into(),
        title: stored.title.into(),
        first_prompt: stored.first_prompt.into(),
        parent: event::read_parent(&stored.parent)?,
        attributes: message::read_attributes(stored.attributes),
        created: Timestamp::from_millis(stored.created_ms),
        modified: Timestamp::from_millis(stored.modified_ms),
        project_path: stored.project_path.into(),
        branch: stored.branch.into(),
        hold: stored.hold.into(),
        user_messages: stored.user_messages,
        assistant_messages: stored.assistant_messages,
        reported_tokens: stored.reported_tokens,
    })
}

fn write_entries(snapshot: &Snapshot) -> v1::Entries {
    let mut stored = v1::Entries {
        turns: snapshot.turns.iter().map(|turn| turn.get()).collect(),
        ..v1::Entries::default()
    };
    let (mut ids, mut digests, mut emissions) = (Vec::new(), Vec::new(), Vec::new());
    let mut counted_by = TokenEstimator::Bytes;
    for (ordinal, entry) in (0_u32..).zip(&snapshot.entries) {
        ids.extend_from_slice(entry.id.get().as_bytes());
        digests.extend_from_slice(entry.digest.as_bytes());
        let (standing, of) = message::write_visibility(entry.standing);
        stored.revision.push(entry.revision.get());
        stored.role.push(message::write_role(entry.role).into());
        stored.standing.push(standing.into());
        stored.standing_of.push(of);
        stored.kind.push(message::write_kind(entry.kind).into());
        stored.tokens.push(entry.size.tokens);
        stored.result_tokens.push(entry.size.result_tokens);
        // The estimator rarely changes within a session, so only the changes are stored.
        if entry.counted_by != counted_by {
            counted_by = entry.counted_by;
            stored.counted_from.push(ordinal);
            stored.counted_by.push(write_estimator(counted_by).into());
        }
        if let Some(emission) = entry.emission {
            stored.emission_of.push(ordinal);
            emissions.extend_from_slice(emission.as_bytes());
        }
    }
    stored.ids = ids.into();
    stored.digests = digests.into();
    stored.emissions = emissions.into();
    for (message, block, count) in &snapshot.pictures {
        stored.pictures_of.push(message.get());
        stored.pictures_block.push((*block).into());
        stored.pictures.push((*count).into());
    }
    stored
}

fn read_pictures(stored: &v1::Entries) -> Result<Vec<(Ordinal, u16, u16)>, DecodeError> {
    let at = |(index, message): (usize, &u32)| {
        let block = *stored.pictures_block.get(index).ok_or(CUT)?;
        let count = *stored.pictures.get(index).ok_or(CUT)?;
        Ok((
            Ordinal::new(*message),
            view::block(block)?,
            view::block(count)?,
        ))
    };
    stored.pictures_of.iter().enumerate().map(at).collect()
}

fn read_entries(stored: &v1::Entries) -> Result<Vec<SnapshotEntry>, DecodeError> {
    let (ids, digests) = (sixteens(&stored.ids)?, sixteens(&stored.digests)?);
    // Few messages are re-emissions, so their digests are stored as a sparse list.
    let emissions: HashMap<usize, [u8; 16]> = stored
        .emission_of
        .iter()
        .map(|ordinal| *ordinal as usize)
        .zip(sixteens(&stored.emissions)?)
        .collect();
    let counted_by = |index: usize| {
        let begun = stored
            .counted_from
            .partition_point(|from| *from as usize <= index);
        let Some(last) = begun.checked_sub(1) else {
            return Ok(TokenEstimator::Bytes);
        };
        let by = *stored.counted_by.get(last).ok_or(CUT)?;
        Ok(read_estimator(
            v1::Estimator::try_from(by).map_err(|_| CUT)?,
        ))
    };
    let at = |index: usize| {
        let role = v1::Role::try_from(*stored.role.get(index).ok_or(CUT)?).map_err(|_| CUT)?;
        let standing =
            v1::Standing::try_from(*stored.standing.get(index).ok_or(CUT)?).map_err(|_| CUT)?;
        let of = *stored.standing_of.get(index).ok_or(CUT)?;
        let kind = v1::Kind::try_from(*stored.kind.get(index).ok_or(CUT)?).map_err(|_| CUT)?;
        Ok(SnapshotEntry {
            id: MessageId::new(Uuid::from_bytes(ids[index])),
            revision: Revision::new(*stored.revision.get(index).ok_or(CUT)?),
            digest: Digest::from_bytes(*digests.get(index).ok_or(CUT)?),
            role: message::read_role(role)?,
            kind: message::read_kind(kind),
            standing: message::read_visibility(standing, of)?,
            size: Size {
                tokens: *stored.tokens.get(index).ok_or(CUT)?,
                result_tokens: *stored.result_tokens.get(index).ok_or(CUT)?,
            },
            counted_by: counted_by(index)?,
            emission: emissions.get(&index).copied().map(Digest::from_bytes),
        })
    };
    (0..ids.len()).map(at).collect()
}

fn write_estimator(estimator: TokenEstimator) -> v1::Estimator {
    match estimator {
        TokenEstimator::Bytes => v1::Estimator::Bytes,
        TokenEstimator::O200k => v1::Estimator::O200k,
        TokenEstimator::Cl100k => v1::Estimator::Cl100k,
    }
}

fn read_estimator(stored: v1::Estimator) -> TokenEstimator {
    match stored {
        v1::Estimator::Unspecified | v1::Estimator::Bytes => TokenEstimator::Bytes,
        v1::Estimator::O200k => TokenEstimator::O200k,
        v1::Estimator::Cl100k => TokenEstimator::Cl100k,
    }
}

fn write_calls(calls: &[Call]) -> v1::Calls {
    let mut stored = v1::Calls::default();
    for call in calls {
        let (state, ..) = state::write_call_state(call.state);
        // Zero means no result: a result answers an earlier message, so it cannot be in the first one.
        let (message, block) = call
            .original
            .map_or((0, 0), |(message, block)| (message.get(), block.into()));
        stored.message.push(call.message.get());
        stored.block.push(call.block.into());
        stored.id.push(call.id.to_string());
        stored.name.push(call.name.to_string());
        stored.mapped.push(call.mapped);
        stored.state.push(state.into());
        stored.result_message.push(message);
        stored.result_block.push(block);
        stored.result_chars.push(call.result_chars);
        stored.result_tokens.push(call.result_tokens);
    }
    stored
}

fn read_calls(stored: &v1::Calls) -> Result<Vec<Call>, DecodeError> {
    let read = |(index, id): (usize, &String)| {
        let state = state::read_call_state(
            *stored.state.get(index).ok_or(CUT)?,
            *stored.result_message.get(index).ok_or(CUT)?,
            *stored.result_block.get(index).ok_or(CUT)?,
        )?;
        Ok(Call {
            message: Ordinal::new(*stored.message.get(index).ok_or(CUT)?),
            block: view::block(*stored.block.get(index).ok_or(CUT)?)?,
            id: id.as_str().into(),
            name: stored.name.get(index).ok_or(CUT)?.as_str().into(),
            mapped: *stored.mapped.get(index).ok_or(CUT)?,
            state,
            original: state::read_original(
                *stored.result_message.get(index).ok_or(CUT)?,
                *stored.result_block.get(index).ok_or(CUT)?,
            )?,
            result_chars: *stored.result_chars.get(index).ok_or(CUT)?,
            result_tokens: *stored.result_tokens.get(index).ok_or(CUT)?,
        })
    };
    stored.id.iter().enumerate().map(read).collect()
}

fn write_sealed(sealed: &Sealed) -> v1::Sealed {
    v1::Sealed {
        pieces: Some(view::write_pieces(sealed.pieces())),
        digest: digest(sealed.digest()),
        epoch: sealed.epoch().get(),
        pictures: u32::try_from(sealed.pictures()).unwrap_or(u32::MAX),
        newest_from: u32::try_from(sealed.newest_from()).unwrap_or(u32::MAX),
        seals: sealed
            .seals()
            .map(|seal| v1::Seal {
                epoch: seal.epoch.get(),
                pieces: seal.pieces,
                intact: seal.intact,
                digest: digest(seal.digest),
            })
            .collect(),
    }
}

fn read_sealed(stored: v1::Sealed) -> Result<Sealed, DecodeError> {
    let seal = |seal: &v1::Seal| {
        Ok(Seal {
            epoch: Epoch::new(seal.epoch),
            pieces: seal.pieces,
            intact: seal.intact,
            digest: Digest::from_bytes(sixteen(&seal.digest)?),
        })
    };
    Ok(Sealed::restore(
        view::read_pieces(stored.pieces)?,
        Digest::from_bytes(sixteen(&stored.digest)?),
        Epoch::new(stored.epoch),
        stored
            .seals
            .iter()
            .map(seal)
            .collect::<Result<_, DecodeError>>()?,
        stored.pictures as usize,
        stored.newest_from as usize,
    ))
}

fn digest(digest: Digest) -> bytes::Bytes {
    bytes::Bytes::copy_from_slice(digest.as_bytes())
}

fn write_request(
    (method, id, answered): &(RequestMethod, Box<str>, AnsweredRequest),
) -> v1::Answered {
    let stamp = RequestStamp {
        id: id.clone(),
        method: *method,
        digest: answered.digest,
    };
    v1::Answered {
        request: Some(write_stamp(&stamp)),
        revision: answered.revision.get(),
        at_ms: answered.at.as_millis(),
    }
}

fn read_request(
    stored: v1::Answered,
) -> Result<(RequestMethod, Box<str>, AnsweredRequest), DecodeError> {
    let stamp = read_stamp(stored.request)?.ok_or(CUT)?;
    let answered = AnsweredRequest {
        digest: stamp.digest,
        revision: Revision::new(stored.revision),
        at: Timestamp::from_millis(stored.at_ms),
    };
    Ok((stamp.method, stamp.id, answered))
}
