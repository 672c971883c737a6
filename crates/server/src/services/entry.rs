//! The door of every handler: whatever is asked of a call once its project is known is asked here,
//! before anything is done for it.

use palimpsest_core::ids::{ProjectId, SessionKey};
use palimpsest_proto::context::v1::{
    AppendMessagesRequest, CallToolRequest, CommitSummaryRequest, CompactRequest,
    CreateSessionRequest, DeleteSessionRequest, ExportTranscriptRequest, GetSessionMemoryRequest,
    GetSessionRequest, ListEventsRequest, ListMessagesRequest, ListSessionsRequest,
    ListToolsRequest, PersistToolResultRequest, PrepareContextRequest, ReadToolResultRequest,
    RestoreContextRequest, RewindSessionRequest, SearchMessagesRequest, SnipRequest,
    StreamContextRequest, UpdateSessionRequest, UpdateWorkingStateRequest, WatchSessionRequest,
};
use tonic::{Request, Status};

use super::Service;
use crate::errors::ServiceError;
use crate::grpc::Ticket;

/// A request that names its project, or a session in it.
pub(super) trait Names {
    /// The resource name.
    fn name(&self) -> &str;
}

macro_rules! names {
    ($($request:ident . $field:ident),* $(,)?) => {
        $(impl Names for $request {
            fn name(&self) -> &str {
                &self.$field
            }
        })*
    };
}

names!(
    AppendMessagesRequest.session,
    PrepareContextRequest.session,
    StreamContextRequest.session,
    CompactRequest.session,
    CommitSummaryRequest.session,
    SnipRequest.session,
    PersistToolResultRequest.session,
    ReadToolResultRequest.session,
    GetSessionMemoryRequest.session,
    UpdateWorkingStateRequest.session,
    RestoreContextRequest.session,
    RewindSessionRequest.session,
    ListToolsRequest.session,
    CallToolRequest.session,
    CreateSessionRequest.parent,
    GetSessionRequest.session,
    DeleteSessionRequest.session,
    ListSessionsRequest.parent,
    ListMessagesRequest.session,
    SearchMessagesRequest.session,
    ListEventsRequest.session,
    WatchSessionRequest.session,
    ExportTranscriptRequest.session,
);

impl Names for UpdateSessionRequest {
    fn name(&self) -> &str {
        self.session.as_ref().map_or("", |session| &session.name)
    }
}

impl Service {
    /// Lets a call in, and gives its request. Every handler begins with this.
    pub(super) fn enter<R: Names>(&self, request: Request<R>) -> Result<R, Status> {
        // A name that is none is told by the handler, with its field; it leads nowhere.
        let name = request.get_ref().name();
        let ticket = request.extensions().get::<Ticket>();
        if let (Some(ticket), Ok(session)) = (ticket, SessionKey::parse(name)) {
            ticket.about(&session);
        }
        if let Some(project) = project_of(name) {
            self.admit(ticket, project)?;
        }
        Ok(request.into_inner())
    }

    #[expect(clippy::unnecessary_wraps, clippy::unused_self, reason = "a seam")]
    fn admit(&self, ticket: Option<&Ticket>, project: ProjectId) -> Result<(), ServiceError> {
        if let Some(ticket) = ticket {
            ticket.enter(project);
        }
        Ok(())
    }
}

/// The project of a resource name, read exactly as the handlers read it.
fn project_of(name: &str) -> Option<ProjectId> {
    if let Ok(session) = SessionKey::parse(name) {
        return Some(session.project);
    }
    ProjectId::new(name.strip_prefix("projects/")?).ok()
}
