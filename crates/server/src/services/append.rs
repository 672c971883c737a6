//! `AppendMessages`, and the part of `PrepareContext` that appends.

use std::sync::Arc;

use palimpsest_core::command::{Append, Command, Rejection, Warning, warnings};
use palimpsest_core::event::{Event, MessagesAppended, ResultsPersisted};
use palimpsest_core::ids::{Revision, SessionKey};
use palimpsest_core::message::{Message, MessageKind};
use palimpsest_core::policy::WindowHint;
use palimpsest_core::session::{LastServed, RequestMethod, RequestStamp, Session};
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
use crate::grpc::CallContext;

/// What a call appends.
#[derive(Debug, Clone)]
pub(super) struct AppendInput {
    messages: Vec<Arc<Message>>,
    /// Which entry of the request each message came from.
    inputs: Vec<u32>,
    expected_revision: Option<Revision>,
    request: Option<RequestStamp>,
    /// The one message is a summary that has taken the place of others already.
    adopted: Option<AdoptOptions>,
}

impl AppendInput {
    /// Reads what a call appends.
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
            // A message that does not say when it was said was said when it came.
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

    /// Runs the append; the answer is made of what comes back.
    pub(super) fn run(&self, transaction: &mut Transaction<'_>) -> Result<AppendStatus, Rejection> {
        let expected_revision = expected(self.expected_revision, transaction)?;
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
        let created = transaction.revision_before() == Revision::ZERO;
        Ok(match outcome {
            CommandOutcome::Answered(revision) => AppendStatus::Before(revision),
            CommandOutcome::Done(None) | CommandOutcome::Skipped(_) => AppendStatus::Now {
                event: None,
                persisted: None,
                created,
            },
            CommandOutcome::Done(Some(_)) => AppendStatus::Now {
                event: transaction
                    .events()
                    .iter()
                    .rev()
                    .find_map(|recorded| appended(Some(&recorded.event))),
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

    /// Whether there is anything to append or to remember.
    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.request.is_none() && self.expected_revision.is_none()
    }

    /// What is told of an append that was just made.
    pub(super) fn result(&self, session: &Session, appended: &AppendStatus) -> AppendResult {
        match appended {
            AppendStatus::Before(_) => AppendResult::default(),
            AppendStatus::Now { event, created, .. } => {
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

    /// What is told of an append that was made by an earlier call with the same request id.
    pub(super) async fn earlier(
        &self,
        service: &Service,
        key: &SessionKey,
        revision: Revision,
    ) -> Result<AppendResult, ServiceError> {
        let recorded = service.sessions.event(key, revision).await?;
        let Some(event) = appended(recorded.as_ref().map(|recorded| &recorded.event)) else {
            let doing = "find the answer of an earlier call";
            return Err(ServiceError::Internal {
                doing,
                source: None,
            });
        };
        // The first append of a session that nobody created follows the creation that it caused.
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

/// What came of an append.
#[derive(Debug, Clone)]
pub(super) enum AppendStatus {
    /// It happened, unless everything was there already.
    Now {
        /// What was appended.
        event: Option<MessagesAppended>,
        /// Results that were stored on the way.
        persisted: Option<ResultsPersisted>,
        /// Whether this call created the session.
        created: bool,
    },
    /// It had happened, in the event with this revision.
    Before(Revision),
}

impl AppendStatus {
    /// What level 1 did.
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

fn appended(event: Option<&Event>) -> Option<MessagesAppended> {
    match event {
        Some(Event::MessagesAppended(event)) => Some(event.clone()),
        // Of what an adopted summary brings, the caller has given the summary alone.
        Some(Event::Compacted(event)) => {
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

/// The revision that a command is to find. A session that this very call creates is at revision 0 for
/// its caller.
pub(super) fn expected(
    expected: Option<Revision>,
    transaction: &Transaction<'_>,
) -> Result<Option<Revision>, Rejection> {
    match (expected, transaction.revision_before()) {
        (Some(expected), Revision::ZERO) if expected != Revision::ZERO => {
            Err(Rejection::RevisionMismatch {
                expected,
                current: Revision::ZERO,
            })
        }
        (_, Revision::ZERO) => Ok(None),
        (expected, _) => Ok(expected),
    }
}

pub(super) async fn append(
    service: &Service,
    request: AppendMessagesRequest,
    ticket: Option<&CallContext>,
) -> Result<AppendMessagesResponse, ServiceError> {
    let key = convert::session_key(&request.session, "session")?;
    // A summary takes messages out of the view, as Compact does.
    if request.adopted_compaction.is_some() {
        service.authorize_also(ticket, Right::Compact, &key)?;
    }
    let request_id = request.request_id.clone();
    let body = || convert::body_digest(&request);
    let stamp = convert::request_stamp(&request_id, RequestMethod::Append, body, service.limits())?;
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
    // Wrong targets are refused before anything happens.
    convert::target(target.clone(), &LastServed::default())?;
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
                    budget: Some(budget(session, target.as_ref())),
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
        .await
        .map_err(|error| ServiceError::from(error).with_request_id(&request_id))?;
    if let Some(revision) = before {
        response.append = Some(incoming.earlier(service, &key, revision).await?);
    }
    Ok(response)
}

/// How many tokens a request has, and of what kinds.
pub(super) fn tokens(session: &Session, prefix: Option<PrefixTokens>) -> v1::TokenReport {
    convert::token_report(session, Some(convert::breakdown(session, prefix)))
}

/// Returns the window hint of the call, or else of the last call that served the view.
pub(super) fn window(session: &Session, target: Option<&v1::Target>) -> WindowHint {
    let last = session.last_served();
    convert::target(target.cloned(), last).map_or(last.window, |(_, window)| window)
}

/// How full the window is for a target, which is the one used last when the call does not say.
pub(super) fn budget(session: &Session, target: Option<&v1::Target>) -> v1::Budget {
    let last = session.last_served();
    let (target, window) = convert::target(target.cloned(), last)
        .unwrap_or_else(|_| (last.target.clone(), last.window));
    convert::budget(session, &target, window)
}
