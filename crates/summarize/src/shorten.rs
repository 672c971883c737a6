//! Asks again with fewer rounds when the prompt was too long.

use crate::Summarizer;
use crate::error::Error;
use crate::request::{Reply, Request};
use crate::rounds::{Round, shorten, turns};

/// How often a prompt is made shorter before the caller has to do without the model.
pub const MAX_RETRIES: u32 = 3;

/// A summary, and what had to go for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortened {
    /// The summary.
    pub reply: Reply,
    /// How many of the oldest rounds it does not cover.
    pub dropped_rounds: usize,
    /// How often the prompt was made shorter.
    pub retries: u32,
}

/// Asks for a summary of rounds. When the prompt is too long the oldest ones go (see
/// [`shorten`](crate::shorten)), at most [`MAX_RETRIES`] times. `request.turns` is not looked at.
pub async fn summarize_with_retries(
    summarizer: &dyn Summarizer,
    request: &Request,
    rounds: &[Round],
) -> Result<Shortened, Error> {
    let mut dropped_rounds = 0;
    let mut retries = 0;
    loop {
        let left = &rounds[dropped_rounds..];
        let mut asked = request.clone();
        asked.turns = turns(left, dropped_rounds > 0);
        let drop = match summarizer.summarize(&asked).await {
            Ok(reply) => {
                return Ok(Shortened {
                    reply,
                    dropped_rounds,
                    retries,
                });
            }
            Err(Error::PromptTooLong(found)) if retries < MAX_RETRIES => {
                match shorten(left, found.gap_tokens) {
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
