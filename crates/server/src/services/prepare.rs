//! `PrepareContext`: append, serve, and say what the caller's array becomes.

use bytes::Bytes;
use palimpsest_core::codec;
use palimpsest_core::command::{
    Clear, Clearing, Collapse, Collapsing, Command, Rejection, Serve, Skip,
};
use palimpsest_core::event::{Event, Recorded};
use palimpsest_core::ids::Revision;
use palimpsest_core::levels::collapse::is_due;
use palimpsest_core::policy::WindowHint;
use palimpsest_core::session::{LastServed, Method, NotHeld, Session, View};
use palimpsest_core::view::{Provider, Target, WireMessage};
use palimpsest_proto::context::v1::{self, PrepareContextRequest, PrepareContextResponse};
use serde_json::json;

use super::append::{Appended, Incoming, budget, tokens};
use super::fidelity::removed;
use super::{Service, etag, ledger, staging};
use crate::convert::{self, Form, PrefixTokens};
use crate::errors::ServiceError;
use crate::sessions::{Outcome, Transaction};

/// A request, read; what depends on the session is still to be filled in.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of the request"
)]
struct Call {
    incoming: Incoming,
    target: Option<v1::Target>,
    known: Option<etag::Named>,
    form: Form,
    prefix: Option<PrefixTokens>,
    interrupt_open_calls: bool,
    cache_edits: bool,
    /// The provider refused the last view as too long.
    overflow: bool,
    dry_run: bool,
    max_reply_bytes: usize,
}

/// What came of a call.
struct Done {
    appended: Appended,
    /// What levels did.
    levels: Vec<(Revision, Event)>,
    /// What did nothing, and why.
    skipped: Vec<(v1::Level, Skip)>,
}

impl Done {
    fn levels(&self) -> impl Iterator<Item = (Revision, &Event)> {
        self.levels
            .iter()
            .map(|(revision, event)| (*revision, event))
    }

    fn stages(&self, session: &Session, dry_run: bool) -> Vec<v1::StageReport> {
        let done = self.levels.iter();
        let done = done.filter_map(|(_, event)| convert::stage(event, session, dry_run));
        let skipped = self.skipped.iter();
        let skipped = skipped.map(|(level, skip)| convert::skipped(*level, *skip));
        done.chain(skipped).collect()
    }
}

const fn is_of_a_level(event: &Event) -> bool {
    matches!(
        event,
        Event::ResultsPersisted(_)
            | Event::ResultsCleared(_)
            | Event::CacheEditsIssued(_)
            | Event::SpansCollapsed(_)
    )
}

const fn folds(recorded: &Recorded) -> bool {
    matches!(recorded.event, Event::SpansCollapsed(_))
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
        cache_edits: request.cache_edits_supported,
        overflow: request.prompt_too_long.is_some(),
        dry_run,
        max_reply_bytes: service.limits().max_reply_bytes,
    };
    let missing = service.create_if_missing(&key.project);
    let decide = |transaction: &mut Transaction<'_>| call.decide(transaction);
    let finish = |session: &Session, done: &Done| {
        let mut response = call.answer(session, done)?;
        let (target, _) = call.target(session);
        response.cache_ledger = Some(ledger::prepared(service, session, &target, &response)?);
        let before = match &done.appended {
            Appended::Before(revision) => Some(*revision),
            Appended::Now { .. } => None,
        };
        Ok((before, response, is_due(session)))
    };
    let outcome = service
        .sessions
        .run(&key, &missing, dry_run, decide, finish)
        .await;
    let (before, mut response, stages) =
        outcome.map_err(|error| ServiceError::from(error).with_request_id(&request_id))?;
    if let Some(revision) = before {
        response.append = Some(call.incoming.earlier(service, &key, revision).await?);
    }
    if stages && !dry_run {
        staging::begin(service, &key);
    }
    Ok(response)
}

impl Call {
    fn decide(&self, transaction: &mut Transaction<'_>) -> Result<Done, Rejection> {
        let appended = if self.incoming.is_empty() {
            Appended::Now {
                event: None,
                persisted: None,
                created: false,
            }
        } else {
            self.incoming.run(transaction)?
        };
        let mut done = Done {
            appended,
            levels: Vec::new(),
            skipped: Vec::new(),
        };
        let Some(session) = transaction.session() else {
            return Ok(done);
        };
        let (target, window) = self.target(session);
        transaction.run(Command::Serve(Serve {
            target,
            window,
            overhead_tokens: self.prefix.map(PrefixTokens::total),
            interrupt_open_calls: self.interrupt_open_calls,
        }))?;
        let clear = Clear {
            clearing: Clearing::Auto {
                cache_edits: self.cache_edits,
            },
            expected_revision: None,
            request: None,
        };
        if let Outcome::Skipped(skip) = transaction.run(Command::Clear(clear))? {
            done.skipped.push((v1::Level::Microcompact, skip));
        }
        let collapse = Collapse {
            collapsing: self.collapsing(&done.appended),
            expected_revision: None,
            request: None,
        };
        match transaction.run(Command::Collapse(collapse))? {
            Outcome::Skipped(skip) => done.skipped.push((v1::Level::Collapse, skip)),
            // All that it did was to look for spans.
            Outcome::Done(_) if !transaction.events().last().is_some_and(folds) => {
                done.skipped
                    .push((v1::Level::Collapse, Skip::NothingEligible));
            }
            Outcome::Done(_) | Outcome::Answered(_) => {}
        }
        let revisions = transaction.revision_before().get() + 1..;
        let events = revisions.zip(transaction.events());
        done.levels = events
            .filter(|(_, recorded)| is_of_a_level(&recorded.event))
            .map(|(revision, recorded)| (Revision::new(revision), recorded.event.clone()))
            .collect();
        Ok(done)
    }

    /// A refused prompt is acted upon once, and not when the call is repeated.
    fn collapsing(&self, appended: &Appended) -> Collapsing {
        match appended {
            Appended::Now { .. } if self.overflow => Collapsing::Overflow,
            _ => Collapsing::Auto,
        }
    }

    /// For whom the view is: what the caller leaves out is as it was the last time.
    fn target(&self, session: &Session) -> (Target, WindowHint) {
        let last = session.last_served();
        convert::target(self.target.clone(), last)
            .unwrap_or_else(|_| (last.target.clone(), last.window))
    }

    fn answer(&self, session: &Session, done: &Done) -> Result<PrepareContextResponse, NotHeld> {
        let appended = &done.appended;
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
            stages: done.stages(session, self.dry_run),
            cache_edits: self.edits(session, &target, &done.levels)?,
            context_management_json: management(session, &target),
            fidelity: removed(session, self.target.as_ref(), done.levels()),
            ..PrepareContextResponse::default()
        };
        if !self.incoming.is_empty() {
            response.append = Some(self.incoming.result(session, appended));
        }
        self.put_messages(&mut response, session, &target, &view)?;
        Ok(response)
    }

    /// The edits of the provider's cache that the request is to carry.
    fn edits(
        &self,
        session: &Session,
        target: &Target,
        events: &[(Revision, Event)],
    ) -> Result<Option<v1::CacheEdits>, NotHeld> {
        let pins = session.cache_edits().pins();
        if !self.cache_edits || pins.is_empty() || target.provider != Provider::Anthropic {
            return Ok(None);
        }
        let new = events.iter().find_map(|(_, event)| match event {
            Event::CacheEditsIssued(event) => Some(event.message),
            _ => None,
        });
        let mut all = v1::CacheEdits::default();
        for pin in pins {
            let Some(place) = session.place_of(pin.message, target)? else {
                continue;
            };
            all.edits.push(convert::cache_edit(
                session,
                pin,
                place,
                new == Some(pin.message),
            ));
            all.freed_tokens += convert::edited_tokens(session, pin);
        }
        Ok(Some(all))
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
                response.messages_json = messages_json(target, &view.messages);
                bytes = response.messages_json.iter().map(Bytes::len).sum();
                response.system_json = system_json(target, session)?;
            }
        }
        response.view_bytes = bytes as u64;
        let own = session.policy().limits.max_reply_bytes as usize;
        if bytes > self.max_reply_bytes.min(own) {
            response.view_omitted = true;
            response.messages.clear();
            response.messages_json.clear();
        }
        Ok(())
    }
}

/// Wire messages as the provider's JSON, each by itself; all of them share one buffer.
pub(super) fn messages_json(target: &Target, messages: &[WireMessage<'_>]) -> Vec<Bytes> {
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
    messages_json(target, messages).iter().map(Bytes::len).sum()
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

/// The value for the request's `context_management`, as the policy wants it.
fn management(session: &Session, target: &Target) -> Bytes {
    let policy = &session.policy().provider_management;
    if target.provider != Provider::Anthropic {
        return Bytes::new();
    }
    let mut edits = Vec::new();
    if policy.clear_thinking && target.thinking {
        edits.push(json!({"type": "clear_thinking_20251015", "keep": "all"}));
    }
    if policy.clear_tool_uses {
        edits.push(json!({
            "type": "clear_tool_uses_20250919",
            "trigger": {"type": "input_tokens", "value": policy.clear_trigger_tokens},
            "clear_at_least": {"type": "input_tokens", "value": policy.clear_min_tokens},
        }));
    }
    if edits.is_empty() {
        return Bytes::new();
    }
    json!({ "edits": edits }).to_string().into()
}
