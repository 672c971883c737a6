//! `PrepareContext`: append, serve, and say what the caller's array becomes.

use bytes::Bytes;
use palimpsest_core::codec;
use palimpsest_core::command::{Command, Rejection, Serve};
use palimpsest_core::policy::WindowHint;
use palimpsest_core::session::{LastServed, Method, NotHeld, Session, View};
use palimpsest_core::view::{Target, WireMessage};
use palimpsest_proto::context::v1::{self, PrepareContextRequest, PrepareContextResponse};

use super::append::{Appended, Incoming, budget, tokens};
use super::{Service, etag};
use crate::convert::{self, Form, PrefixTokens};
use crate::errors::ServiceError;
use crate::sessions::Transaction;

/// A request, read; what depends on the session is still to be filled in.
struct Call {
    incoming: Incoming,
    target: Option<v1::Target>,
    known: Option<etag::Named>,
    form: Form,
    prefix: Option<PrefixTokens>,
    interrupt_open_calls: bool,
    max_reply_bytes: usize,
}

pub(super) async fn prepare(
    service: &Service,
    request: PrepareContextRequest,
) -> Result<PrepareContextResponse, ServiceError> {
    let key = convert::session_key(&request.session, "session")?;
    let form = convert::form(request.form, "form")?;
    let (request_id, dry_run) = (request.request_id.clone(), request.dry_run);
    let body = || convert::body_digest(&request);
    let stamp = convert::request_stamp(&request_id, Method::Prepare, body, service.limits())?;
    let expected = request.expected_revision;
    let incoming = Incoming::read(service, request.messages, expected, stamp)?;
    // Wrong targets are refused before anything happens.
    convert::target(request.target.clone(), &LastServed::default())?;
    let call = Call {
        incoming,
        target: request.target,
        known: etag::read(&request.known_etag),
        form,
        prefix: convert::prompt_prefix(request.prompt_prefix)?,
        interrupt_open_calls: request.interrupt_open_calls,
        max_reply_bytes: service.limits().max_reply_bytes,
    };
    let missing = service.create_if_missing();
    let decide = |transaction: &mut Transaction<'_>| call.decide(transaction);
    let finish = |session: &Session, appended: &Appended| {
        let response = call.answer(session, appended)?;
        let before = match appended {
            Appended::Before(revision) => Some(*revision),
            Appended::Now { .. } => None,
        };
        Ok((before, response))
    };
    let outcome = if dry_run {
        service
            .sessions
            .rehearse(&key, &missing, decide, finish)
            .await
    } else {
        service.sessions.write(&key, &missing, decide, finish).await
    };
    let (before, mut response) =
        outcome.map_err(|error| ServiceError::from(error).with_request_id(&request_id))?;
    if let Some(revision) = before {
        response.append = Some(call.incoming.earlier(service, &key, revision).await?);
    }
    Ok(response)
}

impl Call {
    fn decide(&self, transaction: &mut Transaction<'_>) -> Result<Appended, Rejection> {
        let appended = if self.incoming.is_empty() {
            Appended::Now {
                event: None,
                created: false,
            }
        } else {
            self.incoming.run(transaction)?
        };
        let Some(session) = transaction.session() else {
            return Ok(appended);
        };
        let (target, window) = self.target(session);
        transaction.run(Command::Serve(Serve {
            target,
            window,
            overhead_tokens: self.prefix.map(PrefixTokens::total),
            interrupt_open_calls: self.interrupt_open_calls,
        }))?;
        Ok(appended)
    }

    /// For whom the view is: what the caller leaves out is as it was the last time.
    fn target(&self, session: &Session) -> (Target, WindowHint) {
        let last = session.last_served();
        convert::target(self.target.clone(), last)
            .unwrap_or_else(|_| (last.target.clone(), last.window))
    }

    fn answer(
        &self,
        session: &Session,
        appended: &Appended,
    ) -> Result<PrepareContextResponse, NotHeld> {
        let (target, _) = self.target(session);
        // An etag holds for the form and the target that it was made for; the domain checks the target.
        let known = self
            .known
            .as_ref()
            .filter(|named| named.form == self.form)
            .map(|named| named.etag);
        let view = session.view(&target, known)?;
        let mut response = PrepareContextResponse {
            keep_messages: view.keep,
            etag: etag::write(view.etag, self.form, &target).into(),
            view_messages: view.length,
            sendable: view.unsendable.is_none(),
            not_sendable_reason: convert::not_sendable(view.unsendable.as_ref()).into(),
            open_calls: convert::open_calls(session, view.unsendable.as_ref()),
            revision: session.revision().get(),
            epoch: session.sealed().epoch().get().into(),
            repairs: convert::repairs(session, &view.repairs),
            tokens: Some(tokens(session, self.prefix)),
            budget: Some(budget(session, self.target.as_ref())),
            warnings: warnings(session, appended, &view),
            ..PrepareContextResponse::default()
        };
        if !self.incoming.is_empty() {
            response.append = Some(self.incoming.result(session, appended));
        }
        self.put_messages(&mut response, session, &target, &view)?;
        Ok(response)
    }

    fn put_messages(
        &self,
        response: &mut PrepareContextResponse,
        session: &Session,
        target: &Target,
        view: &View<'_>,
    ) -> Result<(), NotHeld> {
        let bytes;
        match self.form {
            Form::Typed => {
                bytes = size(target, &view.messages);
                response.messages = typed(session, target, &view.messages);
                let system = typed(session, target, &session.system(target)?);
                response.system = system
                    .into_iter()
                    .flat_map(|message| message.blocks)
                    .collect();
            }
            Form::Json => {
                response.messages_json = json(target, &view.messages);
                bytes = response.messages_json.iter().map(Bytes::len).sum();
                response.system_json = system_json(target, session)?;
            }
        }
        response.view_bytes = bytes as u64;
        if bytes > self.max_reply_bytes {
            response.view_omitted = true;
            response.messages.clear();
            response.messages_json.clear();
        }
        Ok(())
    }
}

/// Wire messages as the provider's JSON, each by itself; all of them share one buffer.
pub(super) fn json(target: &Target, messages: &[WireMessage<'_>]) -> Vec<Bytes> {
    let mut buffer = Vec::new();
    let mut ends = Vec::with_capacity(messages.len());
    for message in messages {
        codec::write(target.provider, message, &mut buffer);
        ends.push(buffer.len());
    }
    let buffer = Bytes::from(buffer);
    let starts = std::iter::once(0).chain(ends.iter().copied());
    starts
        .zip(&ends)
        .map(|(start, end)| buffer.slice(start..*end))
        .collect()
}

/// What the caller should know, though the view is valid.
fn warnings(session: &Session, appended: &Appended, view: &View<'_>) -> Vec<v1::Warning> {
    let mut warnings = convert::warnings(&appended.warnings(session));
    warnings.extend(convert::repair_warnings(session, &view.repairs));
    warnings
}

/// The same as typed messages.
pub(super) fn typed(
    session: &Session,
    target: &Target,
    messages: &[WireMessage<'_>],
) -> Vec<v1::Message> {
    let typed = |message| convert::view_message(message, session.calls(), target.provider);
    messages.iter().map(typed).collect()
}

fn size(target: &Target, messages: &[WireMessage<'_>]) -> usize {
    json(target, messages).iter().map(Bytes::len).sum()
}

/// The operator's words that a provider takes apart from the array: always all of them, because they
/// have no place in it that could be kept.
fn system_json(target: &Target, session: &Session) -> Result<Bytes, NotHeld> {
    let system = session.system(target)?;
    if system.is_empty() {
        return Ok(Bytes::new());
    }
    let mut out = Vec::from(*b"[");
    for block in system.iter().flat_map(|message| &message.blocks) {
        if out.len() > 1 {
            out.push(b',');
        }
        codec::write_block(target.provider, block, &mut out);
    }
    out.push(b']');
    Ok(out.into())
}
