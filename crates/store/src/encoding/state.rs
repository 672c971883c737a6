//! Encoding of session state that both events and snapshots contain.

use palimpsest_core::ids::{CallKey, Ordinal};
use palimpsest_core::message::Usage;
use palimpsest_core::session::{CallState, Pairing, PendingMessage};
use palimpsest_core::tokens::{
    Anchor, Calibration, EstimateBasis, TokenBreakdown, TokenLedger, TokenSize,
};

use super::error::DecodeError;
use super::stored_as::{StoredAs, cell};
use super::v1;

const CUT: DecodeError = DecodeError::Damaged("a list is cut");

pub(super) fn write_call_state(state: CallState) -> (i32, u32, u32) {
    let (state, message, block) = match state {
        // Each row has a cell in every column, so states without a result write zeros.
        CallState::Open => (v1::CallState::Open, 0, 0),
        CallState::Answered { message, block } => {
            (v1::CallState::Answered, message.get(), block.into())
        }
        CallState::Interrupted => (v1::CallState::Interrupted, 0, 0),
        CallState::Late { message, block } => (v1::CallState::Late, message.get(), block.into()),
        CallState::Gone => (v1::CallState::Gone, 0, 0),
    };
    (state.into(), message, block)
}

pub(super) fn read_call_state(
    state: i32,
    message: Ordinal,
    block: u16,
) -> Result<CallState, DecodeError> {
    Ok(match v1::CallState::try_from(state).map_err(|_| CUT)? {
        v1::CallState::Open => CallState::Open,
        v1::CallState::Answered => CallState::Answered { message, block },
        v1::CallState::Interrupted => CallState::Interrupted,
        v1::CallState::Late => CallState::Late { message, block },
        v1::CallState::Gone => CallState::Gone,
        v1::CallState::Unspecified => return Err(CUT),
    })
}

/// Sizes of messages, as columns.
impl StoredAs<Option<v1::Sizes>> for Vec<(Ordinal, TokenSize)> {
    fn to_proto(&self) -> Option<v1::Sizes> {
        let mut stored = v1::Sizes::default();
        for (message, size) in self {
            stored.message.push(message.get());
            stored.tokens.push(size.tokens);
            stored.result_tokens.push(size.result_tokens);
        }
        Some(stored)
    }

    fn from_proto(stored: Option<v1::Sizes>) -> Result<Self, DecodeError> {
        let stored = stored.unwrap_or_default();
        let rows = 0..stored.message.len();
        rows.map(|row| {
            let size = TokenSize {
                tokens: cell(&stored.tokens, row)?,
                result_tokens: cell(&stored.result_tokens, row)?,
            };
            Ok((cell(&stored.message, row)?, size))
        })
        .collect()
    }
}

/// A pending message, with its blocks as columns.
impl StoredAs<v1::Pending> for PendingMessage {
    fn to_proto(&self) -> v1::Pending {
        let mut stored = v1::Pending {
            message: self.message.get(),
            ..v1::Pending::default()
        };
        for (block, pairing) in &self.blocks {
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

    fn from_proto(stored: v1::Pending) -> Result<Self, DecodeError> {
        let block = |row| {
            let pairing: i32 = cell(&stored.pairing, row)?;
            let call: CallKey = cell(&stored.call, row)?;
            let pairing = match v1::Pairing::try_from(pairing).map_err(|_| CUT)? {
                v1::Pairing::Unspecified => None,
                v1::Pairing::Answer => Some(Pairing::Answer(call)),
                v1::Pairing::Duplicate => Some(Pairing::Duplicate(call)),
                v1::Pairing::Late => Some(Pairing::Late(call)),
                v1::Pairing::Orphan => Some(Pairing::Orphan),
            };
            Ok((cell(&stored.block, row)?, pairing))
        };
        let blocks = (0..stored.block.len()).map(block);
        Ok(Self {
            blocks: blocks.collect::<Result<_, DecodeError>>()?,
            message: Ordinal::new(stored.message),
        })
    }
}

stored_struct! {
    Usage = Usage { input_tokens, cache_read_tokens, cache_write_tokens, output_tokens }
    or default
}

stored_struct! {
    Anchor = Anchor { usage, provider_message_id, message, epoch }
}

stored_struct! {
    TokenBreakdown = Breakdown { system, messages, results, memory, attachments }
    or default
}

impl StoredAs<u32> for Calibration {
    fn to_proto(&self) -> u32 {
        self.milli()
    }

    fn from_proto(stored: u32) -> Result<Self, DecodeError> {
        Ok(Self::from_milli(stored))
    }
}

impl StoredAs<v1::Ledger> for TokenLedger {
    fn to_proto(&self) -> v1::Ledger {
        v1::Ledger {
            anchor: self.anchor.to_proto(),
            tail: self.tail,
            all: self.all.to_proto(),
            calibration_milli: self.calibration.to_proto(),
            removed: self.removed,
            prefix: self.basis.map(|basis| basis.prefix),
            scale_milli: self.basis.and_then(|basis| basis.scale).to_proto(),
        }
    }

    fn from_proto(stored: v1::Ledger) -> Result<Self, DecodeError> {
        let scale = StoredAs::from_proto(stored.scale_milli)?;
        Ok(Self {
            anchor: StoredAs::from_proto(stored.anchor)?,
            tail: stored.tail,
            removed: stored.removed,
            all: StoredAs::from_proto(stored.all)?,
            calibration: StoredAs::from_proto(stored.calibration_milli)?,
            basis: stored.prefix.map(|prefix| EstimateBasis { prefix, scale }),
        })
    }
}

nested! { TokenLedger = Ledger or default }
