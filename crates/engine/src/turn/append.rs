//! The append of one call, alone or as the beginning of a turn.

use std::sync::Arc;

use palimpsest_core::command::{Append, AppendSource, Command, Rejection, Warning, warnings};
use palimpsest_core::event::{Event, MessagesAppended, ResultsPersisted};
use palimpsest_core::ids::{Revision, SessionKey};
use palimpsest_core::message::{Message, MessageKind};
use palimpsest_core::session::{ContentNotLoaded, RequestStamp, Session};

use super::Adoption;
use crate::sessions::{CommandOutcome, MissingSession, Sessions, Transaction};
use crate::{Engine, EngineError};

/// The validated content and options of one append.
#[derive(Debug, Clone)]
pub struct AppendInput {
    /// The content.
    pub content: AppendContent,
    /// The revision that the caller expects. `None` accepts any.
    pub expected_revision: Option<Revision>,
    /// The stamp that identifies retries.
    pub request: Option<RequestStamp>,
}

/// The content of an append.
#[derive(Debug, Clone)]
pub enum AppendContent {
    /// Messages in order, each with its id and its time.
    Messages(Vec<Arc<Message>>),
    /// A summary that replaces earlier messages.
    Adoption(Adoption),
}

/// The result of an append.
#[derive(Debug, Clone)]
pub struct Appended {
    /// The stored and the duplicate messages. An append of nothing but duplicates has no event of its own.
    pub event: MessagesAppended,
    /// The event of the results that level 1 stored on arrival.
    pub persisted: Option<ResultsPersisted>,
    /// True if the call created the session.
    pub created: bool,
}

/// The outcome of an append.
#[derive(Debug, Clone)]
pub enum AppendStatus {
    /// This call ran the append.
    Now(Appended),
    /// An idempotent repeat. The event with this revision contains the original result.
    Before(Revision),
}

impl AppendInput {
    /// Returns true if the call has no messages, no request id and no expected revision, so that it needs no append.
    pub fn is_empty(&self) -> bool {
        matches!(&self.content, AppendContent::Messages(messages) if messages.is_empty())
            && self.request.is_none()
            && self.expected_revision.is_none()
    }

    /// Runs the append in a transaction.
    pub fn run(&self, transaction: &mut Transaction<'_>) -> Result<AppendStatus, Rejection> {
        let expected_revision = self.expected_revision;
        let outcome = match &self.content {
            AppendContent::Messages(_) if self.is_empty() => CommandOutcome::Done(None),
            AppendContent::Messages(messages) => {
                let append = |expected_revision| {
                    Command::Append(Append {
                        messages: messages.clone(),
                        source: AppendSource::Messages,
                        expected_revision,
                        request: self.request.clone(),
                    })
                };
                // New messages continue the latest response to the caller's array.
                if messages.iter().all(|message| message.transcript_only) {
                    transaction.run(append(expected_revision))?
                } else {
                    transaction.run_confirmed(expected_revision, append)?
                }
            }
            AppendContent::Adoption(adoption) => {
                adoption.run(transaction, expected_revision, self.request.as_ref())?
            }
        };
        let (event, persisted) = match outcome {
            CommandOutcome::Answered(revision) => return Ok(AppendStatus::Before(revision)),
            CommandOutcome::Done(None) | CommandOutcome::Skipped(_) => (None, None),
            CommandOutcome::Done(Some(_)) => found(transaction),
        };
        Ok(AppendStatus::Now(Appended {
            event: event.unwrap_or_else(|| self.duplicates()),
            persisted,
            created: is_new(transaction),
        }))
    }

    /// Returns the result of an append without an event: every message was a duplicate.
    fn duplicates(&self) -> MessagesAppended {
        let messages = match &self.content {
            AppendContent::Messages(messages) => messages,
            AppendContent::Adoption(adoption) => std::slice::from_ref(&adoption.summary.summary),
        };
        let ids = messages.iter().map(|message| message.id);
        MessagesAppended {
            duplicates: (0_u32..).zip(ids).collect(),
            ..MessagesAppended::default()
        }
    }
}

/// Returns the events of the append of a transaction. A serve may precede the append in the same transaction, so they
/// are found by type.
fn found(transaction: &Transaction<'_>) -> (Option<MessagesAppended>, Option<ResultsPersisted>) {
    let events = || transaction.events().iter().rev().map(|it| &it.event);
    (events().find_map(appended), events().find_map(persisted))
}

/// Returns true if the transaction created the session.
fn is_new(transaction: &Transaction<'_>) -> bool {
    transaction.revision_before() == Revision::ZERO
}

impl Appended {
    /// Returns the result of the appends of a transaction.
    pub(super) fn of(transaction: &Transaction<'_>) -> Self {
        let (event, persisted) = found(transaction);
        Self {
            event: event.unwrap_or_default(),
            persisted,
            created: is_new(transaction),
        }
    }
}

impl AppendStatus {
    /// Returns the result, unless the call is an idempotent repeat.
    pub fn now(&self) -> Option<&Appended> {
        match self {
            Self::Now(appended) => Some(appended),
            Self::Before(_) => None,
        }
    }

    /// Returns the revision of the original append, if the call is an idempotent repeat.
    pub fn before(&self) -> Option<Revision> {
        match self {
            Self::Now(_) => None,
            Self::Before(revision) => Some(*revision),
        }
    }

    /// Returns the warnings for the caller.
    pub fn warnings(&self, session: &Session) -> Vec<Warning> {
        let appended = self.now();
        appended.map_or_else(Vec::new, |appended| warnings(session, &appended.event))
    }
}

/// Appends without serving. `finish` builds the reply from the state after the commit.
///
/// For an idempotent repeat, also returns the result of the original append.
pub async fn append<T>(
    engine: &Engine,
    key: &SessionKey,
    missing: &MissingSession,
    input: &AppendInput,
    finish: impl Fn(&Session, &AppendStatus) -> Result<T, ContentNotLoaded>,
) -> Result<(T, Option<Appended>), EngineError> {
    let sessions = &engine.sessions;
    let decide = |transaction: &mut Transaction<'_>| input.run(transaction);
    let finish =
        |session: &Session, status: &AppendStatus| Ok((finish(session, status)?, status.before()));
    let (answer, before) = sessions.write(key, missing, decide, finish).await?;
    Ok((answer, original(sessions, key, before).await?))
}

/// Reads the result of the append whose event has this revision. Its results were reported by the original call.
pub(super) async fn original(
    sessions: &Sessions,
    key: &SessionKey,
    before: Option<Revision>,
) -> Result<Option<Appended>, EngineError> {
    let Some(revision) = before else {
        return Ok(None);
    };
    let recorded = sessions.answer(key, revision).await?;
    let event = appended(&recorded).ok_or(EngineError::Internal {
        doing: "find the answer of an earlier call",
        source: None,
    })?;
    // An append to a missing session creates it: revision 1 is the implicit creation, and revision 2 the append.
    let first = sessions.event(key, Revision::new(1)).await?;
    let created = revision == Revision::new(2)
        && matches!(
            first.map(|recorded| recorded.event),
            Some(Event::SessionCreated(created)) if created.implicit
        );
    Ok(Some(Appended {
        event,
        persisted: None,
        created,
    }))
}

fn appended(event: &Event) -> Option<MessagesAppended> {
    match event {
        Event::MessagesAppended(event) => Some(event.clone()),
        // An adoption also records messages that the caller did not send. The reply lists only the summary.
        Event::CompactionFinished(event) => {
            let mut messages = event.messages.iter();
            let summary = messages.find(|one| one.message.kind == MessageKind::Summary)?;
            Some(MessagesAppended {
                messages: vec![summary.clone()],
                request: event.request.clone(),
                ..MessagesAppended::default()
            })
        }
        _ => None,
    }
}

fn persisted(event: &Event) -> Option<ResultsPersisted> {
    match event {
        Event::ResultsPersisted(event) => Some(event.clone()),
        _ => None,
    }
}
