//! Layout changes: the splices with which a view-changing event edits the sealed pieces. Every view-changing event
//! carries one change, so all of them replay in the same way.

use super::piece::{Piece, count};

/// An edit of a list of pieces.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LayoutChange {
    /// The splices in ascending order of `at`. They do not overlap.
    pub splices: Vec<Splice>,
    /// The estimated tokens before the first splice. A prompt cache can still use this part.
    pub kept_tokens: u64,
}

/// One replacement of consecutive pieces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Splice {
    /// The index in the list before the change.
    pub at: u32,
    /// The number of pieces to remove.
    pub remove: u32,
    /// The pieces to insert at this index.
    pub insert: Vec<Piece>,
}

impl LayoutChange {
    /// Returns the change from `before` to `after` as at most one splice. `kept_tokens` is 0.
    pub fn between(before: &[Piece], after: &[Piece]) -> Self {
        let same = |(a, b): &(&Piece, &Piece)| a == b;
        // Common pieces at both ends are excluded, so the splice contains only the difference.
        let head = before.iter().zip(after).take_while(same).count();
        // The ends are compared within the rests. In `[1]` and `[1, 1]`, the same piece would otherwise count at both
        // ends.
        let (rest_before, rest_after) = (&before[head..], &after[head..]);
        let backwards = rest_before.iter().rev().zip(rest_after.iter().rev());
        let tail = backwards.take_while(same).count();
        let (remove, insert) = (rest_before.len() - tail, rest_after.len() - tail);
        if remove == 0 && insert == 0 {
            return Self::default();
        }
        Self {
            splices: vec![Splice {
                at: count(head),
                remove: count(remove),
                insert: rest_after[..insert].to_vec(),
            }],
            kept_tokens: 0,
        }
    }

    /// Returns true if the change has no splices.
    pub fn is_empty(&self) -> bool {
        self.splices.is_empty()
    }

    /// Returns the index of the first changed piece.
    pub fn first(&self) -> Option<usize> {
        self.splices.first().map(|splice| splice.at as usize)
    }

    /// Returns the list after the change. Indexes outside the list are clamped.
    #[must_use]
    pub fn apply(&self, before: &[Piece]) -> Vec<Piece> {
        let mut after = Vec::with_capacity(before.len());
        let mut from = 0;
        for splice in &self.splices {
            // Clamping prevents a panic for a splice outside the list.
            let at = (splice.at as usize).clamp(from, before.len());
            after.extend_from_slice(&before[from..at]);
            after.extend_from_slice(&splice.insert);
            from = (at + splice.remove as usize).min(before.len());
        }
        after.extend_from_slice(&before[from..]);
        after
    }
}

/// Builds a change by visiting the pieces of a list in order.
#[derive(Debug, Default)]
pub struct LayoutChangeBuilder {
    splices: Vec<Splice>,
    next: u32,
}

impl LayoutChangeBuilder {
    /// Leaves the next piece unchanged.
    pub fn keep(&mut self) {
        self.next += 1;
    }

    /// Removes the next piece.
    pub fn remove(&mut self) {
        self.current_splice().remove += 1;
        self.next += 1;
    }

    /// Replaces the next piece.
    pub fn replace(&mut self, piece: Piece) {
        let splice = self.current_splice();
        splice.remove += 1;
        splice.insert.push(piece);
        self.next += 1;
    }

    /// Inserts a piece before the next one.
    pub fn insert(&mut self, piece: Piece) {
        self.current_splice().insert.push(piece);
    }

    /// Returns the complete change. `kept_tokens` is 0.
    pub fn finish(self) -> LayoutChange {
        LayoutChange {
            splices: self.splices,
            kept_tokens: 0,
        }
    }

    /// Returns the splice that ends directly before the next piece, and starts one if necessary.
    fn current_splice(&mut self) -> &mut Splice {
        // Adjacent changes share a splice, which keeps the event small.
        let touches = self
            .splices
            .last()
            .is_some_and(|last| last.at + last.remove == self.next);
        if !touches {
            self.splices.push(Splice {
                at: self.next,
                remove: 0,
                insert: Vec::new(),
            });
        }
        // The list is not empty: the last splice touches, or one was pushed above.
        let last = self.splices.len() - 1;
        &mut self.splices[last]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Ordinal;
    use crate::view::PieceForm;

    fn pieces(numbers: &[u32]) -> Vec<Piece> {
        let piece = |n: &u32| Piece {
            message: Ordinal::new(*n),
            block: 0,
            form: PieceForm::Block,
        };
        numbers.iter().map(piece).collect()
    }

    #[test]
    fn a_layout_change_turns_the_first_layout_into_the_second() {
        // The repeated piece of the last list is ambiguous: it belongs to the common start or to the common end.
        let lists: [&[u32]; 6] = [&[], &[1], &[1, 2, 3], &[1, 9, 3], &[3], &[1, 2, 2, 3]];
        for before in lists {
            for after in lists {
                let change = LayoutChange::between(&pieces(before), &pieces(after));
                assert_eq!(change.apply(&pieces(before)), pieces(after));
                assert_eq!(change.is_empty(), before == after);
            }
        }
    }

    #[test]
    fn a_rewriter_merges_adjacent_edits_into_splices() {
        let mut rewriter = LayoutChangeBuilder::default();
        // The removal and the replacement are neighbours and share a splice. A kept piece separates the two insertions.
        let new = pieces(&[7, 8, 9]);
        rewriter.keep();
        rewriter.remove();
        rewriter.replace(new[0]);
        rewriter.keep();
        rewriter.insert(new[1]);
        rewriter.keep();
        rewriter.insert(new[2]);
        let change = rewriter.finish();
        assert_eq!(change.splices.len(), 3);
        let after = change.apply(&pieces(&[1, 2, 3, 4, 5]));
        assert_eq!(after, pieces(&[1, 7, 4, 8, 5, 9]));
    }
}
