//! `RestoreContext`: undoes view-changing events.

use palimpsest_core::event::Event;
use palimpsest_core::ids::Revision;
use palimpsest_core::session::{ContentNotLoaded, Session};
use palimpsest_core::view::TargetOverride;
use palimpsest_engine::change::{ChangeCall, ChangeOutcome, RestoreInput};
use palimpsest_proto::context::v1::{self, RestoreContextRequest, RestoreContextResponse};

use super::Service;
use super::recovery::returned;
use super::view_report::{budget, budget_warnings, cache_ledger, removed, tokens};
use crate::convert;
use crate::errors::ServiceError;

pub(super) async fn restore(
    service: &Service,
    request: RestoreContextRequest,
) -> Result<RestoreContextResponse, ServiceError> {
    let key = convert::session_key(&request.session, "session")?;
    if request.to_revision == 0 {
        return Err(ServiceError::invalid("to_revision", "must be at least 1"));
    }
    let target = convert::target_override(request.target.clone(), &service.model_table)?;
    let input = RestoreInput {
        revision: Revision::new(request.to_revision),
        force: request.force,
        expected_revision: request.expected_revision.map(Revision::new),
        request: convert::request_stamp(&request, service.limits())?,
    };
    let change = ChangeCall {
        engine: service,
        key: &key,
        dry_run: request.dry_run,
    };
    let outcome = change.restore(input, |session, outcome, _| {
        answer(service, session, outcome, &target)
    });
    let mut response = outcome.await?;
    let undone = response.restored.as_ref().map(|it| it.undone.as_slice());
    // The returned content may have to be read from the log, so it is added after the commit.
    if let Some(undone) = undone.filter(|undone| !undone.is_empty()) {
        let back = returned(service, &key, undone, request.dry_run).await?;
        let report = response.recovery.get_or_insert_default();
        report.returned_items = back.returned_items;
        report.total_returned_items = back.total_returned_items;
        report.incomplete = back.incomplete;
    }
    Ok(response)
}

fn answer(
    service: &Service,
    session: &Session,
    outcome: &ChangeOutcome,
    target: &TargetOverride,
) -> Result<RestoreContextResponse, ContentNotLoaded> {
    let mut response = RestoreContextResponse {
        restored: Some(v1::ContextRestored::default()),
        revision: session.revision().get(),
        epoch: session.sealed().epoch().get().into(),
        tokens: Some(tokens(session, None)),
        budget: Some(budget(session, target)),
        cache_ledger: Some(cache_ledger(service, session, target)?),
        warnings: budget_warnings(session, target, convert::CompactionResult::None),
        recovery: removed(session, target, outcome.event()),
        ..RestoreContextResponse::default()
    };
    if let Some((_, event @ Event::ContextRestored(restored))) = outcome.event() {
        response.restored = Some(convert::restored(restored, session));
        response.effect = convert::level_effect(event);
    }
    Ok(response)
}
