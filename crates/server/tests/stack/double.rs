//! Handlers whose behavior depends on the session name, and a store that can fail.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use palimpsest_proto::context::v1;
use palimpsest_proto::context::v1::admin_service_server::AdminService;
use palimpsest_proto::context::v1::context_service_server::ContextService;
use palimpsest_proto::context::v1::session_service_server::SessionService;
use palimpsest_server::errors::{BoxError, ServiceError};
use palimpsest_server::grpc::Mutations;
use palimpsest_server::serve::Backend;
use tokio::sync::Semaphore;
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Request, Response, Status};

/// The state that tests and handlers share.
#[derive(Debug)]
pub(crate) struct State {
    /// One permit for each slow call that has started.
    pub(crate) begun: Semaphore,
    /// One permit for each slow call that may finish.
    pub(crate) released: Semaphore,
    /// True after a change has finished.
    pub(crate) changed: AtomicBool,
    /// True while the store works.
    pub(crate) healthy: AtomicBool,
    /// True after the store was closed.
    pub(crate) closed: AtomicBool,
    /// True if a change had finished when the store was closed.
    pub(crate) closed_after_change: AtomicBool,
}

impl State {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            begun: Semaphore::new(0),
            released: Semaphore::new(0),
            changed: AtomicBool::new(false),
            healthy: AtomicBool::new(true),
            closed: AtomicBool::new(false),
            closed_after_change: AtomicBool::new(false),
        })
    }

    /// Waits until a slow call has started.
    pub(crate) async fn has_begun(&self) {
        // `forget` uses the permit up: each permit stands for one call.
        self.begun.acquire().await.unwrap().forget();
    }

    async fn slow(&self) {
        self.begun.add_permits(1);
        self.released.acquire().await.unwrap().forget();
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Double {
    pub(crate) state: Arc<State>,
    pub(crate) mutations: Mutations,
}

type Endless<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Defines methods that no test calls, in the form that `async_trait` generates.
macro_rules! refused {
    ($($method:ident($request:ident) -> $response:ty;)*) => {$(
        fn $method<'life0, 'async_trait>(
            &'life0 self,
            _: Request<v1::$request>,
        ) -> Pin<Box<dyn Future<Output = Result<Response<$response>, Status>> + Send + 'async_trait>>
        where
            'life0: 'async_trait,
            Self: 'async_trait,
        {
            let method = stringify!($method).to_owned();
            Box::pin(async move { Err(ServiceError::not_implemented(&method).into()) })
        }
    )*};
}

#[async_trait]
impl ContextService for Double {
    type StreamContextStream = Endless<v1::StreamContextResponse>;
    type ReadToolResultStream = Endless<v1::ReadToolResultResponse>;

    async fn append_messages(
        &self,
        request: Request<v1::AppendMessagesRequest>,
    ) -> Result<Response<v1::AppendMessagesResponse>, Status> {
        let state = Arc::clone(&self.state);
        match request.get_ref().session.as_str() {
            "panic" => panic!("on purpose"),
            // The detail of an internal error is for the log only, so the test searches the reply for it.
            "internal" => return Err(ServiceError::internal("do it", "SECRET").into()),
            "slow" => state.slow().await,
            "change" => {
                let change = async move {
                    state.slow().await;
                    state.changed.store(true, Ordering::SeqCst);
                };
                self.mutations.uncancelled(change).await;
            }
            _ => {}
        }
        Ok(Response::new(v1::AppendMessagesResponse::default()))
    }

    async fn stream_context(
        &self,
        _: Request<v1::StreamContextRequest>,
    ) -> Result<Response<Self::StreamContextStream>, Status> {
        // The pause separates the messages, which would otherwise be sent together.
        let stream = tokio_stream::iter(0..2).then(|index| async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            assert!(index < 1, "on purpose");
            Ok(v1::StreamContextResponse::default())
        });
        Ok(Response::new(Box::pin(stream)))
    }

    refused! {
        prepare_context(PrepareContextRequest) -> v1::PrepareContextResponse;
        sync_context(SyncContextRequest) -> v1::SyncContextResponse;
        compact(CompactRequest) -> v1::CompactResponse;
        commit_summary(CommitSummaryRequest) -> v1::CommitSummaryResponse;
        snip(SnipRequest) -> v1::SnipResponse;
        persist_tool_result(PersistToolResultRequest) -> v1::PersistToolResultResponse;
        read_tool_result(ReadToolResultRequest) -> Self::ReadToolResultStream;
        get_session_memory(GetSessionMemoryRequest) -> v1::GetSessionMemoryResponse;
        update_session_memory(UpdateSessionMemoryRequest) -> v1::UpdateSessionMemoryResponse;
        update_working_state(UpdateWorkingStateRequest) -> v1::UpdateWorkingStateResponse;
        restore_context(RestoreContextRequest) -> v1::RestoreContextResponse;
        rewind_session(RewindSessionRequest) -> v1::RewindSessionResponse;
        list_tools(ListToolsRequest) -> v1::ListToolsResponse;
        call_tool(CallToolRequest) -> v1::CallToolResponse;
    }
}

#[async_trait]
impl SessionService for Double {
    type WatchSessionStream = Endless<v1::WatchSessionResponse>;
    type ExportTranscriptStream = Endless<v1::ExportTranscriptResponse>;

    async fn watch_session(
        &self,
        _: Request<v1::WatchSessionRequest>,
    ) -> Result<Response<Self::WatchSessionStream>, Status> {
        let first = tokio_stream::once(Ok(v1::WatchSessionResponse::default()));
        Ok(Response::new(Box::pin(
            first.chain(tokio_stream::pending()),
        )))
    }

    refused! {
        create_session(CreateSessionRequest) -> v1::CreateSessionResponse;
        fork_session(ForkSessionRequest) -> v1::ForkSessionResponse;
        get_session(GetSessionRequest) -> v1::GetSessionResponse;
        update_session(UpdateSessionRequest) -> v1::UpdateSessionResponse;
        delete_session(DeleteSessionRequest) -> v1::DeleteSessionResponse;
        list_sessions(ListSessionsRequest) -> v1::ListSessionsResponse;
        get_view(GetViewRequest) -> v1::GetViewResponse;
        list_messages(ListMessagesRequest) -> v1::ListMessagesResponse;
        search_messages(SearchMessagesRequest) -> v1::SearchMessagesResponse;
        list_events(ListEventsRequest) -> v1::ListEventsResponse;
        export_transcript(ExportTranscriptRequest) -> Self::ExportTranscriptStream;
    }
}

#[async_trait]
impl Backend for State {
    async fn canary(&self) -> Result<(), BoxError> {
        let healthy = self.healthy.load(Ordering::SeqCst);
        healthy
            .then_some(())
            .ok_or_else(|| "the disk is full".into())
    }

    async fn close(&self) -> Result<(), BoxError> {
        let changed = self.changed.load(Ordering::SeqCst);
        self.closed_after_change.store(changed, Ordering::SeqCst);
        self.closed.store(true, Ordering::SeqCst);
        Ok(())
    }
}

#[async_trait]
impl AdminService for Double {
    type ReadStoredSessionStream = Endless<v1::ReadStoredSessionResponse>;
    type ReadStoredFileStream = Endless<v1::ReadStoredFileResponse>;

    refused! {
        list_projects(ListProjectsRequest) -> v1::ListProjectsResponse;
        list_stored_sessions(ListStoredSessionsRequest) -> v1::ListStoredSessionsResponse;
        read_stored_session(ReadStoredSessionRequest) -> Self::ReadStoredSessionStream;
        read_stored_file(ReadStoredFileRequest) -> Self::ReadStoredFileStream;
    }
}
