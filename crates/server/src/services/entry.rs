//! The door of every handler: whatever is asked of a call once its project is known is asked here,
//! before anything is done for it.

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

/// A request that names its project, or a session in it.
pub(super) trait NamesResource {
    /// The resource name.
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
    /// Lets a call in, and gives its request. Every handler begins with this.
    pub(super) fn enter<R: NamesResource>(&self, request: Request<R>) -> Result<R, Status> {
        let ticket = request.extensions().get::<CallContext>();
        let place = ResourceScope::of(request.get_ref().name());
        self.authorize(ticket, place.as_ref())?;
        // A name that is none is told by the handler, with its field; it leads nowhere.
        if let (Some(ticket), Some(ResourceScope::Session(session))) = (ticket, &place) {
            ticket.about(session);
        }
        if let Some(place) = place {
            self.admit(ticket, place.into_project())?;
        }
        Ok(request.into_inner())
    }

    /// Lets in a call that is about all projects at once.
    pub(super) fn enter_all<R>(&self, request: Request<R>) -> Result<R, Status> {
        self.authorize_everywhere(request.extensions().get::<CallContext>())?;
        Ok(request.into_inner())
    }

    fn admit(&self, ticket: Option<&CallContext>, project: ProjectId) -> Result<(), ServiceError> {
        // The gate has counted the call where it read the name before.
        if let Some(ticket) = ticket.filter(|ticket| ticket.project() != Some(&project)) {
            self.within_quotas(ticket, &project)?;
            ticket.enter(project);
        }
        Ok(())
    }
}
