//! Asks again with fewer rounds when the prompt was too long.

use crate::error::Error;
use crate::request::{Request, SummaryReply};
use crate::rounds::{Round, shorten, turns};
use crate::summarizer::Summarizer;

/// How a prompt that is too long is made shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortenSettings {
    /// How often, before the caller has to do without the model.
    pub max_retries: u32,
    /// The share of the rounds, in thousandths of a percent, that goes when the provider does not say
    /// how much is too much.
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

/// A summary, and what had to go for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShortenedSummary {
    /// The summary.
    pub reply: SummaryReply,
    /// How many of the oldest rounds it does not cover.
    pub dropped_rounds: usize,
    /// How often the prompt was made shorter.
    pub retries: u32,
}

/// Asks for a summary of rounds. When the prompt is too long the oldest ones go (see
/// [`shorten`](crate::shorten)), as often as the settings say. `request.turns` is not looked at.
pub async fn summarize_with_retries(
    summarizer: &dyn Summarizer,
    request: &Request,
    rounds: &[Round],
    settings: ShortenSettings,
) -> Result<ShortenedSummary, Error> {
    let mut dropped_rounds = 0;
    let mut retries = 0;
    loop {
        let left = &rounds[dropped_rounds..];
        let mut asked = request.clone();
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
            "a prompt was too long and is made shorter"
        );
    }
}
