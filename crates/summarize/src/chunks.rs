//! Summaries of conversations that exceed the model's window. The conversation is split into pieces,
//! and each request contains the summary of the preceding pieces.

use std::collections::VecDeque;
use std::ops::Range;

use crate::error::Error;
use crate::request::{ChatMessage, StopReason, SummaryReply, SummaryRequest, Usage};
use crate::rounds::{Round, split, turns};
use crate::summarizer::Summarizer;

/// The limits of a summary in pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkSettings {
    /// The maximum size of a piece in tokens. It is the window minus the output, the running
    /// summary, the instruction and a margin for estimation errors.
    pub chunk_tokens: u64,
    /// The maximum number of planned pieces. Beyond it the oldest rounds are dropped. Default: 32.
    pub max_chunks: usize,
    /// The maximum number of requests, including those for halved pieces. Default: 48.
    pub max_requests: u32,
}

impl ChunkSettings {
    /// Creates the settings for a context window. `overhead_tokens` is the size of the system prompt
    /// and the instruction.
    pub fn for_window(window_tokens: u64, max_output_tokens: u64, overhead_tokens: u64) -> Self {
        // The output is reserved twice: for the new summary and for the summary of the preceding
        // piece in the request.
        let reserved = max_output_tokens
            .saturating_mul(2)
            .saturating_add(overhead_tokens);
        let free = window_tokens.saturating_sub(reserved);
        Self {
            // The margin is a tenth. A piece has at least a tenth of the window: a rejected request
            // is better than none.
            chunk_tokens: (free - free / 10).max(window_tokens / 10).max(1),
            max_chunks: 32,
            max_requests: 48,
        }
    }
}

/// The position of a piece in the conversation. It selects the instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkPosition {
    /// The only piece: the whole conversation.
    Only,
    /// The first of several pieces.
    First,
    /// A middle piece. Its messages start with the running summary.
    Next,
    /// The last of several pieces. Its messages start with the running summary.
    Last,
}

/// A summary of all pieces with its statistics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkedSummary {
    /// The last summary, with the total usage of all requests.
    pub reply: SummaryReply,
    /// The number of pieces.
    pub chunks: u32,
    /// The number of oldest rounds that were dropped to stay within the maximum number of pieces.
    pub dropped_rounds: usize,
}

/// Groups rounds in order into pieces of at most `chunk_tokens` tokens. Only a single larger round
/// may exceed the limit.
pub fn plan_chunks(tokens: &[u64], chunk_tokens: u64) -> Vec<Range<usize>> {
    let mut chunks = Vec::new();
    let (mut start, mut sum) = (0, 0_u64);
    for (index, tokens) in tokens.iter().enumerate() {
        if index > start && sum.saturating_add(*tokens) > chunk_tokens {
            chunks.push(start..index);
            (start, sum) = (index, 0);
        }
        sum = sum.saturating_add(*tokens);
    }
    if start < tokens.len() {
        chunks.push(start..tokens.len());
    }
    chunks
}

/// Summarizes rounds piece by piece.
///
/// `instruct` returns the instruction for each position. A piece that the provider rejects as too
/// long is halved, so no content is lost. A round that is larger than a piece is cut.
/// `request.turns` and `request.instruction` are ignored. Returns [`Error::PromptTooLong`] if a
/// piece cannot be halved further.
pub async fn summarize_in_chunks(
    summarizer: &dyn Summarizer,
    request: &SummaryRequest,
    rounds: &[Round],
    settings: ChunkSettings,
    instruct: &(dyn Fn(ChunkPosition) -> String + Sync),
) -> Result<ChunkedSummary, Error> {
    let (mut waiting, dropped_rounds) = split_into_chunks(rounds, settings);
    let mut so_far: Option<String> = None;
    let (mut chunks, mut requests) = (0, 0);
    let mut usage = Usage::default();
    loop {
        let piece = waiting.pop_front().unwrap_or_default();
        let place = match (&so_far, waiting.is_empty()) {
            (None, true) => ChunkPosition::Only,
            (None, false) => ChunkPosition::First,
            (Some(_), false) => ChunkPosition::Next,
            (Some(_), true) => ChunkPosition::Last,
        };
        let mut asked = request.clone();
        asked.instruction = instruct(place);
        asked.turns = chunk_turns(so_far.as_deref(), &piece, dropped_rounds > 0);
        // A rejected request counts too, so that repeated halving stays within the limit.
        requests += 1;
        let mut reply = match summarizer.summarize(&asked).await {
            Ok(reply) => reply,
            Err(Error::PromptTooLong(found)) => {
                // The token counts are estimates, so the provider may reject a planned piece.
                let halves = halve(&piece).filter(|_| requests < settings.max_requests);
                let Some((first, second)) = halves else {
                    return Err(Error::PromptTooLong(found));
                };
                // Both halves precede the other pieces, because each summary continues the one before it.
                waiting.push_front(second);
                waiting.push_front(first);
                continue;
            }
            Err(error) => return Err(error),
        };
        chunks += 1;
        usage += reply.usage;
        if waiting.is_empty() || reply.stop == StopReason::Refusal {
            // The refusal is returned at once, because later pieces would build on it.
            reply.usage = usage;
            return Ok(ChunkedSummary {
                reply,
                chunks,
                dropped_rounds,
            });
        }
        if requests >= settings.max_requests {
            let detail = format!("the conversation takes more than {requests} requests");
            return Err(Error::bad_request(detail));
        }
        tracing::debug!(
            chunks,
            left = waiting.len(),
            "summarized a chunk of a conversation"
        );
        so_far = Some(summary_to_carry(&reply.text).to_owned());
    }
}

/// Returns the pieces, oldest first, and the number of rounds dropped at the start.
fn split_into_chunks(rounds: &[Round], settings: ChunkSettings) -> (VecDeque<Vec<Round>>, usize) {
    // A cut round yields several pieces. Its index is kept, so that dropped rounds can be counted.
    let cut: Vec<(usize, Round)> = rounds
        .iter()
        .enumerate()
        .flat_map(|(at, round)| {
            let pieces = split(round, settings.chunk_tokens);
            pieces.into_iter().map(move |piece| (at, piece))
        })
        .collect();
    let tokens: Vec<u64> = cut.iter().map(|(_, round)| round.tokens).collect();
    // The latest pieces are kept, because recent messages matter most.
    let plan = plan_chunks(&tokens, settings.chunk_tokens);
    let skip = plan.len().saturating_sub(settings.max_chunks.max(1));
    let first = plan.get(skip).and_then(|range| cut.get(range.start));
    let dropped = first.map_or(0, |(at, _)| *at);
    let piece = |range: &Range<usize>| cut[range.clone()].iter().map(|(_, round)| round.clone());
    let pieces = plan[skip..].iter().map(|range| piece(range).collect());
    (pieces.collect(), dropped)
}

/// Returns the messages of a piece after the running summary. The summary is quoted as data, so that
/// its text does not gain the user's authority.
fn chunk_turns(so_far: Option<&str>, piece: &[Round], truncated: bool) -> Vec<ChatMessage> {
    // Only the first piece follows the dropped rounds directly. Later pieces follow the running summary.
    let mut said = turns(piece, truncated && so_far.is_none());
    if let Some(so_far) = so_far {
        let text = format!(
            "The conversation is given in parts. This is the summary of the parts before this one:\n\n<summary-so-far>\n{so_far}\n</summary-so-far>\n\nThe next part follows."
        );
        said.insert(0, ChatMessage::user(text));
    }
    said
}

/// Returns the part of an answer that the next request contains: the summary without the scratchpad.
fn summary_to_carry(text: &str) -> &str {
    // Every tag is optional: an answer that was cut off has no closing tag.
    let text = text
        .split_once("</analysis>")
        .map_or(text, |(_, rest)| rest);
    let text = text.split_once("<summary>").map_or(text, |(_, rest)| rest);
    text.rsplit_once("</summary>")
        .map_or(text, |(rest, _)| rest)
        .trim()
}

/// Splits a piece into two halves by tokens. Splits the text if the piece is a single round.
fn halve(piece: &[Round]) -> Option<(Vec<Round>, Vec<Round>)> {
    let total = piece
        .iter()
        .map(|round| round.tokens)
        .fold(0, u64::saturating_add);
    if let [round] = piece {
        let pieces = split(round, round.tokens.div_ceil(2));
        let (first, rest) = pieces.split_first()?;
        return (!rest.is_empty()).then(|| (vec![first.clone()], rest.to_vec()));
    }
    let mut sum = 0_u64;
    let middle = piece.iter().position(|round| {
        sum = sum.saturating_add(round.tokens);
        sum >= total / 2
    })?;
    // A last round with most of the tokens is a half of its own. Sizes of 1 and 99 are split between the two.
    let middle = (middle + 1).min(piece.len() - 1);
    Some((piece[..middle].to_vec(), piece[middle..].to_vec()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{ChunkSettings, halve, plan_chunks, split_into_chunks, summary_to_carry};
    use crate::request::ChatMessage;
    use crate::rounds::Round;

    fn round(tokens: u64) -> Round {
        let text = "word ".repeat(usize::try_from(tokens).unwrap_or(0));
        Round {
            turns: vec![ChatMessage::user(text)],
            tokens,
        }
    }

    #[track_caller]
    fn check(tokens: &[u64], chunk: u64, expected: &[std::ops::Range<usize>]) {
        assert_eq!(plan_chunks(tokens, chunk), expected);
    }

    #[test]
    fn chunks_are_filled_up_to_their_limit() {
        check(&[], 10, &[]);
        check(&[5, 5, 5], 10, &[0..2, 2..3]);
        check(&[5, 5, 5, 1], 15, &[0..3, 3..4]);
        check(&[50, 5, 5], 10, &[0..1, 1..3]);
        check(&[5, 50, 5], 10, &[0..1, 1..2, 2..3]);
    }

    #[test]
    fn a_window_leaves_room_for_two_summaries() {
        let settings = ChunkSettings::for_window(200_000, 20_000, 2_000);
        // 158,000 tokens remain after two outputs and the overhead. A tenth of them is the margin.
        assert_eq!(settings.chunk_tokens, 142_200);
        // The outputs alone exceed this window, so the minimum of a tenth of the window applies.
        assert_eq!(
            ChunkSettings::for_window(1_000, 20_000, 0).chunk_tokens,
            100
        );
    }

    #[test]
    fn the_oldest_of_too_many_chunks_are_dropped() {
        let rounds: Vec<Round> = (0..10).map(|_| round(10)).collect();
        let settings = ChunkSettings {
            chunk_tokens: 20,
            max_chunks: 3,
            max_requests: 10,
        };
        let (pieces, dropped) = split_into_chunks(&rounds, settings);
        // Two rounds fit into a piece, which gives five pieces. The two oldest pieces contain four rounds.
        assert_eq!((pieces.len(), dropped), (3, 4));
    }

    #[test]
    fn a_chunk_that_cannot_be_cut_is_not_halved() {
        assert_eq!(
            halve(&[round(1), round(99)]).map(|(a, b)| (a.len(), b.len())),
            Some((1, 1))
        );
        let (first, second) = halve(&[round(100)]).expect("a long text can be cut");
        assert!(first[0].tokens < 100 && second[0].tokens < 100);
        // A single character cannot be split, whatever the estimate of its tokens.
        let one = Round {
            turns: vec![ChatMessage::user("x")],
            tokens: 100,
        };
        assert_eq!(halve(&[one]), None);
        assert_eq!(halve(&[]), None);
    }

    #[test]
    fn the_scratchpad_is_not_carried_to_the_next_chunk() {
        assert_eq!(
            summary_to_carry("<analysis>a</analysis>\n<summary>\ns\n</summary>"),
            "s"
        );
        assert_eq!(summary_to_carry("<summary>cut off"), "cut off");
        assert_eq!(summary_to_carry(" plain "), "plain");
    }

    proptest! {
        #[test]
        fn every_round_is_in_one_chunk_and_no_chunk_is_too_large(
            tokens in prop::collection::vec(1_u64..100, 0..50),
            chunk in 1_u64..300,
        ) {
            let plan = plan_chunks(&tokens, chunk);
            let covered: Vec<usize> = plan.iter().flat_map(Clone::clone).collect();
            prop_assert_eq!(covered, (0..tokens.len()).collect::<Vec<_>>());
            for range in plan {
                let sum: u64 = tokens[range.clone()].iter().sum();
                prop_assert!(sum <= chunk || range.len() == 1);
            }
        }
    }
}
