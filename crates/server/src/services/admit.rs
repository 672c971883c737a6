//! The checks that every call passes before its handler: authorization, deadline and quotas.

use std::collections::BTreeSet;

use palimpsest_core::ids::{ProjectId, SessionKey};
use palimpsest_proto::context::v1::{
    AppendMessagesRequest, CallToolRequest, CommitSummaryRequest, CompactRequest,
    CreateSessionRequest, DeleteSessionRequest, ExportTranscriptRequest, ForkSessionRequest,
    GetSessionMemoryRequest, GetSessionRequest, GetViewRequest, ListEventsRequest,
    ListMessagesRequest, ListSessionsRequest, ListStoredSessionsRequest, ListToolsRequest,
    PersistToolResultRequest, PrepareContextRequest, ReadStoredFileRequest,
    ReadStoredSessionRequest, ReadToolResultRequest, RestoreContextRequest, RewindSessionRequest,
    SearchMessagesRequest, SnipRequest, StreamContextRequest, SyncContextRequest,
    UpdateSessionMemoryRequest, UpdateSessionRequest, UpdateWorkingStateRequest,
    WatchSessionRequest,
};
use tonic::{Request, Status};

use super::Service;
use crate::access::{self, Authentication, ProjectSet, ResourceScope, Right};
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
    SyncContextRequest.session,
    StreamContextRequest.session,
    CompactRequest.session,
    CommitSummaryRequest.session,
    SnipRequest.session,
    PersistToolResultRequest.session,
    ReadToolResultRequest.session,
    GetSessionMemoryRequest.session,
    UpdateSessionMemoryRequest.session,
    UpdateWorkingStateRequest.session,
    RestoreContextRequest.session,
    RewindSessionRequest.session,
    ListToolsRequest.session,
    CallToolRequest.session,
    CreateSessionRequest.parent,
    ForkSessionRequest.session,
    GetSessionRequest.session,
    DeleteSessionRequest.session,
    ListSessionsRequest.parent,
    GetViewRequest.session,
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
        let context = request.extensions().get::<CallContext>();
        let scope = ResourceScope::of(request.get_ref().name());
        if let Some(authentication) = self.authenticated(context)? {
            access::authorize(authentication, scope.as_ref()).map_err(ServiceError::from)?;
        }
        // The handler reports an invalid name with its field. An invalid name reaches no resource.
        if let (Some(context), Some(scope)) = (context, scope) {
            if let ResourceScope::Session(session) = &scope {
                context.set_session(session);
            }
            self.check_quotas(context, scope.into_project())?;
        }
        Ok(request.into_inner())
    }

    /// Authorizes a call about all projects: the credential must grant the rpc's right in all of them.
    pub(super) fn admit_global_call<R>(&self, request: Request<R>) -> Result<R, Status> {
        let context = request.extensions().get::<CallContext>();
        if let Some(Authentication {
            principal,
            right: Some(right),
        }) = self.authenticated(context)?
            && !(principal.grant.projects.is_all() && principal.grant.rights.contains(right))
        {
            return Err(ServiceError::permission_denied(*right, None).into());
        }
        Ok(request.into_inner())
    }

    /// Authorizes a call about the projects of the credential. Returns them, or `None` if these are all projects.
    pub(super) fn admit_call_for_projects<R>(
        &self,
        request: Request<R>,
    ) -> Result<(R, Option<BTreeSet<ProjectId>>), Status> {
        let context = request.extensions().get::<CallContext>();
        let mut projects = None;
        if let Some(Authentication {
            principal,
            right: Some(right),
        }) = self.authenticated(context)?
        {
            if !principal.grant.rights.contains(right) {
                return Err(ServiceError::permission_denied(*right, None).into());
            }
            if let ProjectSet::Of(granted) = &principal.grant.projects {
                projects = Some(granted.clone());
            }
        }
        Ok((request.into_inner(), projects))
    }

    /// Rejects a call whose request needs a right in addition to that of its rpc.
    pub(super) fn authorize_also(
        &self,
        right: Right,
        session: &SessionKey,
    ) -> Result<(), ServiceError> {
        // Handlers get a request without its extensions, so the context of the task is used.
        if let Some(context) = CallContext::current() {
            context.needs_also(right);
        }
        self.has_right(right, session)
    }

    /// Checks a right without a record of its use.
    pub(super) fn has_right(&self, right: Right, session: &SessionKey) -> Result<(), ServiceError> {
        let context = CallContext::current();
        if let Some(authentication) = self.authenticated(context.as_ref())? {
            let scope = ResourceScope::Session(session.clone());
            access::check_right(authentication, right, &scope)?;
        }
        Ok(())
    }

    /// Returns the authentication of a call, or `None` if every caller has all rights.
    ///
    /// A call without an authenticated principal, or of an rpc without a right, is an error of the service. Answering
    /// the call could expose data to an unauthenticated caller.
    fn authenticated<'a>(
        &self,
        context: Option<&'a CallContext>,
    ) -> Result<Option<&'a Authentication>, ServiceError> {
        if !self.auth_required {
            return Ok(None);
        }
        let authentication = context.and_then(CallContext::authentication);
        let complete = authentication.filter(|authentication| authentication.right.is_some());
        complete.map(Some).ok_or_else(|| {
            ServiceError::fault(
                "authorize the call: it was not authenticated at the edge, or its rpc has no right",
            )
        })
    }

    /// Rejects a call that has timed out or exceeds its project's quotas. Its usage is counted until the last byte
    /// is sent.
    fn check_quotas(&self, context: &CallContext, project: ProjectId) -> Result<(), ServiceError> {
        // The edge has already counted the call if it could read the name.
        if context.project() == Some(&project) {
            return Ok(());
        }
        // The deadline passed while the body was received, so the caller does not wait any more.
        if context.is_past_deadline() {
            return Err(ServiceError::deadline_exceeded());
        }
        if let Some(quotas) = &self.quotas {
            let permit = quotas.admit(&project, context.quota_demand())?;
            context.set_quota_permit(permit);
        }
        context.set_project(project);
        Ok(())
    }
}
