//! The view of a session for a target: its messages, their names, and the places of blocks.

use super::etag::{Etag, Prefix};
use super::piece::{Piece, PieceForm, Repair, RepairKind, count};
use super::places::at;
use super::tail::{Speaker, Tail, side};
use super::target::Target;
use super::wire::{WireMessage, in_array, wire};
use crate::ids::{CallKey, MessageId};
use crate::session::{ContentNotLoaded, Session};

/// A view, ready for a codec.
#[derive(Debug, Clone, PartialEq)]
pub struct View<'a> {
    /// How many messages of its array the caller keeps.
    pub keep: u32,
    /// What follows them.
    pub messages: Vec<WireMessage<'a>>,
    /// What the operator says, where the provider takes that apart from the array.
    pub system: Vec<WireMessage<'a>>,
    /// How many messages the array then has.
    pub length: u32,
    /// Names this view.
    pub etag: Etag,
    /// Why a provider would not take it yet.
    pub unsendable: Option<NotSendableReason>,
    /// What was done so that the provider takes the part that is sent.
    pub repairs: Vec<Repair>,
}

/// Why a view cannot be sent yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotSendableReason {
    /// There is nothing in it.
    Empty,
    /// Calls wait for their results.
    OpenCalls(Vec<CallKey>),
    /// The model spoke last.
    EndsWithAssistant,
}

impl Session {
    /// The view as it was served last. `known` is what the caller says it has.
    pub fn view(&self, target: &Target, known: Option<Etag>) -> Result<View<'_>, ContentNotLoaded> {
        let pieces = self.sealed().pieces();
        let prefix = match known {
            Some(etag) => etag.prefix(self, target)?,
            None => Prefix::default(),
        };
        let new = &pieces[prefix.from..];
        let mut messages = wire(self, new, target)?;
        let apart = messages.len() - in_array(&messages, target) as usize;
        let rest = messages.split_off(apart);
        let (system, messages) = (messages, rest);
        let length = prefix.keep + in_array(&messages, target);
        Ok(View {
            keep: prefix.keep,
            length,
            etag: Etag::new(
                self.sealed().epoch(),
                count(pieces.len()),
                length,
                self.sealed().digest(),
                target,
            ),
            unsendable: self.unsendable(),
            repairs: self.repairs(new),
            messages,
            system,
        })
    }

    /// What the operator says before anyone else, where the provider takes that apart from the array.
    pub fn system(&self, target: &Target) -> Result<Vec<WireMessage<'_>>, ContentNotLoaded> {
        // These pieces lead; nothing after the first other one belongs to them.
        let pieces = self.sealed().pieces();
        let lead = pieces
            .iter()
            .position(|piece| {
                piece.form.is_shown() && side(piece, self.transcript()) != Speaker::System
            })
            .unwrap_or(pieces.len());
        let mut messages = wire(self, &pieces[..lead], target)?;
        messages.retain(|message| target.takes_apart(message.role));
        Ok(messages)
    }

    /// The array that an etag names, when it is [`Etag::is_current`].
    pub fn wire_of(
        &self,
        etag: Etag,
        target: &Target,
    ) -> Result<Vec<WireMessage<'_>>, ContentNotLoaded> {
        let pieces = self.sealed().pieces();
        let named = &pieces[..etag.pieces().min(pieces.len())];
        let mut messages = wire(self, named, target)?;
        messages.retain(|message| !target.takes_apart(message.role));
        Ok(messages)
    }

    /// The blocks of the transcript that stand at a place of the array that an etag names; all of a
    /// message when no block is named.
    pub fn blocks_at(
        &self,
        etag: Etag,
        target: &Target,
        message: u32,
        block: Option<u32>,
    ) -> Result<Vec<(MessageId, u16)>, ContentNotLoaded> {
        let pieces = self.sealed().pieces();
        let named = &pieces[..etag.pieces().min(pieces.len())];
        let at = at(self, named, target, message, block)?;
        let of_block = at.into_iter().filter(|piece| piece.form.is_of_a_block());
        let named = of_block.filter_map(|piece| {
            let entry = self.transcript().get(piece.message)?;
            Some((entry.id, piece.block))
        });
        Ok(named.collect())
    }

    /// Why a provider would not take the view yet.
    pub fn unsendable(&self) -> Option<NotSendableReason> {
        let tail = Tail::of(self.sealed().pieces(), self.transcript());
        if !tail.open.is_empty() {
            return Some(NotSendableReason::OpenCalls(tail.open));
        }
        match tail.last {
            None => Some(NotSendableReason::Empty),
            Some(Speaker::User) if self.pending().is_empty() => None,
            _ => Some(NotSendableReason::EndsWithAssistant),
        }
    }

    fn repairs(&self, pieces: &[Piece]) -> Vec<Repair> {
        let mapped = |piece: &Piece| match piece.form {
            PieceForm::Call(call) if self.calls().get(call)?.mapped => Some(Repair {
                message: piece.message,
                block: piece.block,
                kind: RepairKind::MappedCallId(call),
            }),
            _ => None,
        };
        pieces
            .iter()
            .filter_map(|piece| piece.repair().or_else(|| mapped(piece)))
            .collect()
    }
}
