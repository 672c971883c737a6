//! `CreateSession`, `GetSession` and `UpdateSession`.

use palimpsest_core::command::{Command, Rejection};
use palimpsest_core::ids::{ProjectId, SessionKey};
use palimpsest_core::policy::Overlay;
use palimpsest_core::session::Session;
use palimpsest_engine::creation;
use palimpsest_engine::fork::{self, Fork};
use palimpsest_engine::sessions::{MissingSession, Transaction, warm_up};
use palimpsest_proto::context::v1::{
    CreateSessionRequest, CreateSessionResponse, ForkSessionRequest, ForkSessionResponse,
    GetSessionRequest, GetSessionResponse, UpdateSessionRequest, UpdateSessionResponse,
};

use super::{Service, recovery};
use crate::access::Right;
use crate::convert::{self, ChangedSession};
use crate::errors::ServiceError;

pub(super) async fn create(
    service: &Service,
    request: CreateSessionRequest,
) -> Result<CreateSessionResponse, ServiceError> {
    let (request_id, limits) = (request.request_id.clone(), service.limits());
    let stamp = convert::request_stamp(&request, limits)?;
    let mut new = convert::create(request, limits)?;
    let policies = service.sessions.policies();
    new.create.policy = policies
        .with(&new.project, &new.overrides)
        .map_err(convert::invalid_overrides)?;
    // The overrides are checked against the server's configuration before anything is committed.
    let unknown = service.hooks.unknown(&new.overrides);
    if let Some(what) = unknown {
        let field = convert::in_overrides(ENDPOINT);
        return Err(ServiceError::invalid(field, what));
    }
    check_models(service, &new.overrides)?;
    check_redaction(service, &new.project, &new.overrides)?;
    new.create.request = stamp;
    let session = match new.session {
        Some(session) => session,
        // The id is derived from the request id, so a repeat finds the session of the first attempt.
        None => creation::session_id(service, &new.project, &request_id)?,
    };
    let key = SessionKey::new(new.project, session);
    let session = creation::create(service, &key, new.create, convert::session).await?;
    Ok(CreateSessionResponse {
        session: Some(session),
    })
}

pub(super) async fn fork(
    service: &Service,
    request: ForkSessionRequest,
) -> Result<ForkSessionResponse, ServiceError> {
    let (request_id, limits) = (request.request_id.clone(), service.limits());
    let stamp = convert::request_stamp(&request, limits)?;
    let (session, fork) = convert::fork(request, limits)?;
    let fork = Fork {
        request: stamp,
        ..fork
    };
    let project = fork.source.project.clone();
    let session = match session {
        Some(session) => session,
        // As in `create`.
        None => creation::session_id(service, &project, &request_id)?,
    };
    let key = SessionKey::new(project, session);
    let session = fork::fork(service, &key, &fork, convert::session).await?;
    Ok(ForkSessionResponse {
        session: Some(session),
    })
}

pub(super) async fn get(
    service: &Service,
    request: GetSessionRequest,
) -> Result<GetSessionResponse, ServiceError> {
    let key = convert::session_key(&request.session, "session")?;
    let message = convert::recovery_message(&request)?;
    let look = |session: &Session| convert::session(session);
    let session = service.sessions.read(&key, look).await?;
    let mut response = GetSessionResponse {
        session: Some(session),
        recovery: None,
    };
    if request.include_recovery {
        response.recovery = Some(recovery::whole(service, &key, message).await?);
    }
    Ok(response)
}

pub(super) async fn update(
    service: &Service,
    request: UpdateSessionRequest,
) -> Result<UpdateSessionResponse, ServiceError> {
    let limits = service.limits();
    let stamp = convert::request_stamp(&request, limits)?;
    let mut change = convert::update(request, limits)?;
    if let Some(policy) = &change.policy {
        check_models(service, policy.given())?;
        check_redaction(service, &change.session.project, policy.given())?;
    }
    change.update.request = stamp;
    let key = change.session.clone();
    let inherited = service.sessions.policies().inherited(&key.project);
    let hold = change.update.hold.as_deref();
    let changes = |session: &Session| changes_hold(session, hold);
    // A hold prevents deletion, so the right to delete is needed to change or remove it.
    let may_change = service.has_right(Right::Admin, &key).is_ok();
    // Only an update that gives a hold can change one, so other updates do not read the session twice.
    if hold.is_some() && service.sessions.read(&key, changes).await? {
        service.authorize_also(Right::Admin, &key)?;
    }
    let decide = |transaction: &mut Transaction<'_>| {
        // The hold may have changed since the check above, so the transaction checks it again.
        let was_set = transaction.session().is_some_and(changes);
        if was_set && !may_change {
            let what = "was set by another call meanwhile, and only the right admin may change it";
            return Err(Rejection::invalid("session.hold", what));
        }
        let mut update = change.update.clone();
        update.policy = new_policy(&change, inherited, transaction)?;
        if let Some(what) = update
            .policy
            .as_ref()
            .and_then(|it| service.hooks.unknown(it))
        {
            return Err(Rejection::invalid(convert::in_overrides(ENDPOINT), what));
        }
        let outcome = transaction.run(Command::UpdateSession(update));
        outcome.map(drop).map_err(in_overrides)
    };
    let finish = |session: &Session, (): &()| Ok((convert::session(session), session.counter()));
    let (session, counter) = service
        .sessions
        .write(&key, &MissingSession::Reject, decide, finish)
        .await?;
    // The estimator's vocabulary is loaded now, so that the next append does not wait for it.
    warm_up(counter).await;
    Ok(UpdateSessionResponse {
        session: Some(session),
    })
}

/// Returns true if the session is on hold and the update removes the hold or changes its reason.
fn changes_hold(session: &Session, hold: Option<&str>) -> bool {
    let now = &*session.info().hold;
    !now.is_empty() && hold.is_some_and(|hold| hold != now)
}

/// The policy setting that selects a hook endpoint.
const ENDPOINT: &str = "policy.hooks.endpoint";

/// Rejects settings that select a summary model outside the server's list of allowed models.
fn check_models(service: &Service, settings: &Overlay) -> Result<(), ServiceError> {
    let models = service.models.as_ref();
    match models.and_then(|models| models.first_disallowed(settings)) {
        None => Ok(()),
        Some((field, model)) => Err(ServiceError::model_not_allowed(
            &convert::in_overrides(field),
            &model,
        )),
    }
}

/// Rejects settings that disable redaction in summaries if the server's configuration requires it.
fn check_redaction(
    service: &Service,
    project: &ProjectId,
    settings: &Overlay,
) -> Result<(), ServiceError> {
    let off = settings.get(&["summary", "redact_secrets"]) == Some(&false.into());
    if off
        && service
            .sessions
            .policies()
            .of(project)
            .summary
            .redact_secrets
    {
        let field = convert::in_overrides("policy.summary.redact_secrets");
        let what = "cannot be false for a session: the server requires it; its operator sets \
                    `policy.summary.redact_secrets` in the server's configuration";
        return Err(ServiceError::invalid(field, what));
    }
    Ok(())
}

/// Returns the policy overlay of an update.
fn new_policy(
    change: &ChangedSession,
    inherited: &Overlay,
    transaction: &Transaction<'_>,
) -> Result<Option<Overlay>, Rejection> {
    let (Some(policy), Some(session)) = (&change.policy, transaction.session()) else {
        return Ok(None);
    };
    let overlay = policy.overlay(session.policy(), inherited);
    let stamp = change.update.request.as_ref();
    let now = transaction.now();
    match overlay {
        // An idempotent repeat must succeed although the configuration may have changed since the first attempt.
        Err(_) if stamp.is_some_and(|stamp| session.requests().find(stamp, now).is_some()) => {
            Ok(None)
        }
        overlay => overlay.map(Some).map_err(|e| in_overrides(e.into())),
    }
}

/// Maps a rejection about the resolved policy to the field that the caller set.
fn in_overrides(rejection: Rejection) -> Rejection {
    match rejection {
        Rejection::Invalid { field, what }
            if field == "preset" || field == "policy" || field.starts_with("policy.") =>
        {
            Rejection::invalid(convert::in_overrides(&field), what)
        }
        rejection => rejection,
    }
}
