//! `UpdateWorkingState`: updates the working state by key.

use palimpsest_core::command::{Command, UpdateWorkingState};
use palimpsest_core::ids::{Revision, SessionKey};
use palimpsest_core::levels::attachments::reconstructed_files;
use palimpsest_core::session::{ContentNotLoaded, Session};
use palimpsest_engine::sessions::Transaction;
use palimpsest_proto::context::v1::{UpdateWorkingStateRequest, UpdateWorkingStateResponse};

use super::Service;
use crate::convert;
use crate::errors::ServiceError;

pub(super) async fn update(
    service: &Service,
    request: UpdateWorkingStateRequest,
) -> Result<UpdateWorkingStateResponse, ServiceError> {
    let key = convert::session_key(&request.session, "session")?;
    let stamp = convert::request_stamp(&request, service.limits())?;
    let now = service.sessions.clock().now();
    let change = convert::working_change(request.remove, request.set, now, service.limits())?;
    let update = UpdateWorkingState {
        change,
        expected_revision: request.expected_revision.map(Revision::new),
        request: stamp,
    };
    run(service, &key, &update).await
}

async fn run(
    service: &Service,
    key: &SessionKey,
    update: &UpdateWorkingState,
) -> Result<UpdateWorkingStateResponse, ServiceError> {
    let decide = |transaction: &mut Transaction<'_>| {
        let update = Box::new(update.clone());
        transaction
            .run(Command::UpdateWorkingState(update))
            .map(drop)
    };
    let finish = |session: &Session, (): &()| answer(session);
    let missing = service.create_if_missing(&key.project);
    let sessions = &service.sessions;
    Ok(sessions.run(key, &missing, false, decide, finish).await?)
}

/// Returns the current working state. An idempotent repeat gets it as well.
fn answer(session: &Session) -> Result<UpdateWorkingStateResponse, ContentNotLoaded> {
    let state = &*session.working().state;
    let has_files = !(state.files.is_empty() && state.instruction_files.is_empty());
    // File details are derived from message contents, so contents are needed only if the state has files.
    let known = if has_files {
        if !session.transcript().is_fully_loaded() {
            return Err(ContentNotLoaded);
        }
        reconstructed_files(session)?
    } else {
        Vec::new()
    };
    Ok(UpdateWorkingStateResponse {
        working_state: Some(convert::working_state(state, &known)),
        revision: session.revision().get(),
    })
}
