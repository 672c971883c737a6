//! The entry of every handler: the checks that need the project of a call, before any work is done.

use palimpsest_core::ids::ProjectId;
use palimpsest_proto::context::v1::{
    AppendMessagesRequest, CallToolRequest, CommitSummaryRequest, CompactRequest,
    CreateSessionRequest, DeleteSessionRequest, ExportTranscriptRequest, GetSessionMemoryRequest,
    GetSessionRequest, ListEventsRequest, ListMessagesRequest, ListSessionsRequest,
    ListStoredSessionsRequest, ListToolsRequest, PersistToolResultRequest, PrepareContextRequest,
    ReadStoredFileRequest, ReadStoredSessionRequest, ReadToolResultRequest, RestoreContextRequest,
    RewindSessionRequest, SearchMessagesRequest, SnipRequest, StreamContextRequest,
    UpdateSessionRequest, UpdateWorkingStateRequest, WatchSessionRequest,
};
use tonic::{Request, Status};

use super::Service;
use crate::access::ResourceScope;
use crate::errors::ServiceError;
use crate::grpc::CallContext;

/// A request that names its project or a session in it.
pub(super) trait NamesResource {
    /// Returns the resource name.
    fn name(&self) -> &str;
}

macro_rules! names {
    ($($request:ident . $field:ident),* $(,)?) => {
        $(impl NamesResource for $request {
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
    ListStoredSessionsRequest.parent,
    ReadStoredSessionRequest.session,
    ReadStoredFileRequest.session,
);

impl NamesResource for UpdateSessionRequest {
    fn name(&self) -> &str {
        self.session.as_ref().map_or("", |session| &session.name)
    }
}

impl Service {
    /// Authorizes and admits a call, then returns its request. Every handler calls this first.
    pub(super) fn admit_call<R: NamesResource>(&self, request: Request<R>) -> Result<R, Status> {
        let ticket = request.extensions().get::<CallContext>();
        let place = ResourceScope::of(request.get_ref().name());
        self.authorize(ticket, place.as_ref())?;
        // The handler reports an invalid name with its field. An invalid name reaches no resource.
        if let (Some(ticket), Some(ResourceScope::Session(session))) = (ticket, &place) {
            ticket.set_session(session);
        }
        if let Some(place) = place {
            self.admit(ticket, place.into_project())?;
        }
        Ok(request.into_inner())
    }

    /// Authorizes a call about all projects.
    pub(super) fn admit_global_call<R>(&self, request: Request<R>) -> Result<R, Status> {
        self.authorize_everywhere(request.extensions().get::<CallContext>())?;
        Ok(request.into_inner())
    }

    fn admit(&self, ticket: Option<&CallContext>, project: ProjectId) -> Result<(), ServiceError> {
        // The transport has already counted the call if it could read the name there.
        if let Some(ticket) = ticket.filter(|ticket| ticket.project() != Some(&project)) {
            self.check_quotas(ticket, &project)?;
            ticket.set_project(project);
        }
        Ok(())
    }
}
