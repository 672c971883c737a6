//! Persist decisions about results whose messages were not appended yet.
//!
//! A decision is binding when the message arrives. Until then the session keeps the replacement text that the caller
//! received and the file that the text refers to.

use std::collections::VecDeque;

use super::Calls;
use crate::event::{CallState, PersistDecision, only_text};
use crate::ids::{CallKey, PersistDecisionKey};
use crate::message::{Digest, ToolResult};

/// Maximum number of pending persist decisions of a session. An agent needs one per tool that runs in parallel.
pub const MAX_PENDING_DECISIONS: usize = 256;

/// The relation of an appended result to a persist decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultMatch {
    /// The result has the content that the decision was made about.
    Original,
    /// The result is the replacement text that the caller received.
    Replacement,
}

/// The pending persist decisions of a session, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PersistDecisions {
    all: VecDeque<PersistDecision>,
    next: u32,
}

impl PersistDecisions {
    /// Rebuilds the decisions from a snapshot.
    pub fn restore(all: Vec<PersistDecision>, next: u32) -> Self {
        Self {
            all: all.into(),
            next,
        }
    }

    /// Iterates over all decisions, oldest first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &PersistDecision> {
        self.all.iter()
    }

    /// Returns the key of the next decision.
    pub fn next_key(&self) -> PersistDecisionKey {
        PersistDecisionKey::new(self.next)
    }

    /// Returns the decision for a call.
    pub fn find_by_call(&self, call: CallKey) -> Option<&PersistDecision> {
        self.all.iter().find(|decision| decision.call == Some(call))
    }

    /// Returns the decision for an id whose call was not appended yet.
    pub fn find_unbound(&self, id: &str) -> Option<&PersistDecision> {
        let waits =
            |decision: &&PersistDecision| decision.call.is_none() && *decision.tool_use_id == *id;
        self.all.iter().find(waits)
    }

    /// Returns the decision whose result is stored in a file.
    pub fn find_by_file(&self, file: &str) -> Option<&PersistDecision> {
        let is_in = |decision: &&PersistDecision| {
            decision
                .stored
                .as_ref()
                .is_some_and(|stored| *stored.file == *file)
        };
        self.all.iter().find(is_in)
    }

    /// Returns true if a text is the replacement of one of these results.
    pub fn is_replacement(&self, text: &str) -> bool {
        let mut stored = self
            .all
            .iter()
            .filter_map(|decision| decision.stored.as_ref());
        stored.any(|stored| *stored.replacement == *text)
    }

    /// Returns the decision that a result of a call fulfills. The call's own decision is preferred. Another one with
    /// the same id is accepted, because results with a shared id are paired by order and not by content.
    pub fn find_match(
        &self,
        call: CallKey,
        result: &ToolResult,
    ) -> Option<(&PersistDecision, ResultMatch)> {
        let same_id = |decision: &&PersistDecision| decision.tool_use_id == result.tool_use_id;
        let mut candidates: Vec<&PersistDecision> = self.all.iter().filter(same_id).collect();
        if candidates.is_empty() {
            return None;
        }
        // `false` sorts before `true`, so the call's own decision comes first. The sort is stable: the others stay
        // oldest first.
        candidates.sort_by_key(|decision| decision.call != Some(call));
        // The replacement is compared first: a caller that received it usually appends it unchanged.
        let said = only_text(&result.content);
        let given = |decision: &&&PersistDecision| {
            let stored = decision.stored.as_ref().map(|stored| &*stored.replacement);
            said.is_some() && stored.or(decision.verdict.fixed_replacement()) == said
        };
        if let Some(decision) = candidates.iter().find(given) {
            return Some((decision, ResultMatch::Replacement));
        }
        let digest = Digest::of_result(&result.content);
        let decided = candidates
            .iter()
            .find(|decision| decision.content == digest);
        decided.map(|decision| (*decision, ResultMatch::Original))
    }

    /// Returns the decision that must be removed before another can be added. `None` if there is space. Candidates are
    /// the oldest decision that stored nothing, then the oldest whose call needs no result any more.
    ///
    /// # Errors
    ///
    /// Returns an error if all decisions are still binding. A reference that a caller received is never revoked.
    pub fn slot_for_new(
        &self,
        calls: &Calls,
    ) -> Result<Option<PersistDecisionKey>, TooManyPending> {
        if self.all.len() < MAX_PENDING_DECISIONS {
            return Ok(None);
        }
        let stored_nothing = |decision: &&PersistDecision| decision.stored.is_none();
        let is_over = |decision: &&PersistDecision| {
            let waits =
                |call| matches!(calls.state(call), CallState::Open | CallState::Interrupted);
            decision.call.is_some_and(|call| !waits(call))
        };
        // A decision without a file can be computed again from the result. One with a file has returned a reference.
        let oldest = self.all.iter().find(stored_nothing);
        let oldest = oldest.or_else(|| self.all.iter().find(is_over));
        oldest
            .map(|decision| Some(decision.key))
            .ok_or(TooManyPending)
    }

    pub(crate) fn insert(
        &mut self,
        decision: PersistDecision,
        forgotten: Option<PersistDecisionKey>,
    ) {
        self.all.retain(|other| Some(other.key) != forgotten);
        // Keys are never reused, so the counter only grows.
        self.next = self.next.max(decision.key.get() + 1);
        self.all.push_back(decision);
    }

    /// Binds the pending decision with this id to its call, which was appended now.
    pub(crate) fn bind(&mut self, id: &str, call: CallKey) {
        let waits = |decision: &&mut PersistDecision| {
            decision.call.is_none() && *decision.tool_use_id == *id
        };
        if let Some(decision) = self.all.iter_mut().find(waits) {
            decision.call = Some(call);
        }
    }

    pub(crate) fn remove_consumed(&mut self, settled: &[PersistDecisionKey]) {
        self.all.retain(|decision| !settled.contains(&decision.key));
    }
}

/// Error: the session has the maximum number of pending decisions, and all of them are binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManyPending;
