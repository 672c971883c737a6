//! `ContextService`: the rpcs that an agent calls in every turn.

use std::pin::Pin;

use futures::Stream;
use palimpsest_proto::context::v1;
use palimpsest_proto::context::v1::context_service_server::ContextService;
use tonic::{Request, Response, Status, async_trait};

use super::rpcs::rpcs;
use super::{
    Service, append, commit_summary, compact, memory, persist, prepare, reply, restore, results,
    rewind, snip, stream, sync, tools, working_state,
};

/// A stream of replies.
pub(super) type ReplyStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// The handlers of `ContextService`.
#[derive(Debug, Clone)]
pub struct ContextHandlers(pub Service);

rpcs! { impl ContextService for ContextHandlers {
    change append_messages(AppendMessagesRequest) -> AppendMessagesResponse = append::append;
    change prepare_context(PrepareContextRequest) -> PrepareContextResponse = prepare::prepare;
    change sync_context(SyncContextRequest) -> SyncContextResponse = sync::sync;
    change rewind_session(RewindSessionRequest) -> RewindSessionResponse = rewind::rewind;
    change compact(CompactRequest) -> CompactResponse = compact::compact;
    change commit_summary(CommitSummaryRequest) -> CommitSummaryResponse = commit_summary::commit;
    change snip(SnipRequest) -> SnipResponse = snip::snip;
    change persist_tool_result(PersistToolResultRequest) -> PersistToolResultResponse = persist::persist;
    change update_session_memory(UpdateSessionMemoryRequest) -> UpdateSessionMemoryResponse = memory::update;
    change update_working_state(UpdateWorkingStateRequest) -> UpdateWorkingStateResponse = working_state::update;
    change restore_context(RestoreContextRequest) -> RestoreContextResponse = restore::restore;
    change call_tool(CallToolRequest) -> CallToolResponse = tools::call;
    read get_session_memory(GetSessionMemoryRequest) -> GetSessionMemoryResponse = memory::get;
    read list_tools(ListToolsRequest) -> ListToolsResponse = tools::list;
    stream stream_context(StreamContextRequest) -> StreamContextResponse as StreamContextStream = stream::stream;
    stream read_tool_result(ReadToolResultRequest) -> ReadToolResultResponse as ReadToolResultStream = results::read;
}}
