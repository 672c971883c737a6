//! `SessionService`: rpcs for sessions, transcripts and events.

use palimpsest_proto::context::v1::session_service_server::SessionService;
use palimpsest_proto::context::v1::{
    CreateSessionRequest, CreateSessionResponse, DeleteSessionRequest, DeleteSessionResponse,
    ExportTranscriptRequest, ExportTranscriptResponse, GetSessionRequest, GetSessionResponse,
    ListEventsRequest, ListEventsResponse, ListMessagesRequest, ListMessagesResponse,
    ListSessionsRequest, ListSessionsResponse, SearchMessagesRequest, SearchMessagesResponse,
    UpdateSessionRequest, UpdateSessionResponse, WatchSessionRequest, WatchSessionResponse,
};
use tonic::{Request, Response, Status, async_trait};

use super::context::ReplyStream;
use super::{Service, delete, events, export, list, manage, messages, reply, search};
use crate::grpc::CallContext;

/// The handlers of `SessionService`.
#[derive(Debug, Clone)]
pub struct SessionHandlers(pub Service);

#[async_trait]
impl SessionService for SessionHandlers {
    async fn create_session(
        &self,
        request: Request<CreateSessionRequest>,
    ) -> Result<Response<CreateSessionResponse>, Status> {
        let (service, request) = (self.0.clone(), self.0.enter(request)?);
        // The future contains a policy, which is large, so it is stored on the heap.
        let change = Box::pin(async move { Box::pin(manage::create(&service, request)).await });
        reply(self.0.mutations.uncancelled(change).await)
    }

    async fn get_session(
        &self,
        request: Request<GetSessionRequest>,
    ) -> Result<Response<GetSessionResponse>, Status> {
        reply(manage::get(&self.0, self.0.enter(request)?).await)
    }

    async fn update_session(
        &self,
        request: Request<UpdateSessionRequest>,
    ) -> Result<Response<UpdateSessionResponse>, Status> {
        let ticket = request.extensions().get::<CallContext>().cloned();
        let (service, request) = (self.0.clone(), self.0.enter(request)?);
        let change =
            Box::pin(
                async move { Box::pin(manage::update(&service, request, ticket.as_ref())).await },
            );
        reply(self.0.mutations.uncancelled(change).await)
    }

    async fn delete_session(
        &self,
        request: Request<DeleteSessionRequest>,
    ) -> Result<Response<DeleteSessionResponse>, Status> {
        let (service, request) = (self.0.clone(), self.0.enter(request)?);
        let change = async move { delete::delete(&service, request).await };
        reply(self.0.mutations.uncancelled(change).await)
    }

    async fn list_sessions(
        &self,
        request: Request<ListSessionsRequest>,
    ) -> Result<Response<ListSessionsResponse>, Status> {
        reply(list::list(&self.0, self.0.enter(request)?).await)
    }

    async fn list_messages(
        &self,
        request: Request<ListMessagesRequest>,
    ) -> Result<Response<ListMessagesResponse>, Status> {
        reply(messages::list(&self.0, self.0.enter(request)?).await)
    }

    async fn search_messages(
        &self,
        request: Request<SearchMessagesRequest>,
    ) -> Result<Response<SearchMessagesResponse>, Status> {
        reply(search::search(&self.0, self.0.enter(request)?).await)
    }

    async fn list_events(
        &self,
        request: Request<ListEventsRequest>,
    ) -> Result<Response<ListEventsResponse>, Status> {
        reply(events::list(&self.0, self.0.enter(request)?).await)
    }

    type WatchSessionStream = ReplyStream<WatchSessionResponse>;

    async fn watch_session(
        &self,
        request: Request<WatchSessionRequest>,
    ) -> Result<Response<Self::WatchSessionStream>, Status> {
        reply(events::watch(&self.0, self.0.enter(request)?).await)
    }

    type ExportTranscriptStream = ReplyStream<ExportTranscriptResponse>;

    async fn export_transcript(
        &self,
        request: Request<ExportTranscriptRequest>,
    ) -> Result<Response<Self::ExportTranscriptStream>, Status> {
        reply(export::export(&self.0, self.0.enter(request)?).await)
    }
}
