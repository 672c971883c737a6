//! What a view-changing event makes of the sealed pieces: a few places where pieces leave, come, or
//! take another form. Every view-changing event carries one, so that all of them replay in one way.

use super::piece::{Piece, count};

/// What becomes of a list of pieces.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LayoutChange {
    /// The places, from the first to the last.
    pub splices: Vec<Splice>,
    /// The estimated tokens before the first of them: what a prompt cache can still use.
    pub kept_tokens: u64,
}

/// One place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Splice {
    /// Where, in the list as it was.
    pub at: u32,
    /// How many pieces leave.
    pub remove: u32,
    /// What comes in their place.
    pub insert: Vec<Piece>,
}

impl LayoutChange {
    /// What makes `after` of `before`, as one splice.
    pub fn between(before: &[Piece], after: &[Piece]) -> Self {
        let same = |(a, b): &(&Piece, &Piece)| a == b;
        let head = before.iter().zip(after).take_while(same).count();
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

    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.splices.is_empty()
    }

    /// Where the first change is.
    pub fn first(&self) -> Option<usize> {
        self.splices.first().map(|splice| splice.at as usize)
    }

    /// The list as it leaves it.
    #[must_use]
    pub fn apply(&self, before: &[Piece]) -> Vec<Piece> {
        let mut after = Vec::with_capacity(before.len());
        let mut from = 0;
        for splice in &self.splices {
            let at = (splice.at as usize).clamp(from, before.len());
            after.extend_from_slice(&before[from..at]);
            after.extend_from_slice(&splice.insert);
            from = (at + splice.remove as usize).min(before.len());
        }
        after.extend_from_slice(&before[from..]);
        after
    }
}

/// Writes a change piece by piece, in the order of the list.
#[derive(Debug, Default)]
pub struct Rewriter {
    splices: Vec<Splice>,
    next: u32,
}

impl Rewriter {
    /// The next piece stays as it is.
    pub fn keep(&mut self) {
        self.next += 1;
    }

    /// The next piece leaves.
    pub fn remove(&mut self) {
        self.here().remove += 1;
        self.next += 1;
    }

    /// Another stands in the place of the next piece.
    pub fn replace(&mut self, piece: Piece) {
        let splice = self.here();
        splice.remove += 1;
        splice.insert.push(piece);
        self.next += 1;
    }

    /// A piece comes before the next one.
    pub fn insert(&mut self, piece: Piece) {
        self.here().insert.push(piece);
    }

    /// All of it.
    pub fn finish(self) -> LayoutChange {
        LayoutChange {
            splices: self.splices,
            kept_tokens: 0,
        }
    }

    /// The splice that reaches up to the next piece.
    fn here(&mut self) -> &mut Splice {
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
    fn a_difference_makes_the_second_of_the_first() {
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
    fn a_rewriter_writes_runs() {
        let mut rewriter = Rewriter::default();
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
