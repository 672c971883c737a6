//! `RewindSession`: removes later messages from the view.

use palimpsest_core::command::{Command, Rejection, RestoreContext, Rewind};
use palimpsest_core::event::Event;
use palimpsest_core::ids::{MessageId, Revision, SessionKey};
use palimpsest_core::session::{ContentNotLoaded, RequestStamp, Session, Visibility};
use palimpsest_core::view::TargetOverride;
use palimpsest_engine::sessions::{CommandOutcome, PastSession, Transaction};
use palimpsest_proto::context::v1::rewind_session_request::TargetMessage;
use palimpsest_proto::context::v1::{self, RewindSessionRequest, RewindSessionResponse};

use super::Service;
use super::append::{budget, tokens};
use super::cache_ledger::ledger;
use super::change::{ChangeCall, ChangeOutcome};
use super::recovery::removed;
use crate::convert;
use crate::errors::ServiceError;

pub(super) async fn rewind(
    service: &Service,
    request: RewindSessionRequest,
) -> Result<RewindSessionResponse, ServiceError> {
    let key = convert::session_key(&request.session, "session")?;
    let target = match &request.target_message {
        Some(TargetMessage::ToMessageId(id)) => (convert::message_id(id, "to_message_id")?, false),
        Some(TargetMessage::BeforeMessageId(id)) => {
            (convert::message_id(id, "before_message_id")?, true)
        }
        None => {
            return Err(ServiceError::invalid(
                "to_message_id",
                "is required, or before_message_id",
            ));
        }
    };
    // An invalid target is rejected before anything is committed.
    let view = convert::target_override(request.target.clone())?;
    let stamp = convert::request_stamp(&request, service.limits())?;
    let revision = request.expected_revision.map(Revision::new);
    let change = ChangeCall {
        service,
        key: &key,
        dry_run: request.dry_run,
    };
    // The earlier layout is replayed before the transaction, because it reads the log.
    let unfolded = unfolded(service, &key, target).await?;
    let outcome = change.run(
        |transaction| {
            decide(
                transaction,
                target,
                unfolded.as_ref(),
                revision,
                stamp.clone(),
            )
        },
        |session, happened, _| answer(service, session, happened, &view),
    );
    Ok(outcome.await?)
}

fn decide(
    transaction: &mut Transaction<'_>,
    (id, before): (MessageId, bool),
    unfolded: Option<&PastSession>,
    mut expected_revision: Option<Revision>,
    request: Option<RequestStamp>,
) -> Result<CommandOutcome, Rejection> {
    let Some(session) = transaction.session() else {
        return Err(Rejection::MessageNotFound { id });
    };
    let to = kept(session, (id, before))?;
    // The target message is hidden in a collapsed span, so the layout from before the collapse is restored first.
    if let Some(past) = unfolded {
        transaction.run(Command::Restore(RestoreContext {
            past: Box::new(past.session.clone()),
            later: past.later.clone(),
            // The intermediate view is never sent, so it may be invalid for the provider.
            force: true,
            expected_revision: expected_revision.take(),
            request: None,
        }))?;
        let entries = past.session.transcript().entries();
        transaction.load_content(entries.filter_map(|(_, entry)| entry.content.clone()));
        transaction.load_content(past.later.iter().cloned());
    }
    transaction.run(Command::Rewind(Rewind {
        to,
        expected_revision,
        request,
    }))
}

/// Returns the last message that stays in the view. `None` removes all messages.
fn kept(
    session: &Session,
    (id, before): (MessageId, bool),
) -> Result<Option<MessageId>, Rejection> {
    if before {
        preceding(session, id)
    } else {
        Ok(Some(id))
    }
}

/// Returns the session from before the collapse of the last message that stays, if it was collapsed.
async fn unfolded(
    service: &Service,
    key: &SessionKey,
    target: (MessageId, bool),
) -> Result<Option<PastSession>, ServiceError> {
    let folded = |session: &Session| session.shown_until(kept(session, target).ok()??);
    let Some(shown) = service.sessions.read(key, folded).await? else {
        return Ok(None);
    };
    Ok(service.sessions.past(key, shown).await?)
}

/// Returns the message before `id` in the transcript that no rewind removed, or `None` before the first.
fn preceding(session: &Session, id: MessageId) -> Result<Option<MessageId>, Rejection> {
    let transcript = session.transcript();
    let ordinal = transcript
        .find(id)
        .ok_or(Rejection::MessageNotFound { id })?;
    let mut earlier = transcript
        .entries()
        .rev()
        .skip_while(|(at, _)| *at >= ordinal);
    // Rewound messages are not in the view, so none of them can be the last one that stays.
    let kept = earlier.find(|(_, entry)| entry.standing != Visibility::Rewound);
    Ok(kept.map(|(_, entry)| entry.id))
}

fn answer(
    service: &Service,
    session: &Session,
    happened: &ChangeOutcome,
    target: &TargetOverride,
) -> Result<RewindSessionResponse, ContentNotLoaded> {
    let mut response = RewindSessionResponse {
        rewound: Some(v1::SessionRewound::default()),
        revision: session.revision().get(),
        epoch: session.sealed().epoch().get().into(),
        tokens: Some(tokens(session, None)),
        budget: Some(budget(session, target)),
        cache_ledger: Some(ledger(service, session, target)?),
        recovery: removed(session, target, happened.event()),
        ..RewindSessionResponse::default()
    };
    if let Some((_, Event::SessionRewound(rewound))) = happened.event() {
        response.rewound = Some(convert::rewound(rewound, session));
        response.effect = Some(convert::rewind_effect(rewound));
    }
    Ok(response)
}
