//! `DeleteSession`: deletes a session, and its subagents if the caller requests it.

use palimpsest_core::ids::Revision;
use palimpsest_engine::deletion::{self, Deletion};
use palimpsest_proto::context::v1::{DeleteSessionRequest, DeleteSessionResponse};

use super::Service;
use crate::convert;
use crate::errors::ServiceError;

pub(super) async fn delete(
    service: &Service,
    request: DeleteSessionRequest,
) -> Result<DeleteSessionResponse, ServiceError> {
    let key = convert::session_key(&request.session, "session")?;
    let deletion = Deletion {
        expected: request.expected_revision.map(Revision::new),
        allow_missing: request.allow_missing,
        with_subagents: request.delete_subagents,
    };
    let deleted = deletion::delete(service, &key, deletion).await?;
    Ok(DeleteSessionResponse {
        deleted_sessions: deleted.sessions,
        complete: deleted.is_complete,
    })
}
