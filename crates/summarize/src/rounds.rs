//! Rounds of a conversation, and pure functions that shorten it.

use crate::redact::redact;
use crate::request::{ChatMessage, Role};

/// The text of the first message if earlier messages were dropped before an assistant message.
pub const TRUNCATED: &str = "[earlier conversation truncated for compaction retry]";

/// One round. A round is kept or dropped as a whole, so that no call loses its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round {
    /// The messages in order.
    pub turns: Vec<ChatMessage>,
    /// The number of tokens as counted by the caller.
    pub tokens: u64,
}

/// Returns the number of oldest rounds to drop. Drops rounds until a known gap is covered, and
/// otherwise a share in thousandths of a percent. Drops at least one and never all. Returns `None`
/// if fewer than two rounds are left.
pub fn shorten(rounds: &[Round], gap_tokens: Option<u64>, drop_millipercent: u32) -> Option<usize> {
    let most = rounds.len().checked_sub(1).filter(|most| *most > 0)?;
    let Some(gap) = gap_tokens else {
        let share = rounds.len() as u128 * u128::from(drop_millipercent) / 100_000;
        return Some(usize::try_from(share).unwrap_or(most).clamp(1, most));
    };
    let mut covered = 0_u64;
    let enough = rounds.iter().position(|round| {
        covered = covered.saturating_add(round.tokens);
        covered >= gap
    });
    Some(enough.map_or(most, |last| last + 1).clamp(1, most))
}

/// Returns the messages of rounds. Adds the note [`TRUNCATED`] if rounds were dropped before an
/// assistant message. A note from an earlier attempt is removed first, so notes never accumulate.
pub fn turns(rounds: &[Round], truncated: bool) -> Vec<ChatMessage> {
    let said = rounds.iter().flat_map(|round| &round.turns);
    let mut turns: Vec<ChatMessage> = said
        .skip_while(|turn| turn.text == TRUNCATED)
        .cloned()
        .collect();
    // Providers require that a conversation starts with a user message.
    let assistant_first = turns
        .first()
        .is_some_and(|turn| turn.role == Role::Assistant);
    if truncated && assistant_first {
        turns.insert(0, ChatMessage::user(TRUNCATED));
    }
    turns
}

/// Splits a round that is larger than `budget` tokens into pieces within the budget, at line ends if
/// possible.
///
/// Secrets are redacted before the split, because neither half of a cut secret would be recognized.
pub(crate) fn split(round: &Round, budget: u64) -> Vec<Round> {
    let budget = budget.max(1);
    if round.tokens <= budget {
        return vec![round.clone()];
    }
    let texts: Vec<ChatMessage> = round.turns.iter().map(redacted).collect();
    let bytes: usize = texts.iter().map(|turn| turn.text.len()).sum();
    let pieces = round.tokens.div_ceil(budget);
    // Token counts exist per round only, so the pieces are cut to equal numbers of bytes.
    let share = usize::try_from(pieces).map_or(1, |pieces| bytes.div_ceil(pieces).max(1));
    let tokens_of = |size: usize| {
        // The share is rounded up, so the estimate of a piece could be slightly above the budget.
        let scaled = u128::from(round.tokens) * size as u128 / (bytes.max(1) as u128);
        u64::try_from(scaled).unwrap_or(u64::MAX).clamp(1, budget)
    };
    let mut out: Vec<Round> = Vec::new();
    let mut current: Vec<ChatMessage> = Vec::new();
    let mut size = 0;
    for turn in texts {
        let mut rest = turn.text.as_str();
        while !rest.is_empty() {
            // `size` is below `share` here, because a full piece is pushed and resets `size`. The difference cannot
            // underflow.
            let cut = cut_at(rest, share - size);
            if cut > 0 {
                current.push(ChatMessage {
                    role: turn.role,
                    text: rest[..cut].to_owned(),
                });
            }
            size += cut;
            rest = &rest[cut..];
            // A message that continues in the next piece ends the current one, even below its
            // share.
            if !rest.is_empty() || size >= share {
                out.push(Round {
                    turns: std::mem::take(&mut current),
                    tokens: tokens_of(size),
                });
                size = 0;
            }
        }
    }
    if !current.is_empty() {
        out.push(Round {
            turns: current,
            tokens: tokens_of(size),
        });
    }
    out.retain(|piece| !piece.turns.is_empty());
    out
}

fn redacted(turn: &ChatMessage) -> ChatMessage {
    ChatMessage {
        role: turn.role,
        text: redact(&turn.text).text.into_owned(),
    }
}

/// Returns the position of a cut with at most `room` bytes before it. Prefers the last line end in
/// the second half, then a space, then a character boundary. Advances whenever `room` is not zero.
fn cut_at(text: &str, room: usize) -> usize {
    if text.len() <= room {
        return text.len();
    }
    let room = text.floor_char_boundary(room);
    let (first, second) = text[..room].split_at(text.floor_char_boundary(room / 2));
    let last = |end: char| second.rfind(end).map(|at| first.len() + at + 1);
    let cut = last('\n').or_else(|| last(' ')).unwrap_or(room);
    // If not even one character fits, one character is taken, so that the loop always terminates.
    if cut == 0 {
        return text.chars().next().map_or(0, char::len_utf8);
    }
    cut
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Round, TRUNCATED, shorten, split, turns};
    use crate::request::ChatMessage;

    fn rounds(tokens: &[u64]) -> Vec<Round> {
        let round = |tokens: &u64| Round {
            turns: vec![
                ChatMessage::assistant(format!("round of {tokens}")),
                ChatMessage::user("ok"),
            ],
            tokens: *tokens,
        };
        tokens.iter().map(round).collect()
    }

    #[track_caller]
    fn check(tokens: &[u64], gap: Option<u64>, dropped: Option<usize>) {
        assert_eq!(
            shorten(&rounds(tokens), gap, 20_000),
            dropped,
            "{tokens:?} {gap:?}"
        );
    }

    #[test]
    fn the_oldest_rounds_are_dropped_until_the_gap_is_covered() {
        check(&[100, 100, 100], Some(1), Some(1));
        check(&[100, 100, 100], Some(100), Some(1));
        check(&[100, 100, 100], Some(101), Some(2));
        // A round is dropped even for a gap of zero, because the provider rejected the prompt.
        check(&[100, 100, 100], Some(0), Some(1));
        // The last round is kept, although the gap is larger than all rounds.
        check(&[100, 100, 100], Some(10_000), Some(2));
        check(&[u64::MAX, u64::MAX, 1], Some(u64::MAX), Some(1));
    }

    #[test]
    fn without_a_gap_a_fifth_is_dropped() {
        check(&[1; 10], None, Some(2));
        // A fifth of four rounds is less than one, and at least one round is dropped.
        check(&[1; 4], None, Some(1));
        check(&[1; 2], None, Some(1));
        check(&[1; 100], None, Some(20));
    }

    #[test]
    fn the_last_round_is_kept() {
        check(&[100], None, None);
        check(&[100], Some(5), None);
        check(&[], Some(5), None);
    }

    #[test]
    fn a_user_turn_precedes_a_leading_assistant_turn() {
        let rounds = rounds(&[1, 2, 3]);
        assert_eq!(turns(&rounds, false)[0].text, "round of 1");
        let shortened = turns(&rounds[1..], true);
        assert_eq!(shortened[0], ChatMessage::user(TRUNCATED));
        // The note of one retry is no part of the next.
        let again = [Round {
            turns: shortened,
            tokens: 9,
        }];
        let texts: Vec<String> = turns(&again, true)
            .into_iter()
            .map(|turn| turn.text)
            .collect();
        assert_eq!(texts.iter().filter(|text| *text == TRUNCATED).count(), 1);
        assert_eq!(texts[1], "round of 2");
        // A user that comes first needs no introduction.
        let user = [Round {
            turns: vec![ChatMessage::user("hello")],
            tokens: 1,
        }];
        assert_eq!(turns(&user, true), [ChatMessage::user("hello")]);
    }

    #[test]
    fn a_secret_is_never_split() {
        let key = format!("ghp_{}", "a1B2c3".repeat(6));
        let round = Round {
            turns: vec![ChatMessage::user(format!(
                "{}{key}{}",
                "x ".repeat(20),
                " y".repeat(20)
            ))],
            tokens: 100,
        };
        // Each budget cuts at other positions, and some of them are inside the key.
        for budget in 1..100 {
            for piece in split(&round, budget) {
                assert!(piece.turns.iter().all(|turn| !turn.text.contains("a1B2c3")));
            }
        }
    }

    proptest! {
        #[test]
        fn the_parts_of_a_split_round_equal_the_round(
            texts in prop::collection::vec("[a-zé \n]{1,200}", 1..5),
            tokens in 1_u64..2_000,
            budget in 1_u64..500,
        ) {
            let round = Round { turns: texts.iter().map(ChatMessage::user).collect(), tokens };
            let pieces = split(&round, budget);
            let joined: String = pieces.iter().flat_map(|piece| &piece.turns).map(|turn| turn.text.as_str()).collect();
            prop_assert_eq!(joined, texts.concat());
            prop_assert!(pieces.iter().all(|piece| piece.tokens <= budget.max(1)));
            let bytes: usize = texts.iter().map(String::len).sum();
            prop_assert!(pieces.len() <= bytes);
        }
    }
}
