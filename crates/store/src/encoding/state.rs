//! Encoding of session state that both events and snapshots contain.

use palimpsest_core::ids::{CallKey, Epoch, Ordinal};
use palimpsest_core::session::{CallState, Pairing, PendingMessage};
use palimpsest_core::tokens::{
    Anchor, Calibration, EstimateBasis, Size, TokenBreakdown, TokenLedger,
};

use super::error::DecodeError;
use super::{message, v1, view};

const CUT: DecodeError = DecodeError::Damaged("a list is cut");

pub(super) fn write_call_state(state: CallState) -> (v1::CallState, u32, u32) {
    match state {
        CallState::Open => (v1::CallState::Open, 0, 0),
        CallState::Answered { message, block } => {
            (v1::CallState::Answered, message.get(), block.into())
        }
        CallState::Interrupted => (v1::CallState::Interrupted, 0, 0),
        CallState::Late { message, block } => (v1::CallState::Late, message.get(), block.into()),
        CallState::Gone => (v1::CallState::Gone, 0, 0),
    }
}

pub(super) fn read_call_state(
    state: i32,
    message: u32,
    block: u32,
) -> Result<CallState, DecodeError> {
    let (message, block) = (Ordinal::new(message), view::block(block)?);
    Ok(match v1::CallState::try_from(state).map_err(|_| CUT)? {
        v1::CallState::Open => CallState::Open,
        v1::CallState::Answered => CallState::Answered { message, block },
        v1::CallState::Interrupted => CallState::Interrupted,
        v1::CallState::Late => CallState::Late { message, block },
        v1::CallState::Gone => CallState::Gone,
        v1::CallState::Unspecified => return Err(CUT),
    })
}

pub(super) fn read_original(
    message: u32,
    block: u32,
) -> Result<Option<(Ordinal, u16)>, DecodeError> {
    let place = (Ordinal::new(message), view::block(block)?);
    Ok((message > 0).then_some(place))
}

pub(super) fn write_sizes(sizes: &[(Ordinal, Size)]) -> v1::Sizes {
    let mut stored = v1::Sizes::default();
    for (message, size) in sizes {
        stored.message.push(message.get());
        stored.tokens.push(size.tokens);
        stored.result_tokens.push(size.result_tokens);
    }
    stored
}

pub(super) fn read_sizes(stored: Option<v1::Sizes>) -> Result<Vec<(Ordinal, Size)>, DecodeError> {
    let stored = stored.unwrap_or_default();
    let at = |(index, message): (usize, &u32)| {
        let size = Size {
            tokens: *stored.tokens.get(index).ok_or(CUT)?,
            result_tokens: *stored.result_tokens.get(index).ok_or(CUT)?,
        };
        Ok((Ordinal::new(*message), size))
    };
    stored.message.iter().enumerate().map(at).collect()
}

pub(super) fn write_pending(pending: &PendingMessage) -> v1::Pending {
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

pub(super) fn read_pending(stored: &v1::Pending) -> Result<PendingMessage, DecodeError> {
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
    Ok(PendingMessage {
        message: Ordinal::new(stored.message),
        blocks: stored
            .block
            .iter()
            .enumerate()
            .map(at)
            .collect::<Result<_, DecodeError>>()?,
    })
}

pub(super) fn write_ledger(ledger: &TokenLedger) -> v1::Ledger {
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
        removed: ledger.removed,
        prefix: ledger.basis.map(|basis| basis.prefix),
        scale_milli: ledger
            .basis
            .and_then(|basis| basis.scale)
            .map(Calibration::milli),
    }
}

pub(super) fn read_ledger(stored: v1::Ledger) -> TokenLedger {
    let all = stored.all.unwrap_or_default();
    TokenLedger {
        anchor: stored.anchor.map(|anchor| Anchor {
            usage: message::read_usage(&anchor.usage.unwrap_or_default()),
            provider_message_id: anchor.provider_message_id.map(String::into_boxed_str),
            message: Ordinal::new(anchor.message),
            epoch: Epoch::new(anchor.epoch),
        }),
        tail: stored.tail,
        removed: stored.removed,
        all: TokenBreakdown {
            system: all.system,
            messages: all.messages,
            results: all.results,
            memory: all.memory,
            attachments: all.attachments,
        },
        calibration: Calibration::from_milli(stored.calibration_milli),
        basis: stored.prefix.map(|prefix| EstimateBasis {
            prefix,
            scale: stored.scale_milli.map(Calibration::from_milli),
        }),
    }
}
