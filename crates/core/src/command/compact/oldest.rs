//! The oldest rounds leave without a summary, because the provider refused the prompt, or the view is
//! critical, and nothing else was small enough.

use super::made::{self, Made};
use super::range::sum;
use crate::command::decision::{Decision, Skip};
use crate::command::reject::Rejection;
use crate::event::{Asked, Dropped, Event, Strategy};
use crate::levels::compaction::oldest;
use crate::session::Session;

/// Let the oldest rounds leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DropOldest {
    /// The trigger.
    pub asked: Asked,
    /// How many tokens have to go; a share of the rounds when nobody knows.
    pub tokens: Option<u64>,
    /// What is made for it.
    pub made: Made,
}

impl DropOldest {
    pub(in crate::command) fn decide(self, session: &Session) -> Result<Decision, Rejection> {
        if !session.policy().autocompact.enabled {
            return Ok(Decision::Skipped(Skip::Disabled));
        }
        let (kept, rounds) = oldest(session, self.tokens)?;
        let (Some(first), Some(last)) = (kept.leaving.first(), kept.leaving.last()) else {
            return Ok(Decision::Skipped(Skip::NothingEligible));
        };
        let dropped = Dropped {
            messages: crate::view::count(kept.leaving.len()),
            rounds,
            tokens: u32::try_from(sum(session, &kept)).unwrap_or(u32::MAX),
            first: *first,
            last: *last,
        };
        let compacted = self.made.compacted(
            session,
            made::What {
                key: session.compactions().next_key(),
                asked: self.asked,
                strategy: Strategy::DropOldest,
                summary: "",
                must_keep: &[],
                kept,
                adopted: None,
                before: None,
                dropped: Some(dropped),
            },
        )?;
        Ok(match compacted {
            Ok(compacted) => Decision::Events(vec![Event::Compacted(compacted)]),
            Err(_) => Decision::Skipped(Skip::TooLittleGain),
        })
    }
}
