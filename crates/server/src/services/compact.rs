//! `Compact`. Of its levels there is the clearing of old tool results so far.

use palimpsest_core::command::{Clear, Clearing, Command, Rejection, Skip};
use palimpsest_core::ids::Revision;
use palimpsest_core::session::{LastServed, Method, NotHeld, Session};
use palimpsest_proto::context::v1::{self, CompactRequest, CompactResponse, Level, Trigger};

use super::Service;
use super::append::{budget, expected, tokens};
use super::change::{Change, Happened};
use super::fidelity::removed;
use super::ledger::ledger;
use crate::convert;
use crate::errors::ServiceError;
use crate::sessions::{Outcome, Transaction};

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
    let change = Change {
        service,
        key: &key,
        dry_run: request.dry_run,
    };
    let target = request.target.as_ref();
    let outcome = change.run(
        |transaction| decide(transaction, &clear),
        |session, happened, dry_run| {
            let response = answer(service, session, happened, target, dry_run)?;
            Ok((skip(happened), response))
        },
    );
    match outcome
        .await
        .map_err(|error| error.with_request_id(&request_id))?
    {
        (None, response) => Ok(response),
        // Only whoever asks by hand is refused: a threshold that is not reached is no error.
        (_, response) if matches!(clear.clearing, Clearing::Auto { .. }) => Ok(response),
        (Some(Skip::Disabled), _) => Err(ServiceError::DisabledByPolicy {
            setting: "microcompact.enabled",
        }),
        (Some(skip), _) => Err(ServiceError::NothingToCompact {
            skip: convert::skip_reason(skip),
        }),
    }
}

fn decide(transaction: &mut Transaction<'_>, clear: &Clear) -> Result<Outcome, Rejection> {
    let mut clear = clear.clone();
    clear.expected_revision = expected(clear.expected_revision, transaction)?;
    transaction.run(Command::Clear(clear))
}

/// Why nothing happened.
const fn skip(happened: &Happened) -> Option<Skip> {
    match happened {
        Happened::Event(..) => None,
        Happened::Nothing => Some(Skip::NothingEligible),
        Happened::Skipped(skip) => Some(*skip),
    }
}

fn answer(
    service: &Service,
    session: &Session,
    happened: &Happened,
    target: Option<&v1::Target>,
    dry_run: bool,
) -> Result<CompactResponse, NotHeld> {
    let stage = match (happened, skip(happened)) {
        (Happened::Event(event, _), _) => convert::stage(event, session, dry_run),
        (_, skip) => skip.map(|skip| convert::skipped(Level::Microcompact, skip)),
    };
    Ok(CompactResponse {
        stages: stage.into_iter().collect(),
        revision: session.revision().get(),
        epoch: session.sealed().epoch().get().into(),
        tokens: Some(tokens(session, None)),
        budget: Some(budget(session, target)),
        cache_ledger: Some(ledger(service, session, target)?),
        fidelity: removed(session, target, happened.event()),
        ..CompactResponse::default()
    })
}
