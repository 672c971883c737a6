//! All blocks of a view with their positions, for readers who look into a view.

use super::positions::shown_pieces;
use super::{Piece, Target, WireBlock, WireRole};
use crate::ids::Ordinal;
use crate::session::{ContentNotLoaded, Session, Visibility};

/// A block of a view.
#[derive(Debug, Clone, PartialEq)]
pub struct ViewBlock<'a> {
    /// The piece.
    pub piece: Piece,
    /// The block as the target sees it. `None` if the target does not see it.
    pub shown: Option<ShownBlock<'a>>,
}

/// A block that a target sees.
#[derive(Debug, Clone, PartialEq)]
pub struct ShownBlock<'a> {
    /// The index of the message in the array. `None` for a system message outside of the array.
    pub message: Option<u32>,
    /// The role of the message.
    pub role: WireRole,
    /// The block.
    pub block: WireBlock<'a>,
}

/// Messages that follow each other and are not part of a view for the same reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HiddenMessages {
    /// The first message.
    pub first: Ordinal,
    /// The last message.
    pub last: Ordinal,
    /// The reason. Visible messages are hidden until they are served.
    pub visibility: Visibility,
    /// The estimated tokens of the messages.
    pub tokens: u64,
}

impl Session {
    /// Returns all blocks of the last served view for a target, in the order of the array. Blocks that the target does not
    /// see follow the block before them.
    pub fn view_blocks(&self, target: &Target) -> Result<Vec<ViewBlock<'_>>, ContentNotLoaded> {
        let pieces = self.sealed().pieces();
        let mut shown = shown_pieces(self, pieces, target)?;
        let mut is_shown = vec![false; pieces.len()];
        for one in &shown {
            is_shown[one.index] = true;
        }
        let mut unseen = (0..pieces.len())
            .filter(|index| !is_shown[*index])
            .peekable();
        let mut blocks = Vec::with_capacity(pieces.len());
        let hidden = |index: usize| ViewBlock {
            piece: pieces[index],
            shown: None,
        };
        let (mut message, mut last_key) = (None::<u32>, None);
        for one in shown.drain(..) {
            // A target with system messages has another order than the pieces, so hidden pieces are merged by their
            // index.
            while let Some(index) = unseen.next_if(|index| *index < one.index) {
                blocks.push(hidden(index));
            }
            let place = if target.sends_separately(one.key.role) {
                None
            } else {
                if last_key != Some(one.key) {
                    message = Some(message.map_or(0, |message| message + 1));
                    last_key = Some(one.key);
                }
                message
            };
            blocks.push(ViewBlock {
                piece: pieces[one.index],
                shown: Some(ShownBlock {
                    message: place,
                    role: one.key.role,
                    block: one.block,
                }),
            });
        }
        blocks.extend(unseen.map(hidden));
        Ok(blocks)
    }

    /// Returns the messages of the transcript that are not part of the last served view.
    pub fn hidden_messages(&self) -> Vec<HiddenMessages> {
        let mut in_view = vec![false; self.transcript().len()];
        for piece in self.sealed().pieces() {
            if let Some(shown) = in_view.get_mut(piece.message.index()) {
                *shown = true;
            }
        }
        let mut hidden: Vec<HiddenMessages> = Vec::new();
        for (ordinal, entry) in self.transcript().entries() {
            // The first message of a collapsed span carries the placeholder.
            let is_in_view = in_view[ordinal.index()] && entry.visibility != Visibility::Collapsed;
            if is_in_view {
                continue;
            }
            let tokens = u64::from(entry.size.tokens);
            match hidden.last_mut() {
                Some(last)
                    if last.last.index() + 1 == ordinal.index()
                        && same_reason(last.visibility, entry.visibility) =>
                {
                    last.last = ordinal;
                    last.tokens += tokens;
                }
                _ => hidden.push(HiddenMessages {
                    first: ordinal,
                    last: ordinal,
                    visibility: entry.visibility,
                    tokens,
                }),
            }
        }
        hidden
    }
}

/// Returns true if two messages are hidden for the same reason. Repeated messages differ in the message that they repeat.
fn same_reason(a: Visibility, b: Visibility) -> bool {
    matches!(
        (a, b),
        (Visibility::Reemission(_), Visibility::Reemission(_))
    ) || a == b
}
