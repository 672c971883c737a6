//! Snapshots: the state of a session without message contents, so that loading does not replay the whole log.
//!
//! The contents that a session needs first ([`Snapshot::content_range`]) are read from the log. The other contents are
//! read on demand.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::cache_edits::{CacheEditBatch, CacheEdits};
use super::calls::{Call, Calls};
use super::compaction::Compactions;
use super::persist_decisions::PersistDecisions;
use super::requests::{AnsweredRequest, Requests};
use super::session_memory::SessionMemory;
use super::spans::Spans;
use super::stored_results::{PositionedResult, StoredResults};
use super::transcript::{Transcript, TranscriptEntry};
use super::turns::Turns;
use super::working_state::SessionWorkingState;
use super::{LastServed, PromptCache, Session, SessionInfo, SnipGrowth, ViewChange};
use crate::array::{ArrayTips, CallerArray};
use crate::event::{PendingMessage, PersistDecision, RequestMethod, Visibility};
use crate::ids::{MessageId, Ordinal, Revision, SessionKey, Timestamp};
use crate::message::{Digest, Message};
use crate::policy::Policy;
use crate::tokens::TokenLedger;
use crate::view::Sealed;
use crate::working::Pins;

/// The state of a session without message contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The session's key.
    pub key: SessionKey,
    /// The revision that the snapshot covers.
    pub revision: Revision,
    /// The version of the rules by which commands are decided.
    pub rules_version: u32,
    /// The resolved policy.
    pub policy: Arc<Policy>,
    /// The summary fields that lists show.
    pub info: SessionInfo,
    /// The index of all messages.
    pub entries: Vec<SnapshotEntry>,
    /// The first message of each user turn.
    pub turns: Vec<Ordinal>,
    /// Blocks with images, as message, block and number of images.
    pub image_counts: Vec<(Ordinal, u16, u16)>,
    /// Items that are sent with their ids, as message, block and digest of the id.
    pub item_ids: Vec<(Ordinal, u16, Digest)>,
    /// The tool calls.
    pub calls: Vec<Call>,
    /// The stored results.
    pub stored_results: Vec<PositionedResult>,
    /// The persist decisions about results that were not appended yet.
    pub persist_decisions: Vec<PersistDecision>,
    /// The number of the next persist decision.
    pub next_persist_decision: u32,
    /// The staged and collapsed spans.
    pub spans: Spans,
    /// The state of the session memory.
    pub memory: SessionMemory,
    /// The state of all compactions.
    pub compactions: Compactions,
    /// The messages that were appended and not served yet.
    pub pending: Vec<PendingMessage>,
    /// The sealed layout.
    pub sealed: Sealed,
    /// The cache edits that are in effect.
    pub cache_edits: Vec<CacheEditBatch>,
    /// The token ledger.
    pub ledger: TokenLedger,
    /// The answered requests, oldest first.
    pub requests: Vec<(RequestMethod, Box<str>, AnsweredRequest)>,
    /// The target and the sizes of the last serving.
    pub last_served: LastServed,
    /// The re-emitted message, if the last append was a re-emission.
    pub last_reemitted: Option<Ordinal>,
    /// Time of the last response.
    pub last_response: Option<Timestamp>,
    /// The growth since the last snip or snip reminder.
    pub since_snip: SnipGrowth,
    /// The view-changing events, oldest first.
    pub view_changes: Vec<ViewChange>,
    /// The state of the provider's prompt cache.
    pub prompt_cache: PromptCache,
    /// The working state. It is stored in full, because its size is bounded.
    pub working: SessionWorkingState,
    /// The array as the caller has it.
    pub array: CallerArray,
    /// The tips by which the session is found.
    pub tips: ArrayTips,
}

/// A message in a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotEntry {
    /// The index entry, without the content.
    pub entry: TranscriptEntry,
    /// The key by which a re-emission of this message is recognized.
    pub reemission_key: Option<Digest>,
}

/// The events whose messages must be read before a session can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContentRange {
    /// The revisions of the operator messages before the conversation. Every view contains them.
    pub lead: Option<RangeInclusive<Revision>>,
    /// The first revision of the loaded end of the session. All later revisions are needed too.
    pub tail: Option<Revision>,
}

impl Snapshot {
    /// Returns the events that must be read so that the session holds its last `messages` visible messages.
    pub fn content_range(&self, messages: usize) -> ContentRange {
        // At least one message is always loaded, because `restore` requires the content of the last one.
        let entries = || self.entries.iter().map(|stored| &stored.entry);
        let visible = || entries().filter(|entry| entry.visibility == Visibility::Visible);
        let lead = || visible().take_while(|entry| entry.role.is_system());
        let spoken = visible().rev().filter(|entry| !entry.role.is_system());
        let tail = spoken.take(messages.max(1)).last();
        // A recorded response can precede the only visible messages, which are those of a compaction.
        let unconfirmed = entries().find(|entry| entry.visibility == Visibility::Unconfirmed);
        let ends = tail.into_iter().chain(unconfirmed);
        ContentRange {
            lead: lead()
                .next()
                .zip(lead().last())
                .map(|(first, last)| first.revision..=last.revision),
            tail: ends.map(|entry| entry.revision).min(),
        }
    }

    /// Rebuilds the session. `contents` are messages up to [`Self::revision`], at least those that [`Self::content_range`]
    /// names.
    ///
    /// Returns `None` if the content of the last visible message of the conversation is missing.
    pub fn restore(self, contents: impl IntoIterator<Item = Arc<Message>>) -> Option<Session> {
        let mut contents: HashMap<MessageId, Arc<Message>> = contents
            .into_iter()
            .map(|message| (message.id, message))
            .collect();
        let mut transcript = Transcript::default();
        // Hidden messages keep no content in memory, even if the caller supplies it.
        for SnapshotEntry {
            mut entry,
            reemission_key: emission,
        } in self.entries
        {
            if entry.visibility.keeps_content() {
                entry.content = contents.remove(&entry.id);
            }
            transcript.push_with(entry, emission);
        }
        transcript.set_image_counts(self.image_counts);
        transcript.set_item_ids(self.item_ids);
        let is_spoken = |entry: &TranscriptEntry| {
            entry.visibility == Visibility::Visible && !entry.role.is_system()
        };
        let last = transcript
            .entries()
            .rfind(|(_, entry)| is_spoken(entry))
            .map(|(ordinal, _)| ordinal);
        if let Some(last) = last {
            transcript.content(last)?;
        }
        // Requests are recorded oldest first, because `record` evicts from the front.
        let mut requests = Requests::default();
        for (method, id, answered) in self.requests {
            requests.record(method, &id, answered);
        }
        let calls = Calls::restore(self.calls);
        let pins = Pins::of(&self.working.state, &transcript);
        Some(Session {
            turns: Turns::new(&self.key, self.info.forked_from.as_ref(), self.turns),
            key: self.key,
            revision: self.revision,
            rules_version: self.rules_version,
            policy: self.policy,
            info: self.info,
            transcript,
            stored_results: StoredResults::restore(self.stored_results, &calls),
            persist_decisions: PersistDecisions::restore(
                self.persist_decisions,
                self.next_persist_decision,
            ),
            calls,
            spans: self.spans,
            memory: self.memory,
            compactions: self.compactions,
            pending: self.pending,
            sealed: self.sealed,
            cache_edits: CacheEdits::restore(self.cache_edits),
            ledger: self.ledger,
            requests,
            last_served: self.last_served,
            last_reemitted: self.last_reemitted,
            last_response: self.last_response,
            since_snip: self.since_snip,
            view_changes: self.view_changes,
            prompt_cache: self.prompt_cache,
            pins,
            working: self.working,
            array: self.array,
            tips: self.tips,
        })
    }
}

impl Session {
    /// Creates a snapshot of the session.
    pub fn snapshot(&self) -> Snapshot {
        // The re-emission keys depend on contents that a snapshot does not contain, so they are stored with the
        // entries.
        let emissions: HashMap<Ordinal, Digest> = self.transcript.reemission_keys().collect();
        Snapshot {
            key: self.key.clone(),
            revision: self.revision,
            rules_version: self.rules_version,
            policy: Arc::clone(&self.policy),
            info: self.info.clone(),
            entries: self
                .transcript
                .entries()
                .map(|(ordinal, entry)| SnapshotEntry {
                    entry: entry.without_content(),
                    reemission_key: emissions.get(&ordinal).copied(),
                })
                .collect(),
            turns: self.turns.starts().to_vec(),
            image_counts: self.transcript.image_counts().collect(),
            item_ids: self.transcript.item_ids().collect(),
            calls: self.calls.iter().map(|(_, call)| call.clone()).collect(),
            stored_results: self
                .stored_results
                .iter()
                .map(|(message, block, stored)| PositionedResult {
                    position: Some((message, block)),
                    stored: stored.clone(),
                })
                .collect(),
            persist_decisions: self.persist_decisions.iter().cloned().collect(),
            next_persist_decision: self.persist_decisions.next_key().get(),
            spans: self.spans.clone(),
            memory: self.memory.clone(),
            compactions: self.compactions.clone(),
            pending: self.pending.clone(),
            sealed: self.sealed.clone(),
            cache_edits: self.cache_edits.batches().to_vec(),
            ledger: self.ledger.clone(),
            requests: self
                .requests
                .iter()
                .map(|(method, id, answered)| (method, id.into(), answered))
                .collect(),
            last_served: self.last_served.clone(),
            last_reemitted: self.last_reemitted,
            last_response: self.last_response,
            since_snip: self.since_snip,
            view_changes: self.view_changes.clone(),
            prompt_cache: self.prompt_cache.clone(),
            working: self.working.clone(),
            array: self.array.clone(),
            tips: self.tips.clone(),
        }
    }
}
