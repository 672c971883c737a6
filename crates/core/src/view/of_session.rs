//! The view of a session for a target, with its etag, repairs and block positions.

use std::collections::{BTreeMap, BTreeSet};

use super::etag::{Etag, Prefix};
use super::piece::{Piece, PieceForm, Repair, RepairKind, count};
use super::positions::{ViewPosition, pieces_at};
use super::replacements::is_replaced;
use super::tail::{Speaker, ViewTail, speaker};
use super::target::Target;
use super::wire::{WireMessage, array_length, wire};
use crate::ids::{CallKey, MessageId};
use crate::session::{ContentNotLoaded, Session};

/// A view, ready to be encoded by a codec.
#[derive(Debug, Clone, PartialEq)]
pub struct View<'a> {
    /// The number of array messages that the caller keeps.
    pub keep: u32,
    /// The messages after the kept ones.
    pub messages: Vec<WireMessage<'a>>,
    /// The system messages, if the provider takes them outside the array.
    pub system: Vec<WireMessage<'a>>,
    /// The number of messages in the resulting array.
    pub length: u32,
    /// The etag of this view.
    pub etag: Etag,
    /// The reason for which a provider would reject the view now. `None` if the view is sendable.
    pub not_sendable: Option<NotSendableReason>,
    /// The repairs in the part that is returned.
    pub repairs: Vec<Repair>,
}

/// The reason for which a view cannot be sent yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotSendableReason {
    /// The view has no messages.
    Empty,
    /// These calls have no results.
    OpenCalls(Vec<CallKey>),
    /// The last message is the model's, or some messages are still pending.
    EndsWithAssistant,
}

impl Session {
    /// Returns the view that was served last. `known` is the etag of the caller's copy, if it has one.
    pub fn view(&self, target: &Target, known: Option<Etag>) -> Result<View<'_>, ContentNotLoaded> {
        let pieces = self.sealed().pieces();
        let prefix = match known {
            Some(etag) => etag.prefix(self, target)?,
            None => Prefix::default(),
        };
        let new = &pieces[prefix.from..];
        let mut messages = wire(self, new, target)?;
        // Separate system messages come first, so one split divides the list.
        let apart = messages.len() - array_length(&messages, target) as usize;
        let rest = messages.split_off(apart);
        let (system, messages) = (messages, rest);
        let length = prefix.keep + array_length(&messages, target);
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
            not_sendable: self.not_sendable_reason(),
            repairs: self.repairs(new, target),
            messages,
            system,
        })
    }

    /// Returns the leading system messages, if the provider takes them outside the array.
    pub fn system(&self, target: &Target) -> Result<Vec<WireMessage<'_>>, ContentNotLoaded> {
        // System pieces lead the view. No piece after the first other shown piece belongs to them.
        let pieces = self.sealed().pieces();
        let lead = pieces
            .iter()
            .position(|piece| {
                piece.form.is_shown() && speaker(piece, self.transcript()) != Speaker::System
            })
            .unwrap_or(pieces.len());
        let mut messages = wire(self, &pieces[..lead], target)?;
        messages.retain(|message| target.sends_separately(message.role));
        Ok(messages)
    }

    /// Returns the array that an etag names. The etag must satisfy [`Etag::is_current`].
    pub fn wire_messages(
        &self,
        etag: Etag,
        target: &Target,
    ) -> Result<Vec<WireMessage<'_>>, ContentNotLoaded> {
        let pieces = self.sealed().pieces();
        let named = &pieces[..etag.pieces().min(pieces.len())];
        let mut messages = wire(self, named, target)?;
        messages.retain(|message| !target.sends_separately(message.role));
        Ok(messages)
    }

    /// Returns the transcript blocks at positions of the array that an etag names, by position. Positions without a
    /// block of the transcript are missing in the result.
    pub fn blocks_at(
        &self,
        etag: Etag,
        target: &Target,
        positions: &BTreeSet<ViewPosition>,
    ) -> Result<BTreeMap<ViewPosition, Vec<(MessageId, u16)>>, ContentNotLoaded> {
        let pieces = self.sealed().pieces();
        let named = &pieces[..etag.pieces().min(pieces.len())];
        let mut blocks = BTreeMap::<_, Vec<_>>::new();
        for (position, pieces) in pieces_at(self, named, target, positions)? {
            for piece in pieces.iter().filter(|piece| piece.form.represents_block()) {
                if let Some(entry) = self.transcript().get(piece.message) {
                    let block = (entry.id, piece.block);
                    blocks.entry(position).or_default().push(block);
                }
            }
        }
        Ok(blocks)
    }

    /// Returns the reason for which a provider would reject the view now. `None` if the view is sendable.
    pub fn not_sendable_reason(&self) -> Option<NotSendableReason> {
        let tail = ViewTail::of(self.sealed().pieces(), self.transcript());
        // Open calls are the more specific reason, so they are reported first.
        if !tail.open_calls.is_empty() {
            return Some(NotSendableReason::OpenCalls(tail.open_calls));
        }
        match tail.last {
            None => Some(NotSendableReason::Empty),
            // A pending message is not part of the view yet, so the view would lack the end of the conversation.
            Some(Speaker::User) if self.pending().is_empty() => None,
            _ => Some(NotSendableReason::EndsWithAssistant),
        }
    }

    /// Returns the repairs of pieces whose contents are loaded.
    fn repairs(&self, pieces: &[Piece], target: &Target) -> Vec<Repair> {
        // These repairs have no form of their own.
        let kind = |piece: &Piece| match piece.form {
            PieceForm::Call(call) if self.calls().get(call)?.uses_service_id => {
                Some(RepairKind::MappedCallId(call))
            }
            _ => is_replaced(self.transcript(), target, piece)
                .then_some(RepairKind::UnsupportedBlock),
        };
        let repair = |piece: &Piece| {
            piece.repair().or_else(|| {
                Some(Repair {
                    message: piece.message,
                    block: piece.block,
                    kind: kind(piece)?,
                })
            })
        };
        pieces.iter().filter_map(repair).collect()
    }
}
