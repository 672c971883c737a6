//! Encoding of snapshots and list rows.

use std::collections::HashMap;

use palimpsest_core::event::RequestMethod;
use palimpsest_core::ids::{MessageId, Ordinal, SessionKey};
use palimpsest_core::message::{CallKind, Digest};
use palimpsest_core::policy::TokenEstimator;
use palimpsest_core::session::{
    AnsweredRequest, AwaitedParty, Call, PositionedResult, RequestStamp, SessionInfo,
    SessionTotals, Snapshot, SnapshotEntry, SnipGrowth, TranscriptEntry,
};
use palimpsest_core::tokens::TokenSize;
use palimpsest_core::view::{Seal, Sealed};
use uuid::Uuid;

use super::array;
use super::error::{DecodeError, split_ids};
use super::message::{read_visibility, write_visibility};
use super::prompt_cache::{read_changes, write_changes};
use super::session_memory;
use super::state::{read_call_state, write_call_state};
use super::stored_as::{StoredAs, cell};
use super::v1;
use super::view::write_pieces;

const CUT: DecodeError = DecodeError::Damaged("a list in a snapshot is cut");

pub(super) fn write(snapshot: &Snapshot) -> v1::Snapshot {
    // The lists are stored as columns, one repeated field per attribute, which is smaller and compresses
    // better.
    let mut stored = v1::Snapshot {
        revision: snapshot.revision.to_proto(),
        rules: snapshot.rules_version,
        policy: snapshot.policy.to_proto(),
        about: snapshot.info.to_proto(),
        entries: Some(write_entries(snapshot)),
        calls: Some(write_calls(&snapshot.calls)),
        pending: snapshot.pending.to_proto(),
        sealed: Some(write_sealed(&snapshot.sealed)),
        ledger: snapshot.ledger.to_proto(),
        requests: snapshot.requests.iter().map(write_request).collect(),
        served: snapshot.last_served.to_proto(),
        last_reemitted: snapshot.last_reemitted.to_proto(),
        stored: snapshot
            .stored_results
            .iter()
            .map(|placed| placed.stored.to_proto())
            .collect(),
        stored_message: stored_positions(snapshot)
            .map(|(message, _)| message)
            .collect(),
        stored_block: stored_positions(snapshot).map(|(_, block)| block).collect(),
        offers: snapshot.persist_decisions.to_proto(),
        next_offer: snapshot.next_persist_decision,
        cache_edits: snapshot.cache_edits.to_proto(),
        last_response_ms: snapshot.last_response.to_proto(),
        messages_since_snip: snapshot.since_snip.messages,
        tokens_since_snip: snapshot.since_snip.tokens,
        spans: snapshot.spans.to_proto(),
        notes: Some(session_memory::write(&snapshot.memory)),
        compactions: snapshot.compactions.to_proto(),
        prompt_cache: Some(snapshot.prompt_cache.to_proto()),
        working: snapshot.working.to_proto(),
        array: array::write(&snapshot.array),
        tips: array::write_tips(&snapshot.tips),
        ..v1::Snapshot::default()
    };
    write_changes(&snapshot.view_changes, &mut stored);
    stored
}

pub(super) fn read(key: SessionKey, stored: v1::Snapshot) -> Result<Snapshot, DecodeError> {
    let view_changes = read_changes(&stored)?;
    let entries = stored.entries.unwrap_or_default();
    let prompt_cache: Option<_> = StoredAs::from_proto(stored.prompt_cache)?;
    Ok(Snapshot {
        key,
        view_changes,
        // Absent messages and lists decode to their defaults, because older releases did not write all of
        // them.
        prompt_cache: prompt_cache.unwrap_or_default(),
        working: StoredAs::from_proto(stored.working)?,
        revision: StoredAs::from_proto(stored.revision)?,
        rules_version: stored.rules,
        policy: StoredAs::from_proto(stored.policy)?,
        info: StoredAs::from_proto(stored.about)?,
        entries: read_entries(&entries)?,
        image_counts: read_pictures(&entries)?,
        item_ids: read_item_ids(&entries)?,
        turns: StoredAs::from_proto(entries.turns)?,
        calls: read_calls(&stored.calls.unwrap_or_default())?,
        pending: StoredAs::from_proto(stored.pending)?,
        sealed: read_sealed(stored.sealed.unwrap_or_default())?,
        ledger: StoredAs::from_proto(stored.ledger)?,
        requests: stored
            .requests
            .into_iter()
            .map(read_request)
            .collect::<Result<_, _>>()?,
        last_served: StoredAs::from_proto(stored.served)?,
        last_reemitted: StoredAs::from_proto(stored.last_reemitted)?,
        stored_results: read_placed(stored.stored, &stored.stored_message, &stored.stored_block)?,
        persist_decisions: StoredAs::from_proto(stored.offers)?,
        next_persist_decision: stored.next_offer,
        cache_edits: StoredAs::from_proto(stored.cache_edits)?,
        last_response: StoredAs::from_proto(stored.last_response_ms)?,
        since_snip: SnipGrowth {
            messages: stored.messages_since_snip,
            tokens: stored.tokens_since_snip,
        },
        spans: StoredAs::from_proto(stored.spans)?,
        memory: session_memory::read(stored.notes)?,
        compactions: StoredAs::from_proto(stored.compactions)?,
        array: array::read(stored.array)?,
        tips: array::read_tips(stored.tips)?,
    })
}

/// Returns the positions of stored results as message and block. The core supplies a position for every
/// result.
fn stored_positions(snapshot: &Snapshot) -> impl Iterator<Item = (u32, u32)> {
    let places = snapshot.stored_results.iter().map(|placed| placed.position);
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
            Some((cell(messages, index)?, cell(blocks, index)?))
        } else {
            None
        };
        Ok(PositionedResult {
            position: place,
            stored: StoredAs::from_proto(stored)?,
        })
    };
    stored.into_iter().enumerate().map(placed).collect()
}

// An unspecified party means that no message was appended yet.
stored_enum! {
    AwaitedParty = WaitsFor { Anything = Unspecified, User, Tools, Model }
}

stored_struct! {
    SessionTotals = Totals {
        requests, sent_tokens, saved_tokens, rewritten_tokens, cache_read_tokens, cache_write_tokens, uncached_tokens,
        compactions, view_tokens, window_tokens, compact_at_tokens, cost, unmanaged_cost,
    }
}

/// Totals of nothing are not stored, and older records lack them.
impl StoredAs<Option<v1::Totals>> for SessionTotals {
    fn to_proto(&self) -> Option<v1::Totals> {
        (*self != Self::default()).then(|| StoredAs::<v1::Totals>::to_proto(self))
    }

    fn from_proto(stored: Option<v1::Totals>) -> Result<Self, DecodeError> {
        StoredAs::<v1::Totals>::from_proto(stored.unwrap_or_default())
    }
}

stored_struct! {
    SessionInfo = About {
        title, first_prompt, parent, forked_from, attributes, project_path, branch, hold, user_messages, assistant_messages,
        reported_tokens, epoch, last_model, totals,
    }
    renamed { created = created_ms, modified = modified_ms, awaits = waits_for }
    or default
}

fn write_entries(snapshot: &Snapshot) -> v1::Entries {
    let mut stored = v1::Entries {
        turns: snapshot.turns.iter().map(|turn| turn.get()).collect(),
        ..v1::Entries::default()
    };
    let (mut ids, mut digests, mut emissions) = (Vec::new(), Vec::new(), Vec::new());
    // A session that counts with `bytes`, the default, stores no change at all.
    let mut counted_by = TokenEstimator::Bytes;
    for (
        ordinal,
        SnapshotEntry {
            entry,
            reemission_key: emission,
        },
    ) in (0_u32..).zip(&snapshot.entries)
    {
        ids.extend_from_slice(entry.id.get().as_bytes());
        digests.extend_from_slice(entry.digest.as_bytes());
        let (standing, of) = write_visibility(entry.visibility);
        stored.revision.push(entry.revision.get());
        stored.role.push(entry.role.to_proto());
        stored.standing.push(standing);
        stored.standing_of.push(of);
        stored.kind.push(entry.kind.to_proto());
        stored.tokens.push(entry.size.tokens);
        stored.result_tokens.push(entry.size.result_tokens);
        // The estimator rarely changes within a session, so only the changes are stored.
        if entry.counted_by != counted_by {
            counted_by = entry.counted_by;
            stored.counted_from.push(ordinal);
            stored.counted_by.push(counted_by.to_proto());
        }
        if let Some(emission) = emission {
            stored.emission_of.push(ordinal);
            emissions.extend_from_slice(emission.as_bytes());
        }
    }
    stored.ids = ids.into();
    stored.digests = digests.into();
    stored.emissions = emissions.into();
    for (message, block, count) in &snapshot.image_counts {
        stored.pictures_of.push(message.get());
        stored.pictures_block.push((*block).into());
        stored.pictures.push((*count).into());
    }
    let mut item_ids = Vec::new();
    for (message, block, id) in &snapshot.item_ids {
        stored.items_of.push(message.get());
        stored.items_block.push((*block).into());
        item_ids.extend_from_slice(id.as_bytes());
    }
    stored.item_ids = item_ids.into();
    stored
}

fn read_item_ids(stored: &v1::Entries) -> Result<Vec<(Ordinal, u16, Digest)>, DecodeError> {
    let ids = split_ids(&stored.item_ids)?;
    let item = |(row, id)| {
        Ok((
            cell(&stored.items_of, row)?,
            cell(&stored.items_block, row)?,
            Digest::from_bytes(id),
        ))
    };
    ids.into_iter().enumerate().map(item).collect()
}

fn read_pictures(stored: &v1::Entries) -> Result<Vec<(Ordinal, u16, u16)>, DecodeError> {
    let picture = |row| {
        Ok((
            cell(&stored.pictures_of, row)?,
            cell(&stored.pictures_block, row)?,
            cell(&stored.pictures, row)?,
        ))
    };
    (0..stored.pictures_of.len()).map(picture).collect()
}

fn read_entries(stored: &v1::Entries) -> Result<Vec<SnapshotEntry>, DecodeError> {
    let (ids, digests) = (split_ids(&stored.ids)?, split_ids(&stored.digests)?);
    // Few messages are re-emissions, so their digests are stored as a sparse list.
    let emissions: HashMap<usize, [u8; 16]> = stored
        .emission_of
        .iter()
        .map(|ordinal| *ordinal as usize)
        .zip(split_ids(&stored.emissions)?)
        .collect();
    let counted_by = |row: usize| {
        let begun = stored
            .counted_from
            .partition_point(|from| *from as usize <= row);
        match begun.checked_sub(1) {
            None => Ok(TokenEstimator::Bytes),
            Some(last) => cell(&stored.counted_by, last),
        }
    };
    let entry = |row: usize| {
        let of = cell(&stored.standing_of, row)?;
        let entry = TranscriptEntry {
            id: MessageId::new(Uuid::from_bytes(ids[row])),
            revision: cell(&stored.revision, row)?,
            digest: Digest::from_bytes(*digests.get(row).ok_or(CUT)?),
            role: cell(&stored.role, row)?,
            kind: cell(&stored.kind, row)?,
            visibility: read_visibility(cell(&stored.standing, row)?, of)?,
            size: TokenSize {
                tokens: cell(&stored.tokens, row)?,
                result_tokens: cell(&stored.result_tokens, row)?,
            },
            counted_by: counted_by(row)?,
            content: None,
        };
        let emission = emissions.get(&row).copied().map(Digest::from_bytes);
        Ok(SnapshotEntry {
            entry,
            reemission_key: emission,
        })
    };
    (0..ids.len()).map(entry).collect()
}

stored_enum! {
    TokenEstimator = Estimator { Bytes, O200k, Cl100k }
    or Bytes
}

stored_enum! {
    CallKind = CallKind { Function, Custom, LocalShell, Shell, ApplyPatch }
    or Function
}

fn write_calls(calls: &[Call]) -> v1::Calls {
    let mut stored = v1::Calls::default();
    for call in calls {
        let (state, ..) = write_call_state(call.state);
        // Zero means no result: a result answers an earlier message, so it cannot be in the first one.
        let (message, block) = call
            .result_position
            .map_or((0, 0), |(message, block)| (message.get(), block.into()));
        stored.message.push(call.message.get());
        stored.block.push(call.block.into());
        stored.id.push(call.id.to_string());
        stored.name.push(call.name.to_string());
        stored.mapped.push(call.uses_service_id);
        stored.state.push(state);
        stored.result_message.push(message);
        stored.result_block.push(block);
        stored.result_chars.push(call.result_chars);
        stored.result_tokens.push(call.result_tokens);
    }
    // Almost all calls are calls of functions, so the column is left out if no call has another kind.
    if calls.iter().any(|call| call.kind != CallKind::Function) {
        stored.kind = calls.iter().map(|call| call.kind.to_proto()).collect();
    }
    stored
}

fn read_calls(stored: &v1::Calls) -> Result<Vec<Call>, DecodeError> {
    let call = |row| {
        let message: Ordinal = cell(&stored.result_message, row)?;
        let block = cell(&stored.result_block, row)?;
        Ok(Call {
            message: cell(&stored.message, row)?,
            block: cell(&stored.block, row)?,
            id: cell(&stored.id, row)?,
            name: cell(&stored.name, row)?,
            kind: if stored.kind.is_empty() {
                CallKind::Function
            } else {
                cell(&stored.kind, row)?
            },
            uses_service_id: cell(&stored.mapped, row)?,
            state: read_call_state(cell(&stored.state, row)?, message, block)?,
            result_position: (message.get() > 0).then_some((message, block)),
            result_chars: cell(&stored.result_chars, row)?,
            result_tokens: cell(&stored.result_tokens, row)?,
        })
    };
    (0..stored.id.len()).map(call).collect()
}

stored_struct! { Seal = Seal { epoch, pieces, intact, digest } }

fn write_sealed(sealed: &Sealed) -> v1::Sealed {
    v1::Sealed {
        pieces: Some(write_pieces(sealed.pieces())),
        digest: sealed.digest().to_proto(),
        epoch: sealed.epoch().to_proto(),
        pictures: u32::try_from(sealed.image_count()).unwrap_or(u32::MAX),
        newest_from: u32::try_from(sealed.last_serve_start()).unwrap_or(u32::MAX),
        seals: sealed.seals().map(StoredAs::to_proto).collect(),
    }
}

fn read_sealed(stored: v1::Sealed) -> Result<Sealed, DecodeError> {
    Ok(Sealed::restore(
        StoredAs::from_proto(stored.pieces)?,
        StoredAs::from_proto(stored.digest)?,
        StoredAs::from_proto(stored.epoch)?,
        StoredAs::from_proto(stored.seals)?,
        stored.pictures as usize,
        stored.newest_from as usize,
    ))
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
        request: Some(stamp.to_proto()),
        revision: answered.revision.to_proto(),
        at_ms: answered.at.to_proto(),
    }
}

fn read_request(
    stored: v1::Answered,
) -> Result<(RequestMethod, Box<str>, AnsweredRequest), DecodeError> {
    let stamp = RequestStamp::from_proto(stored.request.ok_or(CUT)?)?;
    let answered = AnsweredRequest {
        digest: stamp.digest,
        revision: StoredAs::from_proto(stored.revision)?,
        at: StoredAs::from_proto(stored.at_ms)?,
    };
    Ok((stamp.method, stamp.id, answered))
}
