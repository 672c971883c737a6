//! `ContextService`: the rpcs that an agent calls in every turn.

use std::pin::Pin;

use futures::Stream;
use palimpsest_engine::call::Deadline;
use palimpsest_proto::context::v1::context_service_server::ContextService;
use palimpsest_proto::context::v1::{
    AppendMessagesRequest, AppendMessagesResponse, CallToolRequest, CallToolResponse,
    CommitSummaryRequest, CommitSummaryResponse, CompactRequest, CompactResponse,
    GetSessionMemoryRequest, GetSessionMemoryResponse, ListToolsRequest, ListToolsResponse,
    PersistToolResultRequest, PersistToolResultResponse, PrepareContextRequest,
    PrepareContextResponse, ReadToolResultRequest, ReadToolResultResponse, RestoreContextRequest,
    RestoreContextResponse, RewindSessionRequest, RewindSessionResponse, SnipRequest, SnipResponse,
    StreamContextRequest, StreamContextResponse, UpdateWorkingStateRequest,
    UpdateWorkingStateResponse,
};
use tonic::{Request, Response, Status, async_trait};

use crate::grpc::CallContext;

use super::{
    Service, append, commit_summary, compact, memory, persist, prepare, reply, restore, results,
    rewind, snip, stream, tools, working,
};

/// A stream of replies.
pub(super) type ReplyStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// The handlers of `ContextService`.
#[derive(Debug, Clone)]
pub struct ContextHandlers(pub Service);

#[async_trait]
impl ContextService for ContextHandlers {
    async fn append_messages(
        &self,
        request: Request<AppendMessagesRequest>,
    ) -> Result<Response<AppendMessagesResponse>, Status> {
        let ticket = request.extensions().get::<CallContext>().cloned();
        let (service, request) = (self.0.clone(), self.0.enter(request)?);
        // A change continues if the caller disconnects, so that it is never interrupted halfway.
        let change = async move { append::append(&service, request, ticket.as_ref()).await };
        reply(self.0.mutations.uncancelled(change).await)
    }

    async fn prepare_context(
        &self,
        request: Request<PrepareContextRequest>,
    ) -> Result<Response<PrepareContextResponse>, Status> {
        let deadline = request.extensions().get::<Deadline>().copied();
        let (service, request) = (self.0.clone(), self.0.enter(request)?);
        let change =
            Box::pin(async move { Box::pin(prepare::prepare(&service, request, deadline)).await });
        reply(self.0.mutations.uncancelled(change).await)
    }

    type StreamContextStream = ReplyStream<StreamContextResponse>;

    async fn stream_context(
        &self,
        request: Request<StreamContextRequest>,
    ) -> Result<Response<Self::StreamContextStream>, Status> {
        // A read has no effect that must be completed, so it ends with the call.
        reply(stream::stream(&self.0, self.0.enter(request)?).await)
    }

    async fn rewind_session(
        &self,
        request: Request<RewindSessionRequest>,
    ) -> Result<Response<RewindSessionResponse>, Status> {
        let (service, request) = (self.0.clone(), self.0.enter(request)?);
        let change = async move { rewind::rewind(&service, request).await };
        reply(self.0.mutations.uncancelled(change).await)
    }

    async fn compact(
        &self,
        request: Request<CompactRequest>,
    ) -> Result<Response<CompactResponse>, Status> {
        let (service, request) = (self.0.clone(), self.0.enter(request)?);
        let change = Box::pin(async move { compact::compact(&service, request).await });
        reply(self.0.mutations.uncancelled(change).await)
    }

    async fn commit_summary(
        &self,
        request: Request<CommitSummaryRequest>,
    ) -> Result<Response<CommitSummaryResponse>, Status> {
        let (service, request) = (self.0.clone(), self.0.enter(request)?);
        let change = Box::pin(async move { commit_summary::commit(&service, request).await });
        reply(self.0.mutations.uncancelled(change).await)
    }

    async fn snip(&self, request: Request<SnipRequest>) -> Result<Response<SnipResponse>, Status> {
        let (service, request) = (self.0.clone(), self.0.enter(request)?);
        let change = Box::pin(async move { snip::snip(&service, request).await });
        reply(self.0.mutations.uncancelled(change).await)
    }

    async fn persist_tool_result(
        &self,
        request: Request<PersistToolResultRequest>,
    ) -> Result<Response<PersistToolResultResponse>, Status> {
        let (service, request) = (self.0.clone(), self.0.enter(request)?);
        let change = Box::pin(async move { persist::persist(&service, request).await });
        reply(self.0.mutations.uncancelled(change).await)
    }

    type ReadToolResultStream = ReplyStream<ReadToolResultResponse>;

    async fn read_tool_result(
        &self,
        request: Request<ReadToolResultRequest>,
    ) -> Result<Response<Self::ReadToolResultStream>, Status> {
        reply(results::read(&self.0, self.0.enter(request)?).await)
    }

    async fn get_session_memory(
        &self,
        request: Request<GetSessionMemoryRequest>,
    ) -> Result<Response<GetSessionMemoryResponse>, Status> {
        let deadline = request.extensions().get::<Deadline>().copied();
        let answer = memory::get(&self.0, self.0.enter(request)?, deadline);
        reply(Box::pin(answer).await)
    }

    async fn update_working_state(
        &self,
        request: Request<UpdateWorkingStateRequest>,
    ) -> Result<Response<UpdateWorkingStateResponse>, Status> {
        let (service, request) = (self.0.clone(), self.0.enter(request)?);
        let change = Box::pin(async move { working::update(&service, request).await });
        reply(self.0.mutations.uncancelled(change).await)
    }

    async fn restore_context(
        &self,
        request: Request<RestoreContextRequest>,
    ) -> Result<Response<RestoreContextResponse>, Status> {
        let (service, request) = (self.0.clone(), self.0.enter(request)?);
        let change = Box::pin(async move { restore::restore(&service, request).await });
        reply(self.0.mutations.uncancelled(change).await)
    }

    async fn list_tools(
        &self,
        request: Request<ListToolsRequest>,
    ) -> Result<Response<ListToolsResponse>, Status> {
        reply(tools::list(&self.0, self.0.enter(request)?).await)
    }

    async fn call_tool(
        &self,
        request: Request<CallToolRequest>,
    ) -> Result<Response<CallToolResponse>, Status> {
        let ticket = request.extensions().get::<CallContext>().cloned();
        let (service, request) = (self.0.clone(), self.0.enter(request)?);
        let change = Box::pin(async move { tools::call(&service, request, ticket.as_ref()).await });
        reply(self.0.mutations.uncancelled(change).await)
    }
}
