//! `Snip`: removes turns, messages or blocks from the view.

use palimpsest_core::command::{Rejection, Snip};
use palimpsest_core::event::{Event, Trigger};
use palimpsest_core::ids::{MessageId, Revision, SessionKey};
use palimpsest_core::session::{ContentNotLoaded, Session};
use palimpsest_core::view::{TargetOverride, ViewPosition};
use palimpsest_engine::EngineError;
use palimpsest_engine::change::{ChangeCall, ChangeOutcome};
use palimpsest_engine::subagents::descendants;
use palimpsest_proto::context::v1::{self, ErrorReason, SnipRequest, SnipResponse};

use super::view_report::{budget, budget_warnings, cache_ledger, removed, tokens};
use super::{Service, etag};
use crate::convert;
use crate::errors::{RejectedTarget, ServiceError};

pub(super) async fn snip(
    service: &Service,
    request: SnipRequest,
) -> Result<SnipResponse, ServiceError> {
    let key = convert::session_key(&request.session, "session")?;
    // An invalid target is rejected before anything is committed.
    let target = convert::target_override(request.target.clone(), &service.model_table)?;
    let stamp = convert::request_stamp(&request, service.limits())?;
    let limits = service.limits();
    convert::check_count(request.turn_ids.len(), limits.max_messages, "turn_ids")?;
    convert::check_count(
        request.message_ids.len(),
        limits.max_messages,
        "message_ids",
    )?;
    convert::check_count(request.blocks.len(), limits.max_blocks, "blocks")?;
    if let Some(view) = &request.view_blocks {
        let field = "view_blocks.positions";
        convert::check_count(view.positions.len(), limits.max_blocks, field)?;
    }
    // Blocks can be named by message or by their position in a view, as in a provider's error message.
    let mut blocks = Vec::new();
    for (index, block) in request.blocks.iter().enumerate() {
        blocks.push(block_ref(block, &format!("blocks[{index}]"))?);
    }
    blocks.extend(view_blocks(service, &key, request.view_blocks.as_ref()).await?);
    let mut messages = Vec::new();
    for (index, id) in request.message_ids.iter().enumerate() {
        messages.push(convert::message_id(id, &format!("message_ids[{index}]"))?);
    }
    let snip = Snip {
        turns: request
            .turn_ids
            .iter()
            .map(|turn| turn.as_str().into())
            .collect(),
        messages,
        blocks,
        reason: request.reason.as_str().into(),
        trigger: Trigger::Manual,
        expected_revision: request.expected_revision.map(Revision::new),
        request: stamp,
    };
    run(service, &key, snip, &target, request.dry_run).await
}

/// Runs a snip and returns the removed content.
pub(super) async fn run(
    service: &Service,
    key: &SessionKey,
    snip: Snip,
    target: &TargetOverride,
    dry_run: bool,
) -> Result<SnipResponse, ServiceError> {
    let change = ChangeCall {
        engine: service,
        key,
        dry_run,
    };
    let outcome = change.snip(&snip, |session, outcome, _| {
        answer(service, session, outcome, target)
    });
    match outcome.await {
        // Only this error needs related sessions, whose search reads all rows of the project.
        Err(EngineError::Rejected(Rejection::NotSnippable(targets))) => {
            let targets = targets.into_iter().map(RejectedTarget::from).collect();
            Err(explain_foreign_turns(service, key, targets).await?)
        }
        outcome => Ok(outcome?),
    }
}

fn answer(
    service: &Service,
    session: &Session,
    outcome: &ChangeOutcome,
    target: &TargetOverride,
) -> Result<SnipResponse, ContentNotLoaded> {
    let mut response = SnipResponse {
        revision: session.revision().get(),
        epoch: session.sealed().epoch().get().into(),
        tokens: Some(tokens(session, None)),
        budget: Some(budget(session, target)),
        cache_ledger: Some(cache_ledger(service, session, target)?),
        warnings: budget_warnings(session, target, convert::CompactionResult::None),
        recovery: removed(session, target, outcome.event()),
        ..SnipResponse::default()
    };
    if let Some((_, event @ Event::ContentSnipped(snipped))) = outcome.event() {
        response.snipped = Some(convert::snipped(snipped, session));
        response.effect = convert::level_effect(event);
    }
    Ok(response)
}

fn block_ref(block: &v1::BlockRef, path: &str) -> Result<(MessageId, u16), ServiceError> {
    let id = convert::message_id(&block.message_id, &format!("{path}.message_id"))?;
    let index = u16::try_from(block.block_index).map_err(|_| {
        ServiceError::invalid(
            format!("{path}.block_index"),
            "is more than a message can have",
        )
    })?;
    Ok((id, index))
}

/// Returns the blocks at the given positions of a view. Providers name blocks this way in errors.
async fn view_blocks(
    service: &Service,
    key: &SessionKey,
    places: Option<&v1::ViewBlocks>,
) -> Result<Vec<(MessageId, u16)>, ServiceError> {
    let Some(places) = places else {
        return Ok(Vec::new());
    };
    let Some(named) = etag::read(&places.etag) else {
        return Err(ServiceError::invalid(
            "view_blocks.etag",
            "is not one of a view that was prepared",
        ));
    };
    let positions: Vec<_> = places
        .positions
        .iter()
        .map(|position| ViewPosition {
            message: position.message_index,
            block: position.block_index,
        })
        .collect();
    let look = |session: &Session| {
        // Positions are valid only for the view that the etag names. A changed view could lead to other blocks.
        if !named.etag.is_current(session.sealed(), &named.target) {
            return Err(ServiceError::view_changed(session.revision()));
        }
        let all = positions.iter().copied().collect();
        let found = session.blocks_at(named.etag, &named.target, &all);
        let found = found.map_err(Rejection::from)?;
        if let Some(index) = positions.iter().position(|one| !found.contains_key(one)) {
            let path = format!("view_blocks.positions[{index}]");
            return Err(ServiceError::invalid(&path, "is not a block of that view"));
        }
        Ok(found.into_values().flatten().collect())
    };
    service.sessions.read_full(key, look).await?
}

/// Sets a more specific reason for unknown turns that belong to the parent or to a subagent session.
async fn explain_foreign_turns(
    service: &Service,
    key: &SessionKey,
    mut targets: Vec<RejectedTarget>,
) -> Result<ServiceError, ServiceError> {
    let parent = |session: &Session| session.info().parent.clone();
    let mut relatives = descendants(service, key).await?;
    relatives.extend(service.sessions.read(key, parent).await?);
    for relative in relatives {
        for target in &mut targets {
            // A relative that cannot be read counts as one without the turn.
            let has = |session: &Session| session.turns().find(&target.name).is_some();
            if target.reason == ErrorReason::TurnNotFound
                && service.sessions.read(&relative, has).await.unwrap_or(false)
            {
                target.reason = ErrorReason::TurnForeign;
            }
        }
    }
    Ok(ServiceError::not_snippable(&targets))
}
