//! `GetSessionMemory` returns session memory and its coverage. `UpdateSessionMemory` records the text of a person.

use std::time::Duration;

use palimpsest_core::command::{Command, is_memory_update_running, memory_due_at};
use palimpsest_core::ids::{Revision, SessionKey, Timestamp};
use palimpsest_core::session::Session;
use palimpsest_engine::call::Deadline;
use palimpsest_engine::sessions::{MissingSession, Transaction};
use palimpsest_proto::context::v1::{
    GetSessionMemoryRequest, GetSessionMemoryResponse, UpdateSessionMemoryRequest,
    UpdateSessionMemoryResponse,
};
use palimpsest_worker::{MemoryEdit, prepare_edit};
use tokio::time::Instant;

use super::Service;
use crate::convert::{self, FieldError, MemoryView};
use crate::errors::ServiceError;

/// The maximum wait that a caller may request: 1 min.
const MAX_WAIT: Duration = Duration::from_mins(1);
/// The time before the deadline at which the call is answered, so that the reply arrives in time: 50 ms.
const DEADLINE_MARGIN: Duration = Duration::from_millis(50);

pub(super) async fn get(
    service: &Service,
    request: GetSessionMemoryRequest,
) -> Result<GetSessionMemoryResponse, ServiceError> {
    let key = convert::session_key(&request.session, "session")?;
    let wait = convert::duration_up_to(request.wait, "wait", MAX_WAIT)?.unwrap_or_default();
    if request.revision != 0 {
        if !wait.is_zero() {
            return Err(FieldError::invalid("wait", "cannot be combined with `revision`").into());
        }
        let view = past(service, &key, Revision::new(request.revision)).await?;
        return Ok(reply(view, &key, request.known_version));
    }
    let until =
        Deadline::current().map(|deadline| deadline.remaining().saturating_sub(DEADLINE_MARGIN));
    let until = Instant::now() + until.map_or(wait, |until| until.min(wait));
    let look = |session: &Session, now: Timestamp| {
        // With a worker in this process, an update that is due starts soon.
        let is_due = memory_due_at(session, now).is_some_and(|due| due <= now);
        let runs = is_memory_update_running(session, now) || (service.has_worker && is_due);
        (!runs).then(|| MemoryView::of(session, now))
    };
    let (sessions, draining) = (&service.sessions, &service.draining);
    let view = if let Some(view) = sessions.until(&key, until, draining, look).await? {
        view
    } else {
        // The update still runs. The caller gets the text before it.
        let now = sessions.clock().now();
        let look = |session: &Session| MemoryView::of(session, now);
        sessions.read(&key, look).await?
    };
    Ok(reply(view, &key, request.known_version))
}

/// Returns session memory as it was at a revision.
async fn past(
    service: &Service,
    key: &SessionKey,
    revision: Revision,
) -> Result<MemoryView, ServiceError> {
    let sessions = &service.sessions;
    let current = sessions.position(key).await?;
    let past = sessions
        .past_session(key, revision, current.revision)
        .await?;
    let at = past.session.info().modified;
    let view = MemoryView::of(&past.session, at);
    // Another history may have replaced the session between the two reads.
    sessions.confirm(key, current).await?;
    Ok(view)
}

fn reply(view: MemoryView, key: &SessionKey, known_version: u64) -> GetSessionMemoryResponse {
    let (memory, unchanged) = view.into_proto(key, known_version);
    GetSessionMemoryResponse {
        memory: Some(memory),
        unchanged,
    }
}

pub(super) async fn update(
    service: &Service,
    request: UpdateSessionMemoryRequest,
) -> Result<UpdateSessionMemoryResponse, ServiceError> {
    let key = convert::session_key(&request.session, "session")?;
    let stamp = convert::request_stamp(&request, service.limits())?;
    let (sessions, dry_run) = (&service.sessions, request.dry_run);
    let edit = MemoryEdit {
        text: request.text,
        expected_version: request.expected_version,
        request: stamp,
    };
    let edit = prepare_edit(sessions, &service.blobs, &key, edit, dry_run).await?;
    let decide = |transaction: &mut Transaction<'_>| {
        let command = Command::EditSessionMemory(edit.clone());
        transaction.run(command).map(drop)
    };
    let now = sessions.clock().now();
    let finish = |session: &Session, (): &()| {
        let revision = session.revision().get();
        Ok((MemoryView::of(session, now), revision))
    };
    let missing = MissingSession::Reject;
    let (view, revision) = sessions
        .run(&key, &missing, dry_run, decide, finish)
        .await?;
    // A caller that knows no version gets the text of any version.
    let (memory, _) = view.into_proto(&key, 0);
    Ok(UpdateSessionMemoryResponse {
        memory: Some(memory),
        revision,
    })
}
