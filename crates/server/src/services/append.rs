//! `AppendMessages` and the append step of `PrepareContext`.

use std::sync::Arc;

use palimpsest_core::command::{Append, Command, Rejection, Warning, warnings};
use palimpsest_core::event::{Event, MessagesAppended, ResultsPersisted};
use palimpsest_core::ids::{Revision, SessionKey};
use palimpsest_core::message::{Message, MessageKind};
use palimpsest_core::policy::WindowHint;
use palimpsest_core::session::{RequestStamp, Session};
use palimpsest_core::view::TargetOverride;
use palimpsest_engine::call::SPANS;
use palimpsest_engine::sessions::{CommandOutcome, Transaction};
use palimpsest_proto::context::v1::{
    self, AppendMessagesRequest, AppendMessagesResponse, AppendResult, MessageInput,
};

use super::Service;
use super::adopt::AdoptOptions;
use crate::access::Right;
use crate::convert::{self, PrefixTokens};
use crate::errors::ServiceError;

/// The validated messages and options of one append.
#[derive(Debug, Clone)]
pub(super) struct AppendInput {
    messages: Vec<Arc<Message>>,
    /// For each message, the index of the request entry that contained it.
    inputs: Vec<u32>,
    expected_revision: Option<Revision>,
    request: Option<RequestStamp>,
    /// Set if the single message is a summary that the caller's program put in place of earlier messages.
    adopted: Option<AdoptOptions>,
}

impl AppendInput {
    /// Validates the messages of a request and assigns ids and times where the caller gave none.
    pub(super) fn read(
        service: &Service,
        inputs: Vec<MessageInput>,
        expected_revision: Option<u64>,
        request: Option<RequestStamp>,
    ) -> Result<Self, ServiceError> {
        let now = service.sessions.clock().now();
        let read = convert::messages(inputs, service.limits(), &mut service.next_id())?;
        let inputs = read.iter().map(|input| input.input_index).collect();
        let timed = read.into_iter().map(|input| {
            let mut message = input.message;
            // A message without a time gets the time of its arrival.
            message.at.get_or_insert(now);
            Arc::new(message)
        });
        Ok(Self {
            messages: timed.collect(),
            inputs,
            expected_revision: expected_revision.map(Revision::new),
            request,
            adopted: None,
        })
    }

    /// Runs the append in a transaction. `result` or `earlier` turns the returned status into the reply.
    pub(super) fn run(&self, transaction: &mut Transaction<'_>) -> Result<AppendStatus, Rejection> {
        let expected_revision = self.expected_revision;
        let outcome = match (&self.adopted, self.messages.as_slice()) {
            (Some(adopted), [summary]) => {
                let request = self.request.as_ref();
                adopted.run(transaction, summary, expected_revision, request)?
            }
            _ => transaction.run(Command::Append(Append {
                messages: self.messages.clone(),
                expected_revision,
                request: self.request.clone(),
            }))?,
        };
        // Revision 0 before the transaction means that the transaction created the session.
        let created = transaction.revision_before() == Revision::ZERO;
        Ok(match outcome {
            CommandOutcome::Answered(revision) => AppendStatus::Before(revision),
            CommandOutcome::Done(None) | CommandOutcome::Skipped(_) => AppendStatus::Now {
                event: None,
                persisted: None,
                created,
            },
            // A serve may precede the append in the same transaction, so the events are found by type.
            CommandOutcome::Done(Some(_)) => AppendStatus::Now {
                event: transaction
                    .events()
                    .iter()
                    .rev()
                    .find_map(|recorded| appended(&recorded.event)),
                persisted: transaction.events().iter().rev().find_map(|recorded| {
                    match &recorded.event {
                        Event::ResultsPersisted(event) => Some(event.clone()),
                        _ => None,
                    }
                }),
                created,
            },
        })
    }

    /// Returns true if the call has no messages, no request id and no expected revision, so that it needs no
    /// append.
    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.request.is_none() && self.expected_revision.is_none()
    }

    /// Returns the reply part for an append of this call. It is empty for an idempotent repeat, which `earlier`
    /// answers.
    pub(super) fn result(&self, session: &Session, appended: &AppendStatus) -> AppendResult {
        match appended {
            AppendStatus::Before(_) => AppendResult::default(),
            AppendStatus::Now { event, created, .. } => {
                // Without an event nothing was stored: every message was a duplicate.
                let all_known = MessagesAppended {
                    known: (0_u32..)
                        .zip(&self.messages)
                        .map(|(index, message)| (index, message.id))
                        .collect(),
                    ..MessagesAppended::default()
                };
                let event = event.as_ref().unwrap_or(&all_known);
                convert::append_result(session, event, &self.inputs, *created)
            }
        }
    }

    /// Returns the result of the append that an earlier call with the same request id made.
    pub(super) async fn earlier(
        &self,
        service: &Service,
        key: &SessionKey,
        revision: Revision,
    ) -> Result<AppendResult, ServiceError> {
        let recorded = service.sessions.answer(key, revision).await?;
        let event = appended(&recorded)
            .ok_or_else(|| ServiceError::fault("find the answer of an earlier call"))?;
        // An append to a missing session creates it: revision 1 is the implicit creation, and revision 2 the
        // append.
        let first = service.sessions.event(key, Revision::new(1)).await?;
        let created = revision == Revision::new(2)
            && matches!(
                first.map(|recorded| recorded.event),
                Some(Event::SessionCreated(created)) if created.implicit
            );
        let tell =
            |session: &Session| convert::append_result(session, &event, &self.inputs, created);
        Ok(service.sessions.read(key, tell).await?)
    }
}

/// The outcome of an append.
#[derive(Debug, Clone)]
pub(super) enum AppendStatus {
    /// This call ran the append. It stored nothing if every message was a duplicate.
    Now {
        /// The event of the append, or `None` if every message was a duplicate.
        event: Option<MessagesAppended>,
        /// The event of the results that level 1 stored on arrival.
        persisted: Option<ResultsPersisted>,
        /// True if this call created the session.
        created: bool,
    },
    /// An idempotent repeat. The event with this revision holds the original result.
    Before(Revision),
}

impl AppendStatus {
    /// Returns the report of level 1, or none if it stored no result.
    fn level_reports(&self, session: &Session) -> Vec<v1::LevelReport> {
        let Self::Now {
            persisted: Some(event),
            ..
        } = self
        else {
            return Vec::new();
        };
        let event = Event::ResultsPersisted(event.clone());
        convert::stage(&event, session, false).into_iter().collect()
    }

    pub(super) fn warnings(&self, session: &Session) -> Vec<Warning> {
        match self {
            Self::Now {
                event: Some(event), ..
            } => warnings(session, event),
            _ => Vec::new(),
        }
    }
}

fn appended(event: &Event) -> Option<MessagesAppended> {
    match event {
        Event::MessagesAppended(event) => Some(event.clone()),
        // An adoption also records messages that the caller did not send. The reply lists only the summary.
        Event::Compacted(event) => {
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

pub(super) async fn append(
    service: &Service,
    request: AppendMessagesRequest,
) -> Result<AppendMessagesResponse, ServiceError> {
    let key = convert::session_key(&request.session, "session")?;
    // A summary removes messages from the view as `Compact` does, so the caller also needs that right.
    if request.adopted_compaction.is_some() {
        service.authorize_also(Right::Compact, &key)?;
    }
    let stamp = convert::request_stamp(&request, service.limits())?;
    let AppendMessagesRequest {
        expected_revision,
        messages,
        target,
        adopted_compaction,
        ..
    } = request;
    let converting = tracing::debug_span!(target: SPANS, "convert");
    let read = || AppendInput::read(service, messages, expected_revision, stamp);
    let mut incoming = converting.in_scope(read)?;
    let messages = incoming.messages.len();
    let adopted = adopted_compaction.map(|said| AdoptOptions::read(service, &said, messages));
    incoming.adopted = adopted.transpose()?;
    // An invalid target is rejected before anything is committed.
    let target = convert::target_override(target)?;
    let missing = service.create_if_missing(&key.project);
    let (before, mut response) = service
        .sessions
        .write(
            &key,
            &missing,
            |transaction| incoming.run(transaction),
            |session, appended| {
                let response = AppendMessagesResponse {
                    append: Some(incoming.result(session, appended)),
                    revision: session.revision().get(),
                    tokens: Some(tokens(session, None)),
                    budget: Some(budget(session, &target)),
                    warnings: convert::warnings(&appended.warnings(session)),
                    level_reports: appended.level_reports(session),
                };
                let before = match appended {
                    AppendStatus::Before(revision) => Some(*revision),
                    AppendStatus::Now { .. } => None,
                };
                Ok((before, response))
            },
        )
        .await?;
    // A repeat reports the original append, whose event is read from the log.
    if let Some(revision) = before {
        response.append = Some(incoming.earlier(service, &key, revision).await?);
    }
    Ok(response)
}

/// Returns the token report of a view, by category. `prefix` holds the tokens of the prompt prefix, if known.
pub(super) fn tokens(session: &Session, prefix: Option<PrefixTokens>) -> v1::TokenReport {
    convert::token_report(session, Some(convert::breakdown(session, prefix)))
}

/// Returns the window hint of the call, or else of the last call that served the view.
pub(super) fn window(session: &Session, target: &TargetOverride) -> WindowHint {
    session.last_served().overridden(target).1
}

/// Returns the budget for a target. The default is the target of the last call that served the view.
pub(super) fn budget(session: &Session, target: &TargetOverride) -> v1::Budget {
    let (target, window) = session.last_served().overridden(target);
    convert::budget(session, &target, window)
}
