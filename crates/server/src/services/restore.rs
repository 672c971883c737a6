//! `RestoreContext`: view-changing events are taken back.

use palimpsest_core::command::{Command, Rejection, Restore};
use palimpsest_core::event::{Event, Restored};
use palimpsest_core::ids::Revision;
use palimpsest_core::session::{LastServed, Method, Session};
use palimpsest_proto::context::v1::{self, RestoreContextRequest, RestoreContextResponse};

use super::Service;
use super::append::{budget, expected, tokens};
use crate::convert;
use crate::errors::ServiceError;
use crate::sessions::{Missing, Outcome, Transaction};

/// What came of it.
enum Done {
    /// It happened, or would; nothing did when there was nothing to take back.
    Now(Option<Box<Restored>>),
    /// It had happened, in the event with this revision.
    Before(Revision),
}

pub(super) async fn restore(
    service: &Service,
    request: RestoreContextRequest,
) -> Result<RestoreContextResponse, ServiceError> {
    let key = convert::session_key(&request.session, "session")?;
    if request.to_revision == 0 {
        return Err(ServiceError::invalid("to_revision", "must be at least 1"));
    }
    convert::target(request.target.clone(), &LastServed::default())?;
    let request_id = request.request_id.clone();
    let body = || convert::body_digest(&request);
    let stamp = convert::request_stamp(&request_id, Method::Restore, body, service.limits())?;
    let revision = Revision::new(request.to_revision);
    let current = service.sessions.read(&key, Session::revision).await?;
    let past = service.sessions.past(&key, revision).await?;
    let past = past.ok_or(ServiceError::RevisionNotFound { revision, current })?;
    let restore = Restore {
        past: Box::new(past),
        force: request.force,
        expected_revision: request.expected_revision.map(Revision::new),
        request: stamp,
    };
    let decide = |transaction: &mut Transaction<'_>| decide(transaction, &restore);
    let target = request.target.as_ref();
    let finish = |session: &Session, done: &Done| {
        Ok(match done {
            Done::Now(event) => Ok(answer(session, event.as_deref(), target)),
            Done::Before(revision) => Err(*revision),
        })
    };
    let sessions = &service.sessions;
    let missing = &Missing::Refuse;
    let outcome = service
        .sessions
        .run(&key, missing, request.dry_run, decide, finish)
        .await;
    match outcome.map_err(|error| ServiceError::from(error).with_request_id(&request_id))? {
        Ok(response) => Ok(response),
        Err(revision) => {
            let recorded = sessions.event(&key, revision).await?;
            let event = recorded.and_then(|recorded| match recorded.event {
                Event::Restored(event) => Some(event),
                _ => None,
            });
            let tell = |session: &Session| answer(session, event.as_ref(), target);
            Ok(sessions.read(&key, tell).await?)
        }
    }
}

fn decide(transaction: &mut Transaction<'_>, restore: &Restore) -> Result<Done, Rejection> {
    let mut restore = restore.clone();
    restore.expected_revision = expected(restore.expected_revision, transaction)?;
    Ok(match transaction.run(Command::Restore(restore))? {
        Outcome::Answered(revision) => Done::Before(revision),
        Outcome::Done(_) | Outcome::Skipped(_) => {
            let last = transaction.events().last().map(|recorded| &recorded.event);
            Done::Now(match last {
                Some(Event::Restored(event)) => Some(Box::new(event.clone())),
                _ => None,
            })
        }
    })
}

fn answer(
    session: &Session,
    event: Option<&Restored>,
    target: Option<&v1::Target>,
) -> RestoreContextResponse {
    RestoreContextResponse {
        restored: Some(event.map(convert::restored).unwrap_or_default()),
        effect: event
            .and_then(|event| convert::level_effect(&Event::Restored(event.clone()), session)),
        revision: session.revision().get(),
        epoch: session.sealed().epoch().get().into(),
        tokens: Some(tokens(session, None)),
        budget: Some(budget(session, target)),
        cache_ledger: None,
        warnings: Vec::new(),
    }
}
