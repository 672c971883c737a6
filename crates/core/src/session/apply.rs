//! How each event changes a session.

use std::sync::Arc;

use super::calls::{CallState, Calls, Pairing};
use super::pending::{Pending, settle};
use super::requests::{Answered, Requests};
use super::transcript::{Entry, Standing, Transcript};
use super::{About, LastServed, Session, WaitsFor, first_words};
use crate::event::{
    Appended, Event, MessagesAppended, Recorded, Rewound, SessionCreated, SessionUpdated,
    ViewServed,
};
use crate::ids::{CallKey, Ordinal, Revision, SessionKey, Timestamp};
use crate::message::{Block, Digest, Message, Role};
use crate::tokens::Ledger;
use crate::view::{Form, Sealed};

/// Why a log is not a session's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// There is no event.
    #[error("the log is empty")]
    Empty,
    /// It does not begin with the session's creation.
    #[error("the log does not begin with the session's creation")]
    NoCreation,
    /// A session cannot begin twice.
    #[error("the log creates the session twice (revision {0})")]
    CreatedTwice(Revision),
}

impl Session {
    /// The session after its first event.
    pub fn create(key: SessionKey, at: Timestamp, event: &SessionCreated) -> Self {
        let mut session = Self {
            key,
            revision: Revision::new(1),
            rules: event.rules,
            policy: event.policy.clone(),
            about: About {
                title: event.title.clone(),
                project_path: event.project_path.clone(),
                branch: event.branch.clone(),
                parent: event.parent.clone(),
                attributes: event.attributes.clone(),
                created: at,
                modified: at,
                ..About::default()
            },
            transcript: Transcript::default(),
            calls: Calls::default(),
            pending: Vec::new(),
            sealed: Sealed::default(),
            ledger: Ledger::default(),
            requests: Requests::default(),
            last_served: LastServed::default(),
            last_reemitted: None,
            view_changes: Vec::new(),
        };
        if let Some(request) = &event.request {
            session.remember(request, at);
        }
        session
    }

    /// Folds a whole log.
    pub fn replay(
        key: SessionKey,
        log: impl IntoIterator<Item = Recorded>,
    ) -> Result<Self, ReplayError> {
        let mut log = log.into_iter();
        let first = log.next().ok_or(ReplayError::Empty)?;
        let Event::SessionCreated(created) = &first.event else {
            return Err(ReplayError::NoCreation);
        };
        let mut session = Self::create(key, first.at, created);
        for recorded in log {
            session.apply(&recorded)?;
        }
        Ok(session)
    }

    /// Folds one event in.
    pub fn apply(&mut self, recorded: &Recorded) -> Result<(), ReplayError> {
        self.revision = self.revision.plus(1);
        self.about.modified = recorded.at;
        match &recorded.event {
            Event::SessionCreated(_) => return Err(ReplayError::CreatedTwice(self.revision)),
            Event::SessionUpdated(event) => self.updated(event),
            Event::MessagesAppended(event) => self.appended(event),
            Event::ViewServed(event) => self.served(event),
            Event::Rewound(event) => self.rewound(event),
        }
        self.about.epoch = self.sealed.epoch();
        self.about.waits_for = self.waits_for();
        if recorded.event.changes_view() {
            self.view_changes.push(self.revision);
        }
        if let Some(request) = recorded.event.request() {
            self.remember(request, recorded.at);
        }
        Ok(())
    }

    fn remember(&mut self, request: &super::RequestStamp, at: Timestamp) {
        let answered = Answered {
            digest: request.digest,
            revision: self.revision,
            at,
        };
        self.requests.record(request.method, &request.id, answered);
    }

    fn updated(&mut self, event: &SessionUpdated) {
        if let Some(title) = &event.title {
            self.about.title.clone_from(title);
        }
        if let Some(path) = &event.project_path {
            self.about.project_path.clone_from(path);
        }
        if let Some(branch) = &event.branch {
            self.about.branch.clone_from(branch);
        }
        if let Some(attributes) = &event.attributes {
            self.about.attributes.clone_from(attributes);
        }
    }

    fn appended(&mut self, event: &MessagesAppended) {
        for appended in &event.messages {
            self.append(appended);
        }
    }

    fn append(&mut self, appended: &Appended) {
        let message = &appended.message;
        let visible = appended.standing == Standing::Visible;
        let entry = Entry {
            id: message.id,
            revision: self.revision,
            digest: Digest::of_message(message),
            role: message.role,
            standing: appended.standing,
            size: appended.size,
            content: visible.then(|| Arc::clone(message)),
        };
        let ordinal = self.transcript.push(entry, message);
        self.describe(message);
        self.last_reemitted = match appended.standing {
            Standing::Reemission(of) => Some(of),
            _ => None,
        };
        if visible {
            self.pair(ordinal, message);
            let (epoch, window) = (self.sealed.epoch(), self.thresholds().window);
            self.ledger
                .add(message, ordinal, appended.size, epoch, window);
        }
    }

    /// Registers a message's calls, pairs its results, and puts its blocks up for the view.
    fn pair(&mut self, ordinal: Ordinal, message: &Message) {
        let mut blocks = Vec::with_capacity(message.blocks.len());
        for (block, content) in (0_u16..).zip(&message.blocks) {
            let pairing = match (message.role, content) {
                (Role::Assistant, Block::ToolUse(call)) => {
                    self.calls.push(ordinal, block, call);
                    None
                }
                (Role::User, Block::ToolResult(result)) => {
                    let pairing = self.calls.pair(&result.tool_use_id);
                    let message = ordinal;
                    match pairing {
                        Pairing::Answer(call) => {
                            self.calls.set(call, CallState::Answered { message, block });
                        }
                        Pairing::Late(call) => {
                            self.calls.set(call, CallState::Late { message, block });
                        }
                        Pairing::Duplicate(_) | Pairing::Orphan => {}
                    }
                    Some(pairing)
                }
                _ => None,
            };
            blocks.push((block, pairing));
        }
        if !blocks.is_empty() {
            self.pending.push(Pending {
                message: ordinal,
                blocks,
            });
        }
    }

    /// Whom the session waits for, by its last visible message that is not the operator's.
    fn waits_for(&self) -> WaitsFor {
        let mut latest =
            self.transcript.entries().rev().filter(|(_, entry)| {
                entry.standing == Standing::Visible && !entry.role.is_system()
            });
        let is_open = |message: Ordinal| {
            let mut calls = self.calls.of(message);
            calls.any(|(_, call)| call.state == CallState::Open)
        };
        let Some((last, entry)) = latest.next() else {
            return if self.transcript.is_empty() {
                WaitsFor::Anything
            } else {
                WaitsFor::User
            };
        };
        if entry.role == Role::Assistant {
            // The model may have said several things in a row.
            let said = latest.take_while(|(_, entry)| entry.role == Role::Assistant);
            let mut said = std::iter::once(last).chain(said.map(|(ordinal, _)| ordinal));
            return if said.any(is_open) {
                WaitsFor::Tools
            } else {
                WaitsFor::User
            };
        }
        // A result answers a call; its response may have others. A person's words do not wait.
        let results = entry.content.iter().flat_map(|message| &message.blocks);
        let waits = results
            .filter_map(|block| match block {
                Block::ToolResult(result) => self.calls.with_id(&result.tool_use_id).last(),
                _ => None,
            })
            .filter_map(|call| self.calls.get(*call))
            .any(|call| is_open(call.message));
        let is_input = entry
            .content
            .as_ref()
            .is_some_and(|m| m.is_real_user_input());
        if waits && !is_input {
            WaitsFor::Tools
        } else {
            WaitsFor::Model
        }
    }

    fn describe(&mut self, message: &Message) {
        self.about.count(message.role);
        if let (Role::Assistant, Some(model)) = (message.role, &message.model) {
            self.about.last_model.clone_from(model);
        }
        if self.about.first_prompt.is_empty()
            && message.is_real_user_input()
            && let Some(Block::Text { text, .. }) =
                message.blocks.iter().find(|block| !block.is_blank())
        {
            self.about.first_prompt = first_words(text);
        }
        for (name, value) in &message.attributes {
            match &**name {
                "cwd" if self.about.project_path.is_empty() => {
                    self.about.project_path.clone_from(value);
                }
                "gitBranch" => self.about.branch.clone_from(value),
                _ => {}
            }
        }
    }

    fn served(&mut self, event: &ViewServed) {
        for piece in &event.pieces {
            if let Form::Interrupted(call) = piece.form {
                self.calls.set(call, CallState::Interrupted);
            }
        }
        settle(&mut self.pending, &event.pieces);
        self.sealed.extend(&event.pieces, &self.transcript);
        self.last_served = LastServed {
            target: event.target.clone(),
            window: event.window,
            overhead_tokens: event.overhead_tokens,
        };
    }

    fn rewound(&mut self, event: &Rewound) {
        let stays = |ordinal: Ordinal| event.to.is_some_and(|last| ordinal <= last);
        self.sealed
            .change(event.change.keep, &event.change.then, &self.transcript);
        self.transcript.rewind(event.to);
        let interrupted: Vec<CallKey> = self
            .sealed
            .pieces()
            .iter()
            .filter_map(|piece| match piece.form {
                Form::Interrupted(call) => Some(call),
                _ => None,
            })
            .collect();
        self.calls.rewind(event.to, &interrupted);
        self.pending.retain(|item| stays(item.message));
        self.last_reemitted = None;
        self.recount();
    }

    /// Counts the view again from its messages. What stands before the end of the last response is
    /// still what the provider measured, because a rewind takes away the end alone.
    fn recount(&mut self) {
        let (epoch, window) = (self.sealed.epoch(), self.thresholds().window);
        let mut ledger = std::mem::take(&mut self.ledger);
        ledger.restart();
        let learned = ledger.calibration;
        for (ordinal, entry) in self.transcript.entries() {
            if let Some(message) = &entry.content {
                ledger.add(message, ordinal, entry.size, epoch, window);
            }
        }
        ledger.calibration = learned;
        self.ledger = ledger;
    }
}
