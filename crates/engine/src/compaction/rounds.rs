//! The conversation as input for a model, in rounds, with the messages that each round covers.

use palimpsest_core::ids::Ordinal;
use palimpsest_core::levels::compaction::SummaryInputMessage;
use palimpsest_core::message::Role;
use palimpsest_core::session::DroppedContent;
use palimpsest_summarize::{ChatMessage, Round};

/// Rounds in order, oldest first. A round is a model response with the results of its calls, and is kept or dropped
/// as a whole.
#[derive(Debug, Default)]
pub(crate) struct InputRounds {
    pub(crate) all: Vec<Round>,
    /// The messages of each round, parallel to `all`.
    sources: Vec<Vec<Ordinal>>,
}

impl InputRounds {
    pub(crate) fn of(messages: Vec<SummaryInputMessage>) -> Self {
        let mut rounds = Self::default();
        for one in messages {
            let turn = match one.role {
                Role::Assistant => ChatMessage::assistant(one.text),
                _ => ChatMessage::user(one.text),
            };
            let tokens = u64::from(one.tokens);
            let last = rounds.all.last_mut().zip(rounds.sources.last_mut());
            // A message that answers the previous one belongs to its round.
            if let Some((round, sources)) = last.filter(|_| one.answers) {
                round.turns.push(turn);
                round.tokens += tokens;
                sources.extend(one.messages);
            } else {
                let turns = vec![turn];
                rounds.all.push(Round { turns, tokens });
                rounds.sources.push(one.messages);
            }
        }
        rounds
    }

    /// Describes the content of the oldest `rounds` rounds. Returns `None` if they contain no messages.
    pub(super) fn describe_dropped(&self, rounds: usize) -> Option<DroppedContent> {
        let messages = || self.sources.iter().take(rounds).flatten();
        let tokens: u64 = self.all.iter().take(rounds).map(|round| round.tokens).sum();
        Some(DroppedContent {
            messages: u32::try_from(messages().count()).unwrap_or(u32::MAX),
            rounds: u32::try_from(rounds).unwrap_or(u32::MAX),
            tokens: u32::try_from(tokens).unwrap_or(u32::MAX),
            first: *messages().next()?,
            last: *messages().last()?,
        })
    }

    /// Returns how many of the oldest rounds must be dropped so that the rest has at most `tokens` tokens. The last
    /// round always remains.
    pub(super) fn rounds_over(&self, tokens: u64) -> usize {
        let mut left: u64 = self.all.iter().map(|round| round.tokens).sum();
        let most = self.all.len().saturating_sub(1);
        let too_many = self.all.iter().take(most).take_while(|round| {
            let is_over = left > tokens;
            left -= round.tokens;
            is_over
        });
        too_many.count()
    }
}

#[cfg(test)]
mod tests {
    use palimpsest_core::ids::Ordinal;
    use palimpsest_core::levels::compaction::SummaryInputMessage;
    use palimpsest_core::message::Role;

    use super::InputRounds;

    fn messages() -> Vec<SummaryInputMessage> {
        let one = |role, text: &str, answers, at| SummaryInputMessage {
            role,
            text: text.to_owned(),
            answers,
            tokens: 10,
            messages: vec![Ordinal::new(at)],
        };
        vec![
            one(Role::User, "fix it", false, 0),
            one(Role::Assistant, "[called read]", false, 1),
            one(Role::User, "[the tool returned] a", true, 2),
            one(Role::User, "and now", false, 3),
            one(Role::Assistant, "done", false, 4),
        ]
    }

    #[test]
    fn a_call_and_its_result_form_one_round() {
        let rounds = InputRounds::of(messages());
        let sizes = rounds.all.iter();
        let sizes: Vec<_> = sizes
            .map(|round| (round.turns.len(), round.tokens))
            .collect();
        assert_eq!(sizes, [(1, 10), (2, 20), (1, 10), (1, 10)]);
    }

    #[test]
    fn dropped_rounds_are_reported_with_messages_and_tokens() {
        let rounds = InputRounds::of(messages());
        assert_eq!(rounds.describe_dropped(0), None);
        let dropped = rounds.describe_dropped(2).unwrap();
        assert_eq!(
            (dropped.messages, dropped.rounds, dropped.tokens),
            (3, 2, 30)
        );
        assert_eq!(
            (dropped.first, dropped.last),
            (Ordinal::new(0), Ordinal::new(2))
        );
    }

    #[test]
    fn the_oldest_rounds_are_dropped_and_the_last_is_kept() {
        let rounds = InputRounds::of(messages());
        for (tokens, over) in [(50, 0), (49, 1), (40, 1), (39, 2), (20, 2), (10, 3), (0, 3)] {
            assert_eq!(rounds.rounds_over(tokens), over, "{tokens}");
        }
        assert_eq!(InputRounds::default().rounds_over(0), 0);
    }
}
