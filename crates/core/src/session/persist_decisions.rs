//! Results about which a caller has asked, and whose message has not come yet.
//!
//! What was decided then holds when the message comes. Until then an offer keeps what was promised: the
//! text that stands in the result's place, and the file that it names.

use std::collections::VecDeque;

use super::Calls;
use crate::event::{CallState, PersistDecision, only_text};
use crate::ids::{CallKey, PersistDecisionKey};
use crate::message::{Digest, ToolResult};

/// How many offers a session keeps. An agent has as many as it runs tools at once.
pub const MAX_OFFERS: usize = 256;

/// How a result that comes in relates to an offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Match {
    /// It says what was offered.
    Original,
    /// It says what the caller was given in its place.
    Replacement,
}

/// The offers of a session, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PersistDecisions {
    all: VecDeque<PersistDecision>,
    next: u32,
}

impl PersistDecisions {
    /// Puts them together again from what a snapshot holds.
    pub fn restore(all: Vec<PersistDecision>, next: u32) -> Self {
        Self {
            all: all.into(),
            next,
        }
    }

    /// All of them, oldest first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &PersistDecision> {
        self.all.iter()
    }

    /// The key of the next one.
    pub fn next_key(&self) -> PersistDecisionKey {
        PersistDecisionKey::new(self.next)
    }

    /// The one for a call.
    pub fn of_call(&self, call: CallKey) -> Option<&PersistDecision> {
        self.all.iter().find(|offer| offer.call == Some(call))
    }

    /// The one for an id that no message had yet.
    pub fn unbound(&self, id: &str) -> Option<&PersistDecision> {
        let waits = |offer: &&PersistDecision| offer.call.is_none() && *offer.tool_use_id == *id;
        self.all.iter().find(waits)
    }

    /// The one whose result is in a file.
    pub fn in_file(&self, file: &str) -> Option<&PersistDecision> {
        let is_in =
            |offer: &&PersistDecision| offer.kept.as_ref().is_some_and(|kept| *kept.file == *file);
        self.all.iter().find(is_in)
    }

    /// Whether a text was given in the place of a result.
    pub fn is_replacement(&self, text: &str) -> bool {
        let mut kept = self.all.iter().filter_map(|offer| offer.kept.as_ref());
        kept.any(|kept| *kept.text == *text)
    }

    /// The offer that a result of a call fulfils: the call's own, else another one of the same id,
    /// because results that share an id are paired by their order and not by what they say.
    pub fn fulfilled(
        &self,
        call: CallKey,
        result: &ToolResult,
    ) -> Option<(&PersistDecision, Match)> {
        let same_id = |offer: &&PersistDecision| offer.tool_use_id == result.tool_use_id;
        let mut candidates: Vec<&PersistDecision> = self.all.iter().filter(same_id).collect();
        if candidates.is_empty() {
            return None;
        }
        candidates.sort_by_key(|offer| offer.call != Some(call));
        let said = only_text(&result.content);
        let given = |offer: &&&PersistDecision| {
            let kept = offer.kept.as_ref().map(|kept| &*kept.text);
            said.is_some() && kept.or(offer.verdict.line()) == said
        };
        if let Some(offer) = candidates.iter().find(given) {
            return Some((offer, Match::Replacement));
        }
        let digest = Digest::of_result(&result.content);
        let offered = candidates.iter().find(|offer| offer.content == digest);
        offered.map(|offer| (*offer, Match::Original))
    }

    /// Which one has to go so that there is room for another: none, the oldest that promised nothing,
    /// or the oldest whose call does not wait any more. A promise that still counts is never taken
    /// back: then there is no room.
    pub fn room(&self, calls: &Calls) -> Result<Option<PersistDecisionKey>, TooManyPending> {
        if self.all.len() < MAX_OFFERS {
            return Ok(None);
        }
        let promised_nothing = |offer: &&PersistDecision| offer.kept.is_none();
        let is_over = |offer: &&PersistDecision| {
            let waits =
                |call| matches!(calls.state(call), CallState::Open | CallState::Interrupted);
            offer.call.is_some_and(|call| !waits(call))
        };
        let oldest = self.all.iter().find(promised_nothing);
        let oldest = oldest.or_else(|| self.all.iter().find(is_over));
        oldest.map(|offer| Some(offer.key)).ok_or(TooManyPending)
    }

    pub(crate) fn insert(&mut self, offer: PersistDecision, forgotten: Option<PersistDecisionKey>) {
        self.all.retain(|other| Some(other.key) != forgotten);
        self.next = self.next.max(offer.key.get() + 1);
        self.all.push_back(offer);
    }

    /// A call has come: it is the one that an offer with its id waits for.
    pub(crate) fn bind(&mut self, id: &str, call: CallKey) {
        let waits =
            |offer: &&mut PersistDecision| offer.call.is_none() && *offer.tool_use_id == *id;
        if let Some(offer) = self.all.iter_mut().find(waits) {
            offer.call = Some(call);
        }
    }

    pub(crate) fn settle(&mut self, settled: &[PersistDecisionKey]) {
        self.all.retain(|offer| !settled.contains(&offer.key));
    }
}

/// A session has no room for another offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManyPending;
