//! A summary that is there already, where hooks have a say: it does not take its place at once, but as one
//! that is begun and finished, so that they can be asked in between.

use super::ahead::{self, CompactWithPrepared};
use super::range::expired;
use super::with_memory::CompactWithMemory;
use crate::command::decision::{Context, Decision};
use crate::command::reject::Rejection;
use crate::event::{Compacted, CompactionStarted, Event, RequestStamp};
use crate::session::Session;

/// Begin to put a summary in its place that is there already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartReady {
    /// The running one.
    Memory(CompactWithMemory),
    /// The one that was written ahead.
    Prepared(CompactWithPrepared),
}

impl StartReady {
    pub(in crate::command) fn decide(
        self,
        session: &Session,
        context: Context<'_>,
    ) -> Result<Decision, Rejection> {
        let decided = match self {
            Self::Memory(compact) => compact.decide(session, context)?,
            Self::Prepared(compact) => compact.decide(session, context)?,
        };
        let Decision::Events(events) = decided else {
            return Ok(decided);
        };
        // What would happen at once is begun instead.
        let timeout = session.policy().autocompact.timeout.get();
        let ended =
            expired(session, context.now).or_else(|| ahead::displaced(session, context.now));
        let begun = events.into_iter().map(|event| match event {
            Event::Compacted(compacted) => started(compacted, context.now.plus_millis(timeout)),
            event => event,
        });
        Ok(Decision::Events(ended.into_iter().chain(begun).collect()))
    }
}

fn started(compacted: Compacted, expires: crate::ids::Timestamp) -> Event {
    let request: Option<RequestStamp> = compacted.request;
    Event::CompactionStarted(CompactionStarted {
        key: compacted.key,
        asked: compacted.asked,
        strategy: compacted.strategy,
        expires,
        leaving: compacted.leaving,
        before_tokens: compacted.before_tokens,
        ahead: false,
        instructions: None,
        request,
    })
}
