//! A session without its contents, so that loading one need not replay its log from the start.
//!
//! A snapshot is an index: what each message is, not what it says. What a session needs to go on is
//! read back from the log ([`Snapshot::needed`]); the rest follows when somebody asks for it.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::cache_edits::{CacheEdits, CachePin};
use super::calls::{Call, Calls};
use super::compaction::Compactions;
use super::persist_decisions::PersistDecisions;
use super::requests::{AnsweredRequest, Requests};
use super::session_memory::SessionMemory;
use super::spans::Spans;
use super::stored::{PositionedResult, StoredResults};
use super::transcript::{Transcript, TranscriptEntry};
use super::turns::Turns;
use super::working::SessionWorkingState;
use super::{About, LastServed, PromptCache, Session, SnipGrowth, ViewChange};
use crate::event::{PendingMessage, PersistDecision, RequestMethod, Visibility};
use crate::ids::{MessageId, Ordinal, Revision, SessionKey, Timestamp};
use crate::message::{Digest, Message, MessageKind, Role};
use crate::policy::{Policy, TokenEstimator};
use crate::tokens::{Size, TokenLedger};
use crate::view::Sealed;
use crate::working::Pins;

/// A session without its contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Its name.
    pub key: SessionKey,
    /// How many events it covers.
    pub revision: Revision,
    /// The rules by which its decisions are taken.
    pub rules: u32,
    /// What it may do.
    pub policy: Arc<Policy>,
    /// What a list shows of it.
    pub about: About,
    /// Its messages.
    pub entries: Vec<SnapshotEntry>,
    /// The messages with which user turns begin.
    pub turns: Vec<Ordinal>,
    /// How many pictures a block of a message holds, where it holds any.
    pub pictures: Vec<(Ordinal, u16, u16)>,
    /// Its tool calls.
    pub calls: Vec<Call>,
    /// The results that were stored.
    pub stored: Vec<PositionedResult>,
    /// The results about which a caller has asked.
    pub persist_decisions: Vec<PersistDecision>,
    /// The number of the next of them.
    pub next_persist_decision: u32,
    /// Its spans.
    pub spans: Spans,
    /// Its running summary.
    pub memory: SessionMemory,
    /// Its compactions.
    pub compactions: Compactions,
    /// What was appended and not served yet.
    pub pending: Vec<PendingMessage>,
    /// What was served.
    pub sealed: Sealed,
    /// The edits that the provider applies to its cache.
    pub cache_edits: Vec<CachePin>,
    /// The running count of tokens.
    pub ledger: TokenLedger,
    /// The requests that it has answered, oldest first.
    pub requests: Vec<(RequestMethod, Box<str>, AnsweredRequest)>,
    /// For whom it was served last.
    pub last_served: LastServed,
    /// The message that was re-emitted last, when nothing came since.
    pub last_reemitted: Option<Ordinal>,
    /// When the model said something last.
    pub last_response: Option<Timestamp>,
    /// What came since something was snipped.
    pub since_snip: SnipGrowth,
    /// The view-changing events, oldest first.
    pub view_changes: Vec<ViewChange>,
    /// What the prompt cache holds.
    pub prompt_cache: PromptCache,
    /// Its working state. It has no other home, and is bounded.
    pub working: SessionWorkingState,
}

/// A message without its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotEntry {
    /// Its id.
    pub id: MessageId,
    /// The event that brought it.
    pub revision: Revision,
    /// What it says, in short.
    pub digest: Digest,
    /// Who speaks.
    pub role: Role,
    /// What it is in the life of the session.
    pub kind: MessageKind,
    /// Where it stands with regard to the view.
    pub standing: Visibility,
    /// Its estimated size.
    pub size: Size,
    /// What it was counted with.
    pub counted_by: TokenEstimator,
    /// The key under which a re-emission of it is recognised.
    pub emission: Option<Digest>,
}

impl SnapshotEntry {
    fn is_visible(&self) -> bool {
        self.standing == Visibility::Visible
    }
}

/// The events whose messages a session needs to go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needed {
    /// Those that brought what the operator says before anyone else: it goes with every view.
    pub lead: Option<RangeInclusive<Revision>>,
    /// The first of those that brought the end of the session; all later ones belong to it.
    pub tail: Option<Revision>,
}

impl Snapshot {
    /// The events whose messages a session needs to go on, when it holds the last `messages` that
    /// take part in the view.
    pub fn needed(&self, messages: usize) -> Needed {
        let visible = || self.entries.iter().filter(|entry| entry.is_visible());
        let lead = || visible().take_while(|entry| entry.role.is_system());
        let spoken = visible().rev().filter(|entry| !entry.role.is_system());
        let tail = spoken.take(messages.max(1)).last();
        Needed {
            lead: lead()
                .next()
                .zip(lead().last())
                .map(|(first, last)| first.revision..=last.revision),
            tail: tail.map(|entry| entry.revision),
        }
    }

    /// The session again. `contents` are messages of the events up to [`Self::revision`]: at least
    /// those that are [`Self::needed`]. None when one of those is missing.
    pub fn restore(self, contents: impl IntoIterator<Item = Arc<Message>>) -> Option<Session> {
        let mut contents: HashMap<MessageId, Arc<Message>> = contents
            .into_iter()
            .map(|message| (message.id, message))
            .collect();
        let mut transcript = Transcript::default();
        for entry in self.entries {
            let content = if entry.is_visible() {
                contents.remove(&entry.id)
            } else {
                None
            };
            let emission = entry.emission;
            let entry = TranscriptEntry {
                id: entry.id,
                revision: entry.revision,
                digest: entry.digest,
                role: entry.role,
                kind: entry.kind,
                standing: entry.standing,
                size: entry.size,
                counted_by: entry.counted_by,
                content,
            };
            transcript.push_with(entry, emission);
        }
        transcript.set_pictures(self.pictures);
        let is_spoken = |entry: &TranscriptEntry| {
            entry.standing == Visibility::Visible && !entry.role.is_system()
        };
        let last = transcript
            .entries()
            .rfind(|(_, entry)| is_spoken(entry))
            .map(|(ordinal, _)| ordinal);
        if let Some(last) = last {
            transcript.content(last)?;
        }
        let mut requests = Requests::default();
        for (method, id, answered) in self.requests {
            requests.record(method, &id, answered);
        }
        let calls = Calls::restore(self.calls);
        let pins = Pins::of(&self.working.state, &transcript);
        Some(Session {
            turns: Turns::new(&self.key, self.turns),
            key: self.key,
            revision: self.revision,
            rules: self.rules,
            policy: self.policy,
            about: self.about,
            transcript,
            stored: StoredResults::restore(self.stored, &calls),
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
        })
    }
}

impl Session {
    /// The session without its contents.
    pub fn snapshot(&self) -> Snapshot {
        let emissions: HashMap<Ordinal, Digest> = self.transcript.emissions().collect();
        Snapshot {
            key: self.key.clone(),
            revision: self.revision,
            rules: self.rules,
            policy: Arc::clone(&self.policy),
            about: self.about.clone(),
            entries: self
                .transcript
                .entries()
                .map(|(ordinal, entry)| SnapshotEntry {
                    id: entry.id,
                    revision: entry.revision,
                    digest: entry.digest,
                    role: entry.role,
                    kind: entry.kind,
                    standing: entry.standing,
                    size: entry.size,
                    counted_by: entry.counted_by,
                    emission: emissions.get(&ordinal).copied(),
                })
                .collect(),
            turns: self.turns.starts().to_vec(),
            pictures: self.transcript.pictures().collect(),
            calls: self.calls.iter().map(|(_, call)| call.clone()).collect(),
            stored: self
                .stored
                .iter()
                .map(|(message, block, stored)| PositionedResult {
                    place: Some((message, block)),
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
            cache_edits: self.cache_edits.pins().to_vec(),
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
        }
    }
}
