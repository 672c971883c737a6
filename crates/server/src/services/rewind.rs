//! `RewindSession`: removes later messages from the view.

use palimpsest_core::event::Event;
use palimpsest_core::ids::Revision;
use palimpsest_core::session::{ContentNotLoaded, Session};
use palimpsest_core::view::TargetOverride;
use palimpsest_engine::change::{ChangeCall, ChangeOutcome, RewindInput, RewindTarget};
use palimpsest_proto::context::v1::rewind_session_request::TargetMessage;
use palimpsest_proto::context::v1::{self, RewindSessionRequest, RewindSessionResponse};

use super::Service;
use super::view_report::{budget, budget_warnings, cache_ledger, removed, tokens};
use crate::convert;
use crate::errors::ServiceError;

pub(super) async fn rewind(
    service: &Service,
    request: RewindSessionRequest,
) -> Result<RewindSessionResponse, ServiceError> {
    let key = convert::session_key(&request.session, "session")?;
    let target = match &request.target_message {
        Some(TargetMessage::ToMessageId(id)) => {
            RewindTarget::To(convert::message_id(id, "to_message_id")?)
        }
        Some(TargetMessage::BeforeMessageId(id)) => {
            RewindTarget::Before(convert::message_id(id, "before_message_id")?)
        }
        None => {
            return Err(ServiceError::invalid(
                "to_message_id",
                "is required, or before_message_id",
            ));
        }
    };
    // An invalid target is rejected before anything is committed.
    let view = convert::target_override(request.target.clone(), &service.model_table)?;
    let input = RewindInput {
        target,
        expected_revision: request.expected_revision.map(Revision::new),
        request: convert::request_stamp(&request, service.limits())?,
    };
    let change = ChangeCall {
        engine: service,
        key: &key,
        dry_run: request.dry_run,
    };
    let outcome = change.rewind(&input, |session, outcome, _| {
        answer(service, session, outcome, &view)
    });
    Ok(outcome.await?)
}

fn answer(
    service: &Service,
    session: &Session,
    outcome: &ChangeOutcome,
    target: &TargetOverride,
) -> Result<RewindSessionResponse, ContentNotLoaded> {
    let mut response = RewindSessionResponse {
        rewound: Some(v1::SessionRewound::default()),
        revision: session.revision().get(),
        epoch: session.sealed().epoch().get().into(),
        tokens: Some(tokens(session, None)),
        budget: Some(budget(session, target)),
        cache_ledger: Some(cache_ledger(service, session, target)?),
        warnings: budget_warnings(session, target, convert::CompactionResult::None),
        recovery: removed(session, target, outcome.event()),
        ..RewindSessionResponse::default()
    };
    match outcome.event() {
        Some((_, Event::SessionRewound(rewound))) => {
            response.rewound = Some(convert::rewound(rewound, session));
            response.effect = Some(convert::rewind_effect(rewound));
        }
        // The target was collapsed or compacted, and no message follows it in the restored view.
        Some((_, event @ Event::ContextRestored(_))) => {
            response.effect = convert::level_effect(event);
        }
        _ => {}
    }
    Ok(response)
}
