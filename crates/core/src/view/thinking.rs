//! The block that must follow thinking in the same response.
//!
//! Providers reject a message that ends with thinking, and reasoning without an item after it. One list of pieces serves
//! every target, but a target does not receive a block of an unknown type that another API defines. Such a block
//! therefore follows only the thinking of its own API.

use super::{Piece, PieceForm, Provider};
use crate::message::{Block, MessageOrigin};
use crate::session::Transcript;

/// The APIs that receive a later block of the same response. A response is read backwards to find them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LaterBlocks {
    anthropic: bool,
    responses: bool,
}

impl LaterBlocks {
    /// Adds a shown piece of the model that is not thinking.
    pub(crate) fn add(&mut self, piece: &Piece, transcript: &Transcript) {
        let is_seen_by = |provider: Provider| match transcript.block(piece.message, piece.block) {
            // All other forms and blocks become text or calls, which every API defines.
            Some(Block::Opaque { .. }) if piece.form == PieceForm::Block => {
                provider.accepts_unknown_fields_of(origin(piece, transcript))
            }
            _ => true,
        };
        self.anthropic |= is_seen_by(Provider::Anthropic);
        self.responses |= is_seen_by(Provider::OpenAiResponses);
    }

    /// Returns true if every target that receives the thinking in a piece also receives a block after the thinking.
    pub(crate) fn follow(self, thinking: &Piece, transcript: &Transcript) -> bool {
        match origin(thinking, transcript) {
            MessageOrigin::OpenAiResponses => self.responses,
            MessageOrigin::Typed | MessageOrigin::Anthropic | MessageOrigin::OpenAi => {
                self.anthropic
            }
        }
    }
}

fn origin(piece: &Piece, transcript: &Transcript) -> MessageOrigin {
    let message = transcript.content(piece.message);
    message.map_or_else(MessageOrigin::default, |message| message.origin)
}
