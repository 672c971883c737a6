//! `Compact`. Of its levels there is the clearing of old tool results so far.

use palimpsest_core::command::{Clear, Clearing, Command, Rejection, Skip};
use palimpsest_core::event::Event;
use palimpsest_core::ids::Revision;
use palimpsest_core::session::{LastServed, Method, Session};
use palimpsest_proto::context::v1::{self, CompactRequest, CompactResponse, Level, Trigger};

use super::Service;
use super::append::{budget, expected, tokens};
use crate::convert;
use crate::errors::ServiceError;
use crate::sessions::{Missing, Outcome, Transaction};

/// What came of it.
enum Done {
    /// It happened, or would.
    Now(Box<Event>),
    /// There was nothing to do.
    Skipped(Skip),
    /// It had happened, in the event with this revision.
    Before(Revision),
}

pub(super) async fn compact(
    service: &Service,
    request: CompactRequest,
) -> Result<CompactResponse, ServiceError> {
    let key = convert::session_key(&request.session, "session")?;
    match Level::try_from(request.level) {
        Ok(Level::Microcompact) => {}
        Ok(Level::Unspecified | Level::Autocompact | Level::Collapse) => {
            return Err(ServiceError::NotImplemented {
                method: "palimpsest.context.v1.ContextService/Compact".into(),
            });
        }
        Ok(Level::ToolResultBudget | Level::Snip) | Err(_) => {
            return Err(ServiceError::invalid(
                "level",
                "must be MICROCOMPACT, COLLAPSE or AUTOCOMPACT",
            ));
        }
    }
    let clearing = match Trigger::try_from(request.trigger) {
        Ok(Trigger::Unspecified | Trigger::Manual) => Clearing::Manual {
            target_tokens: request.target_tokens.map(u64::from),
        },
        Ok(Trigger::Auto) => Clearing::Auto { cache_edits: false },
        _ => return Err(ServiceError::invalid("trigger", "must be MANUAL or AUTO")),
    };
    convert::target(request.target.clone(), &LastServed::default())?;
    let request_id = request.request_id.clone();
    let body = || convert::body_digest(&request);
    let stamp = convert::request_stamp(&request_id, Method::Compact, body, service.limits())?;
    let clear = Clear {
        clearing,
        expected_revision: request.expected_revision.map(Revision::new),
        request: stamp,
    };
    let decide = |transaction: &mut Transaction<'_>| decide(transaction, &clear);
    let target = request.target.as_ref();
    let (sessions, missing) = (&service.sessions, &Missing::Refuse);
    let dry_run = request.dry_run;
    let finish = |session: &Session, done: &Done| {
        Ok(match done {
            Done::Now(event) => Ok(Ok(answer(session, event, target, dry_run))),
            Done::Skipped(skip) => Ok(Err((*skip, nothing(session, *skip, target)))),
            Done::Before(revision) => Err(*revision),
        })
    };
    let outcome = service
        .sessions
        .run(&key, missing, dry_run, decide, finish)
        .await;
    match outcome.map_err(|error| ServiceError::from(error).with_request_id(&request_id))? {
        Ok(Ok(response)) => Ok(response),
        // Only whoever asks by hand is refused: a threshold that is not reached is no error.
        Ok(Err((_, response))) if matches!(clear.clearing, Clearing::Auto { .. }) => Ok(response),
        Ok(Err((Skip::Disabled, _))) => Err(ServiceError::DisabledByPolicy {
            setting: "microcompact.enabled",
        }),
        Ok(Err((skip, _))) => Err(ServiceError::NothingToCompact {
            skip: convert::skip_reason(skip),
        }),
        Err(revision) => {
            let recorded = sessions.event(&key, revision).await?;
            let event = recorded.map(|recorded| recorded.event);
            let event = event.ok_or(ServiceError::Internal {
                doing: "find the answer of an earlier call",
                source: None,
            })?;
            let tell = |session: &Session| answer(session, &event, target, false);
            Ok(sessions.read(&key, tell).await?)
        }
    }
}

fn decide(transaction: &mut Transaction<'_>, clear: &Clear) -> Result<Done, Rejection> {
    let mut clear = clear.clone();
    clear.expected_revision = expected(clear.expected_revision, transaction)?;
    Ok(match transaction.run(Command::Clear(clear))? {
        Outcome::Answered(revision) => Done::Before(revision),
        Outcome::Skipped(skip) => Done::Skipped(skip),
        Outcome::Done(_) => match transaction.events().last() {
            Some(recorded) => Done::Now(Box::new(recorded.event.clone())),
            None => Done::Skipped(Skip::NothingEligible),
        },
    })
}

fn answer(
    session: &Session,
    event: &Event,
    target: Option<&v1::Target>,
    dry_run: bool,
) -> CompactResponse {
    CompactResponse {
        stages: convert::stage(event, session, dry_run)
            .into_iter()
            .collect(),
        ..state(session, target)
    }
}

fn nothing(session: &Session, skip: Skip, target: Option<&v1::Target>) -> CompactResponse {
    CompactResponse {
        stages: vec![convert::skipped(Level::Microcompact, skip)],
        ..state(session, target)
    }
}

fn state(session: &Session, target: Option<&v1::Target>) -> CompactResponse {
    CompactResponse {
        revision: session.revision().get(),
        epoch: session.sealed().epoch().get().into(),
        tokens: Some(tokens(session, None)),
        budget: Some(budget(session, target)),
        ..CompactResponse::default()
    }
}
