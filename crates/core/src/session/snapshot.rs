//! A session without its contents, so that loading one need not replay its log from the start.
//!
//! A snapshot is an index: what each message is, not what it says. The messages that the view still
//! needs are read back from the log, beginning with [`Snapshot::first_needed`].

use std::collections::HashMap;
use std::sync::Arc;

use super::calls::{Call, Calls};
use super::pending::Pending;
use super::requests::{Answered, Method, Requests};
use super::transcript::{Entry, Standing, Transcript};
use super::{About, LastServed, Session};
use crate::ids::{MessageId, Ordinal, Revision, SessionKey};
use crate::message::{Digest, Message, Role};
use crate::policy::Policy;
use crate::tokens::{Ledger, Size};
use crate::view::Sealed;

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
    pub policy: Policy,
    /// What a list shows of it.
    pub about: About,
    /// Its messages.
    pub entries: Vec<SnapshotEntry>,
    /// Its tool calls.
    pub calls: Vec<Call>,
    /// What was appended and not served yet.
    pub pending: Vec<Pending>,
    /// What was served.
    pub sealed: Sealed,
    /// The running count of tokens.
    pub ledger: Ledger,
    /// The requests that it has answered, oldest first.
    pub requests: Vec<(Method, Box<str>, Answered)>,
    /// For whom it was served last.
    pub last_served: LastServed,
    /// The message that was re-emitted last, when nothing came since.
    pub last_reemitted: Option<Ordinal>,
    /// The view-changing events, oldest first.
    pub view_changes: Vec<Revision>,
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
    /// Where it stands with regard to the view.
    pub standing: Standing,
    /// Its estimated size.
    pub size: Size,
    /// The key under which a re-emission of it is recognised.
    pub emission: Option<Digest>,
}

impl SnapshotEntry {
    fn is_needed(&self) -> bool {
        self.standing == Standing::Visible
    }
}

impl Snapshot {
    /// The first event whose messages the view still needs, if any.
    pub fn first_needed(&self) -> Option<Revision> {
        self.entries
            .iter()
            .find(|entry| entry.is_needed())
            .map(|entry| entry.revision)
    }

    /// The session again. `contents` are the messages of the events from [`Self::first_needed`] to
    /// [`Self::revision`]; those that are not needed may be among them.
    pub fn restore(self, contents: impl IntoIterator<Item = Arc<Message>>) -> Option<Session> {
        let mut contents: HashMap<MessageId, Arc<Message>> = contents
            .into_iter()
            .map(|message| (message.id, message))
            .collect();
        let mut transcript = Transcript::default();
        for entry in self.entries {
            let content = if entry.is_needed() {
                Some(contents.remove(&entry.id)?)
            } else {
                None
            };
            let emission = entry.emission;
            let entry = Entry {
                id: entry.id,
                revision: entry.revision,
                digest: entry.digest,
                role: entry.role,
                standing: entry.standing,
                size: entry.size,
                content,
            };
            transcript.push_with(entry, emission);
        }
        let mut requests = Requests::default();
        for (method, id, answered) in self.requests {
            requests.record(method, &id, answered);
        }
        Some(Session {
            key: self.key,
            revision: self.revision,
            rules: self.rules,
            policy: self.policy,
            about: self.about,
            transcript,
            calls: Calls::restore(self.calls),
            pending: self.pending,
            sealed: self.sealed,
            ledger: self.ledger,
            requests,
            last_served: self.last_served,
            last_reemitted: self.last_reemitted,
            view_changes: self.view_changes,
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
            policy: self.policy.clone(),
            about: self.about.clone(),
            entries: self
                .transcript
                .entries()
                .map(|(ordinal, entry)| SnapshotEntry {
                    id: entry.id,
                    revision: entry.revision,
                    digest: entry.digest,
                    role: entry.role,
                    standing: entry.standing,
                    size: entry.size,
                    emission: emissions.get(&ordinal).copied(),
                })
                .collect(),
            calls: self.calls.iter().map(|(_, call)| call.clone()).collect(),
            pending: self.pending.clone(),
            sealed: self.sealed.clone(),
            ledger: self.ledger.clone(),
            requests: self
                .requests
                .iter()
                .map(|(method, id, answered)| (method, id.into(), answered))
                .collect(),
            last_served: self.last_served.clone(),
            last_reemitted: self.last_reemitted,
            view_changes: self.view_changes.clone(),
        }
    }
}
