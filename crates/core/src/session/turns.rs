//! The user turns of a session and the names that a model uses for them.
//!
//! A name is six characters of 0-9 and a-z, derived from the turn number alone. The number is multiplied by a constant
//! that is coprime to 36^6, and an offset of the session is added. Names are therefore unique for two billion turns
//! and do not look like a count.

use crate::event::ForkPoint;
use crate::ids::{Ordinal, SessionKey, TurnNumber};
use crate::message::Digest;

const NAMES: u64 = 36_u64.pow(6);
/// Multiplier of turn numbers: 5^13, which is coprime to 36^6.
const STEP: u64 = 1_220_703_125;
const LETTERS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

/// The user turns of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turns {
    /// The first message of each turn, in order.
    starts: Vec<Ordinal>,
    offset: u64,
}

impl Turns {
    /// Creates the turns of a session from their first messages. `origin` is set for a fork.
    pub fn new(key: &SessionKey, origin: Option<&ForkPoint>, starts: Vec<Ordinal>) -> Self {
        let own = || {
            let digest = Digest::of_bytes(key.to_string().as_bytes());
            let mut word = [0; 8];
            word.copy_from_slice(&digest.as_bytes()[..8]);
            u64::from_le_bytes(word)
        };
        let offset = origin.map_or_else(own, |origin| origin.turn_offset);
        Self {
            starts,
            offset: offset % NAMES,
        }
    }

    /// Returns the offset of the names.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the first message of each turn.
    pub fn starts(&self) -> &[Ordinal] {
        &self.starts
    }

    /// Returns the turn that begins with a message.
    pub fn beginning_at(&self, message: Ordinal) -> Option<TurnNumber> {
        let index = self.starts.binary_search(&message).ok()?;
        TurnNumber::new(crate::view::count(index + 1))
    }

    /// Returns the turn that contains a message. `None` for messages before the first turn.
    pub fn of(&self, message: Ordinal) -> Option<TurnNumber> {
        let begun = self.starts.partition_point(|start| *start <= message);
        TurnNumber::new(crate::view::count(begun))
    }

    /// Returns the first message of a turn.
    pub fn start(&self, turn: TurnNumber) -> Option<Ordinal> {
        self.starts.get(turn.index()).copied()
    }

    /// Returns the first message of the next turn.
    pub fn end(&self, turn: TurnNumber) -> Option<Ordinal> {
        self.starts.get(turn.index() + 1).copied()
    }

    /// Returns the name of a turn.
    pub fn name(&self, turn: TurnNumber) -> String {
        // A turn number has 32 bits and `STEP` has 31, so the sum fits into 64 bits.
        let mut rest = (u64::from(turn.get()) * STEP + self.offset) % NAMES;
        let mut name = [b'0'; 6];
        for letter in name.iter_mut().rev() {
            // `rest % 36` is an index of the 36 letters, so the default is never used.
            *letter = LETTERS[usize::try_from(rest % 36).unwrap_or(0)];
            rest /= 36;
        }
        name.iter().map(|letter| char::from(*letter)).collect()
    }

    /// Returns the turn with a name. `None` if the name is malformed or no such turn exists.
    pub fn find(&self, name: &str) -> Option<TurnNumber> {
        let is_letter = |b: &u8| b.is_ascii_digit() || b.is_ascii_lowercase();
        // `from_str_radix` alone would also accept a sign and upper-case letters.
        if name.len() != 6 || !name.as_bytes().iter().all(is_letter) {
            return None;
        }
        let number = u64::from_str_radix(name, 36).ok()?;
        // Both factors are below 36^6, so their product fits into 64 bits.
        let number = (number + NAMES - self.offset) % NAMES * inverse() % NAMES;
        let turn = TurnNumber::new(u32::try_from(number).ok()?)?;
        (turn.index() < self.starts.len()).then_some(turn)
    }

    pub(crate) fn begin(&mut self, message: Ordinal) {
        self.starts.push(message);
    }
}

/// Returns the inverse of [`STEP`] modulo 36^6.
const fn inverse() -> u64 {
    // Euler's theorem: the inverse is STEP^(phi - 1), with phi(36^6) = phi(2^12 * 3^12) = 2^12 * 3^11.
    let (mut power, mut base, mut result) = ((1_u64 << 12) * 3_u64.pow(11) - 1, STEP % NAMES, 1);
    while power > 0 {
        if power % 2 == 1 {
            result = result * base % NAMES;
        }
        base = base * base % NAMES;
        power /= 2;
    }
    result
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn turns(session: &str, count: u32) -> Turns {
        let key = SessionKey::parse(&format!("projects/p/sessions/{session}")).unwrap();
        Turns::new(
            &key,
            None,
            (0..count).map(|n| Ordinal::new(n * 3)).collect(),
        )
    }

    #[test]
    fn turn_names_are_unique_and_resolve_to_their_turns() {
        let turns = turns("s", 100_000);
        let mut seen = HashSet::new();
        for number in 1..=100_000 {
            let turn = TurnNumber::new(number).unwrap();
            let name = turns.name(turn);
            assert_eq!(name.len(), 6);
            assert_eq!(turns.find(&name), Some(turn));
            assert!(seen.insert(name));
        }
        assert_eq!(
            turns.find(&turns.name(TurnNumber::new(100_001).unwrap())),
            None
        );
        for bad in ["", "abc", "ABCDEF", "abcde\u{e9}", "1234567"] {
            assert_eq!(turns.find(bad), None, "{bad}");
        }
    }

    #[test]
    fn turn_names_differ_between_sessions() {
        let first = TurnNumber::new(1).unwrap();
        assert_ne!(turns("a", 1).name(first), turns("b", 1).name(first));
    }

    #[test]
    fn a_message_belongs_to_the_latest_turn_before_it() {
        // The first turn has the messages 0 to 2, and the second begins with message 3.
        let turns = turns("s", 2);
        assert_eq!(turns.of(Ordinal::new(0)), TurnNumber::new(1));
        assert_eq!(turns.of(Ordinal::new(2)), TurnNumber::new(1));
        assert_eq!(turns.of(Ordinal::new(3)), TurnNumber::new(2));
        assert_eq!(turns.beginning_at(Ordinal::new(2)), None);
        assert_eq!(
            turns.end(TurnNumber::new(1).unwrap()),
            Some(Ordinal::new(3))
        );
        assert_eq!(
            Turns::new(
                &SessionKey::parse("projects/p/sessions/s").unwrap(),
                None,
                vec![]
            )
            .of(Ordinal::new(9)),
            None
        );
    }
}
