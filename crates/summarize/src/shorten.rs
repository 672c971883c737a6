//! Retries with fewer rounds after a prompt was rejected as too long.

use crate::error::Error;
use crate::request::{SummaryReply, SummaryRequest};
use crate::rounds::{Round, shorten, turns};
use crate::summarizer::Summarizer;

/// The settings of shortened retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortenSettings {
    /// The maximum number of retries. Default: 3.
    pub max_retries: u32,
    /// The share of rounds that a retry drops if the provider does not state the excess, in
    /// thousandths of a percent. Default: 20,000 (20 %).
    pub drop_millipercent: u32,
}

impl Default for ShortenSettings {
    fn default() -> Self {
        Self {
            max_retries: 3,
            drop_millipercent: 20_000,
        }
    }
}

/// A summary with the number of dropped rounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShortenedSummary {
    /// The summary.
    pub reply: SummaryReply,
    /// The number of oldest rounds that the summary does not cover.
    pub dropped_rounds: usize,
    /// The number of shortened retries.
    pub retries: u32,
}

/// Requests a summary of rounds. If the prompt is too long, drops the oldest rounds (see
/// [`shorten`](crate::shorten)) and retries. `request.turns` is ignored.
pub async fn summarize_with_retries(
    summarizer: &dyn Summarizer,
    request: &SummaryRequest,
    rounds: &[Round],
    settings: ShortenSettings,
) -> Result<ShortenedSummary, Error> {
    let mut dropped_rounds = 0;
    let mut retries = 0;
    loop {
        let left = &rounds[dropped_rounds..];
        let mut asked = request.clone();
        // The messages are rebuilt from the rounds, so that each attempt has at most one note.
        asked.turns = turns(left, dropped_rounds > 0);
        let drop = match summarizer.summarize(&asked).await {
            Ok(reply) => {
                return Ok(ShortenedSummary {
                    reply,
                    dropped_rounds,
                    retries,
                });
            }
            Err(Error::PromptTooLong(found)) if retries < settings.max_retries => {
                match shorten(left, found.gap_tokens, settings.drop_millipercent) {
                    Some(drop) => drop,
                    None => return Err(Error::PromptTooLong(found)),
                }
            }
            Err(error) => return Err(error),
        };
        dropped_rounds += drop;
        retries += 1;
        tracing::debug!(
            retries,
            dropped_rounds,
            "shortened a prompt that was too long"
        );
    }
}
