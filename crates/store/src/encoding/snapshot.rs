//! Snapshots and list rows.

use std::collections::HashMap;

use palimpsest_core::ids::{CallKey, Epoch, MessageId, Ordinal, Revision, SessionKey, Timestamp};
use palimpsest_core::message::Digest;
use palimpsest_core::session::{
    About, Answered, Call, CallState, Method, Pairing, Pending, RequestStamp, Snapshot,
    SnapshotEntry, WaitsFor,
};
use palimpsest_core::tokens::{Anchor, Breakdown, Calibration, Ledger, Size};
use palimpsest_core::view::{Seal, Sealed};
use uuid::Uuid;

use super::{DecodeError, event, message, sixteen, sixteens, v1, view};

const CUT: DecodeError = DecodeError::Damaged("a list in a snapshot is cut");

pub(super) fn write(snapshot: &Snapshot) -> v1::Snapshot {
    v1::Snapshot {
        revision: snapshot.revision.get(),
        rules: snapshot.rules,
        policy: Some(event::write_policy(&snapshot.policy)),
        about: Some(write_about(&snapshot.about)),
        entries: Some(write_entries(&snapshot.entries, &snapshot.pictures)),
        calls: Some(write_calls(&snapshot.calls)),
        pending: snapshot.pending.iter().map(write_pending).collect(),
        sealed: Some(write_sealed(&snapshot.sealed)),
        ledger: Some(write_ledger(&snapshot.ledger)),
        requests: snapshot.requests.iter().map(write_request).collect(),
        served: Some(view::write_served(&snapshot.last_served)),
        last_reemitted: snapshot.last_reemitted.map(Ordinal::get),
        view_changes: snapshot
            .view_changes
            .iter()
            .map(|revision| revision.get())
            .collect(),
    }
}

pub(super) fn read(key: SessionKey, stored: v1::Snapshot) -> Result<Snapshot, DecodeError> {
    let entries = stored.entries.unwrap_or_default();
    Ok(Snapshot {
        key,
        revision: Revision::new(stored.revision),
        rules: stored.rules,
        policy: event::read_policy(stored.policy.as_ref()),
        about: read_about(stored.about.unwrap_or_default())?,
        entries: read_entries(&entries)?,
        pictures: read_pictures(&entries)?,
        calls: read_calls(&stored.calls.unwrap_or_default())?,
        pending: stored
            .pending
            .iter()
            .map(read_pending)
            .collect::<Result<_, _>>()?,
        sealed: read_sealed(stored.sealed.unwrap_or_default())?,
        ledger: read_ledger(stored.ledger.unwrap_or_default()),
        requests: stored
            .requests
            .into_iter()
            .map(read_request)
            .collect::<Result<_, _>>()?,
        last_served: view::read_served(stored.served)?,
        last_reemitted: stored.last_reemitted.map(Ordinal::new),
        view_changes: stored.view_changes.into_iter().map(Revision::new).collect(),
    })
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
        user_messages: about.user_messages,
        assistant_messages: about.assistant_messages,
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
        user_messages: stored.user_messages,
        assistant_messages: stored.assistant_messages,
    })
}

fn write_entries(entries: &[SnapshotEntry], pictures: &[(Ordinal, u16, u16)]) -> v1::Entries {
    let mut stored = v1::Entries::default();
    let (mut ids, mut digests, mut emissions) = (Vec::new(), Vec::new(), Vec::new());
    for (ordinal, entry) in (0_u32..).zip(entries) {
        ids.extend_from_slice(entry.id.get().as_bytes());
        digests.extend_from_slice(entry.digest.as_bytes());
        let (standing, of) = message::write_standing(entry.standing);
        stored.revision.push(entry.revision.get());
        stored.role.push(message::write_role(entry.role).into());
        stored.standing.push(standing.into());
        stored.standing_of.push(of);
        stored.tokens.push(entry.size.tokens);
        stored.result_tokens.push(entry.size.result_tokens);
        if let Some(emission) = entry.emission {
            stored.emission_of.push(ordinal);
            emissions.extend_from_slice(emission.as_bytes());
        }
    }
    stored.ids = ids.into();
    stored.digests = digests.into();
    stored.emissions = emissions.into();
    for (message, block, count) in pictures {
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
    let emissions: HashMap<usize, [u8; 16]> = stored
        .emission_of
        .iter()
        .map(|ordinal| *ordinal as usize)
        .zip(sixteens(&stored.emissions)?)
        .collect();
    let at = |index: usize| {
        let role = v1::Role::try_from(*stored.role.get(index).ok_or(CUT)?).map_err(|_| CUT)?;
        let standing =
            v1::Standing::try_from(*stored.standing.get(index).ok_or(CUT)?).map_err(|_| CUT)?;
        let of = *stored.standing_of.get(index).ok_or(CUT)?;
        Ok(SnapshotEntry {
            id: MessageId::new(Uuid::from_bytes(ids[index])),
            revision: Revision::new(*stored.revision.get(index).ok_or(CUT)?),
            digest: Digest::from_bytes(*digests.get(index).ok_or(CUT)?),
            role: message::read_role(role)?,
            standing: message::read_standing(standing, of)?,
            size: Size {
                tokens: *stored.tokens.get(index).ok_or(CUT)?,
                result_tokens: *stored.result_tokens.get(index).ok_or(CUT)?,
            },
            emission: emissions.get(&index).copied().map(Digest::from_bytes),
        })
    };
    (0..ids.len()).map(at).collect()
}

fn write_calls(calls: &[Call]) -> v1::Calls {
    let mut stored = v1::Calls::default();
    for call in calls {
        let (state, message, block) = match call.state {
            CallState::Open => (v1::CallState::Open, 0, 0),
            CallState::Answered { message, block } => {
                (v1::CallState::Answered, message.get(), block.into())
            }
            CallState::Interrupted => (v1::CallState::Interrupted, 0, 0),
            CallState::Late { message, block } => {
                (v1::CallState::Late, message.get(), block.into())
            }
            CallState::Gone => (v1::CallState::Gone, 0, 0),
        };
        stored.message.push(call.message.get());
        stored.block.push(call.block.into());
        stored.id.push(call.id.to_string());
        stored.name.push(call.name.to_string());
        stored.mapped.push(call.mapped);
        stored.state.push(state.into());
        stored.result_message.push(message);
        stored.result_block.push(block);
    }
    stored
}

fn read_calls(stored: &v1::Calls) -> Result<Vec<Call>, DecodeError> {
    let read = |(index, id): (usize, &String)| {
        let state = *stored.state.get(index).ok_or(CUT)?;
        let message = Ordinal::new(*stored.result_message.get(index).ok_or(CUT)?);
        let block = view::block(*stored.result_block.get(index).ok_or(CUT)?)?;
        let state = match v1::CallState::try_from(state).map_err(|_| CUT)? {
            v1::CallState::Open => CallState::Open,
            v1::CallState::Answered => CallState::Answered { message, block },
            v1::CallState::Interrupted => CallState::Interrupted,
            v1::CallState::Late => CallState::Late { message, block },
            v1::CallState::Gone => CallState::Gone,
            v1::CallState::Unspecified => return Err(CUT),
        };
        Ok(Call {
            message: Ordinal::new(*stored.message.get(index).ok_or(CUT)?),
            block: view::block(*stored.block.get(index).ok_or(CUT)?)?,
            id: id.as_str().into(),
            name: stored.name.get(index).ok_or(CUT)?.as_str().into(),
            mapped: *stored.mapped.get(index).ok_or(CUT)?,
            state,
        })
    };
    stored.id.iter().enumerate().map(read).collect()
}

fn write_pending(pending: &Pending) -> v1::Pending {
    let mut stored = v1::Pending {
        message: pending.message.get(),
        ..v1::Pending::default()
    };
    for (block, pairing) in &pending.blocks {
        let (pairing, call) = match pairing {
            None => (v1::Pairing::Unspecified, 0),
            Some(Pairing::Answer(call)) => (v1::Pairing::Answer, call.get()),
            Some(Pairing::Duplicate(call)) => (v1::Pairing::Duplicate, call.get()),
            Some(Pairing::Late(call)) => (v1::Pairing::Late, call.get()),
            Some(Pairing::Orphan) => (v1::Pairing::Orphan, 0),
        };
        stored.block.push((*block).into());
        stored.pairing.push(pairing.into());
        stored.call.push(call);
    }
    stored
}

fn read_pending(stored: &v1::Pending) -> Result<Pending, DecodeError> {
    let at = |(index, block): (usize, &u32)| {
        let pairing = *stored.pairing.get(index).ok_or(CUT)?;
        let call = CallKey::new(*stored.call.get(index).ok_or(CUT)?);
        let pairing = match v1::Pairing::try_from(pairing).map_err(|_| CUT)? {
            v1::Pairing::Unspecified => None,
            v1::Pairing::Answer => Some(Pairing::Answer(call)),
            v1::Pairing::Duplicate => Some(Pairing::Duplicate(call)),
            v1::Pairing::Late => Some(Pairing::Late(call)),
            v1::Pairing::Orphan => Some(Pairing::Orphan),
        };
        Ok((view::block(*block)?, pairing))
    };
    Ok(Pending {
        message: Ordinal::new(stored.message),
        blocks: stored
            .block
            .iter()
            .enumerate()
            .map(at)
            .collect::<Result<_, DecodeError>>()?,
    })
}

fn write_sealed(sealed: &Sealed) -> v1::Sealed {
    v1::Sealed {
        pieces: Some(view::write_pieces(sealed.pieces())),
        digest: digest(sealed.digest()),
        epoch: sealed.epoch().get(),
        pictures: u32::try_from(sealed.pictures()).unwrap_or(u32::MAX),
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
    ))
}

fn digest(digest: Digest) -> bytes::Bytes {
    bytes::Bytes::copy_from_slice(digest.as_bytes())
}

fn write_ledger(ledger: &Ledger) -> v1::Ledger {
    v1::Ledger {
        anchor: ledger.anchor.as_ref().map(|anchor| v1::Anchor {
            usage: Some(message::write_usage(&anchor.usage)),
            provider_message_id: anchor.provider_message_id.as_deref().map(str::to_owned),
            message: anchor.message.get(),
            epoch: anchor.epoch.get(),
        }),
        tail: ledger.tail,
        all: Some(v1::Breakdown {
            system: ledger.all.system,
            messages: ledger.all.messages,
            results: ledger.all.results,
            memory: ledger.all.memory,
            attachments: ledger.all.attachments,
        }),
        calibration_milli: ledger.calibration.milli(),
    }
}

fn read_ledger(stored: v1::Ledger) -> Ledger {
    let all = stored.all.unwrap_or_default();
    Ledger {
        anchor: stored.anchor.map(|anchor| Anchor {
            usage: message::read_usage(&anchor.usage.unwrap_or_default()),
            provider_message_id: anchor.provider_message_id.map(String::into_boxed_str),
            message: Ordinal::new(anchor.message),
            epoch: Epoch::new(anchor.epoch),
        }),
        tail: stored.tail,
        all: Breakdown {
            system: all.system,
            messages: all.messages,
            results: all.results,
            memory: all.memory,
            attachments: all.attachments,
        },
        calibration: Calibration::from_milli(stored.calibration_milli),
    }
}

fn write_request((method, id, answered): &(Method, Box<str>, Answered)) -> v1::Answered {
    let stamp = RequestStamp {
        id: id.clone(),
        method: *method,
        digest: answered.digest,
    };
    v1::Answered {
        request: Some(event::write_stamp(&stamp)),
        revision: answered.revision.get(),
        at_ms: answered.at.as_millis(),
    }
}

fn read_request(stored: v1::Answered) -> Result<(Method, Box<str>, Answered), DecodeError> {
    let stamp = event::read_stamp(stored.request)?.ok_or(CUT)?;
    let answered = Answered {
        digest: stamp.digest,
        revision: Revision::new(stored.revision),
        at: Timestamp::from_millis(stored.at_ms),
    };
    Ok((stamp.method, stamp.id, answered))
}
