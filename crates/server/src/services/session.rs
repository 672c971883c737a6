//! `SessionService`: rpcs for sessions, transcripts and events.

use palimpsest_proto::context::v1;
use palimpsest_proto::context::v1::session_service_server::SessionService;
use tonic::{Request, Response, Status, async_trait};

use super::context::ReplyStream;
use super::rpcs::rpcs;
use super::{Service, delete, events, export, list, manage, messages, reply, search, view};

/// The handlers of `SessionService`.
#[derive(Debug, Clone)]
pub struct SessionHandlers(pub Service);

rpcs! { impl SessionService for SessionHandlers {
    change create_session(CreateSessionRequest) -> CreateSessionResponse = manage::create;
    change fork_session(ForkSessionRequest) -> ForkSessionResponse = manage::fork;
    change update_session(UpdateSessionRequest) -> UpdateSessionResponse = manage::update;
    change delete_session(DeleteSessionRequest) -> DeleteSessionResponse = delete::delete;
    read get_session(GetSessionRequest) -> GetSessionResponse = manage::get;
    read list_sessions(ListSessionsRequest) -> ListSessionsResponse = list::list;
    read get_view(GetViewRequest) -> GetViewResponse = view::get;
    read list_messages(ListMessagesRequest) -> ListMessagesResponse = messages::list;
    read search_messages(SearchMessagesRequest) -> SearchMessagesResponse = search::search;
    read list_events(ListEventsRequest) -> ListEventsResponse = events::list;
    stream watch_session(WatchSessionRequest) -> WatchSessionResponse as WatchSessionStream = events::watch;
    stream export_transcript(ExportTranscriptRequest) -> ExportTranscriptResponse as ExportTranscriptStream = export::export;
}}
