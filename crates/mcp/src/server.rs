//! The handler of MCP requests.

use std::borrow::Cow;
use std::sync::Arc;

use palimpsest_proto::context::v1::call_tool_request::Call;
use palimpsest_proto::context::v1::context_service_client::ContextServiceClient;
use palimpsest_proto::context::v1::session_service_client::SessionServiceClient;
use palimpsest_proto::context::v1::tool_result_content::Content;
use palimpsest_proto::context::v1::{
    CallToolRequest, ListToolsRequest, ModelTool, ToolDefinition, ToolUseBlock,
};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation,
    JsonObject, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult,
    ResourceContents, ServerCapabilities, ServerConfig,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::transport::stdio_pipes;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::{Value, json};
use tonic::{Code, Status};

use crate::channel::GrpcChannel;
use crate::failure::{ToolFailure, protocol_error};
use crate::memory::{self, READ_MEMORY};
use crate::scope::Scope;
use crate::sessions::{self, LIST_SESSIONS};
use crate::tools::{take_session, tool};

/// The maximum size of a request, in bytes. Arguments are patterns, numbers and ids.
pub(crate) const MAX_REQUEST_BYTES: usize = 256 * 1024;
/// The maximum size of a reply of gRPC, in bytes.
const MAX_REPLY_BYTES: usize = 64 * 1024 * 1024;
/// The number of resources in a page.
const RESOURCES_PER_PAGE: u32 = 50;
/// The id of each tool call. The protocol returns a result to its call by other means.
const CALL_ID: &str = "mcp";

/// The clients of the contract.
#[derive(Clone)]
pub(crate) struct Clients {
    context: ContextServiceClient<GrpcChannel>,
    sessions: SessionServiceClient<GrpcChannel>,
}

impl Clients {
    fn new(channel: &GrpcChannel) -> Self {
        Self {
            context: ContextServiceClient::new(channel.clone())
                .max_decoding_message_size(MAX_REPLY_BYTES),
            sessions: SessionServiceClient::new(channel.clone())
                .max_decoding_message_size(MAX_REPLY_BYTES),
        }
    }

    /// Returns a client for one call.
    pub(crate) fn context(&self) -> ContextServiceClient<GrpcChannel> {
        self.context.clone()
    }

    /// Returns a client for one call.
    pub(crate) fn sessions(&self) -> SessionServiceClient<GrpcChannel> {
        self.sessions.clone()
    }
}

/// A client that does not begin with the handshake of MCP.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct HandshakeError(String);

/// Answers the requests of one MCP client with calls of the contract.
#[derive(Clone)]
pub struct McpServer {
    clients: Clients,
    scope: Scope,
    allows_snip: bool,
    /// The tools of the scope, if [`McpServer::verify`] has read them for this request.
    listed: Option<Arc<Vec<ToolDefinition>>>,
}

impl McpServer {
    /// Creates the handler. `allows_snip` is true if clients may remove turns from the view of a session.
    pub fn new(channel: &GrpcChannel, scope: Scope, allows_snip: bool) -> Self {
        Self {
            clients: Clients::new(channel),
            scope,
            allows_snip,
            listed: None,
        }
    }

    /// Fails unless the caller may read the project of the scope.
    pub async fn verify(&self) -> Result<(), Status> {
        self.list_scope().await.map(drop)
    }

    /// Returns a handler for one request whose caller may read the project, or the reason for a rejection.
    pub(crate) async fn verified(mut self) -> Result<Self, Status> {
        let listed = self.list_scope().await?;
        self.listed = Some(Arc::new(listed));
        Ok(self)
    }

    /// Serves the client at the other end of standard input and output, until the input ends.
    pub async fn serve_stdio(self) -> Result<(), HandshakeError> {
        let running = rmcp::serve_server(self, stdio_pipes()).await;
        let running = running.map_err(|error| HandshakeError(error.to_string()))?;
        // The only other end is a panic, which the panic hook has reported.
        let _ = running.waiting().await;
        Ok(())
    }

    async fn list_scope(&self) -> Result<Vec<ToolDefinition>, Status> {
        let listed = self.list(self.scope.listed()).await;
        // The session need not exist, so only a project can be missing. A caller without a right in it learns no more.
        listed.map_err(|status| match status.code() {
            Code::NotFound => Status::not_found(format!(
                "{} does not exist, or the credential of this client has no right in it: check the project and the key",
                self.scope.parent()
            )),
            _ => status,
        })
    }

    async fn list(&self, session: String) -> Result<Vec<ToolDefinition>, Status> {
        let request = ListToolsRequest {
            session,
            ..ListToolsRequest::default()
        };
        let reply = self.clients.context().list_tools(request).await?;
        let mut tools = reply.into_inner().tools;
        // A tool that is switched off must not be callable either, so all calls look up their tool here.
        tools.retain(|tool| self.allows_snip || tool.tool() != ModelTool::Snip);
        Ok(tools)
    }

    /// Returns the tools of a session, without those that are switched off.
    async fn definitions(&self, session: &str) -> Result<Vec<ToolDefinition>, Status> {
        // Saves a call if the session is the one that was listed to authenticate the caller.
        match &self.listed {
            Some(listed) if session == self.scope.listed() => Ok(listed.to_vec()),
            _ => self.list(session.to_owned()).await,
        }
    }

    /// Returns the name under which the policy of a session has a tool.
    async fn name_in(&self, session: &str, name: &str) -> Result<String, ToolFailure> {
        let failed = |status: Status| ToolFailure::of(&status, &self.scope);
        let of_session = self.definitions(session).await.map_err(failed)?;
        if of_session.iter().any(|tool| tool.name == name) {
            return Ok(name.to_owned());
        }
        // The client knows the names of the project's policy, and the session can have its own.
        let listed = self
            .definitions(&self.scope.listed())
            .await
            .map_err(failed)?;
        let known = listed.iter().find(|tool| tool.name == name);
        let known = known.ok_or(ToolFailure::UnknownTool)?;
        // Tools are the same if their kind is equal. A policy can change only the name.
        let renamed = of_session.iter().find(|tool| tool.tool == known.tool);
        renamed.map(|tool| tool.name.clone()).ok_or_else(|| {
            ToolFailure::reported(format!("The policy of {session} disables the tool {name}."))
        })
    }

    /// Runs a tool of the service.
    async fn run(&self, name: &str, mut arguments: JsonObject) -> Result<String, ToolFailure> {
        let session = match take_session(&mut arguments, &self.scope) {
            Ok(session) => session,
            // An unknown tool is reported first: no argument would make its call valid.
            Err(missing) => {
                self.name_in(&self.scope.listed(), name).await?;
                return Err(missing);
            }
        };
        let name = self.name_in(&session, name).await?;
        // The service parses the arguments, because the schemas are its own.
        let call = ToolUseBlock {
            tool_use_id: CALL_ID.to_owned(),
            tool_name: name,
            input_json: Value::Object(arguments).to_string().into(),
            ..ToolUseBlock::default()
        };
        let request = CallToolRequest {
            session,
            call: Some(Call::ToolUse(call)),
            ..CallToolRequest::default()
        };
        let reply = self.clients.context().call_tool(request).await;
        let reply = reply.map_err(|status| ToolFailure::of(&status, &self.scope))?;
        let result = reply.into_inner().tool_result.unwrap_or_default();
        let text = match result.content.and_then(|content| content.content) {
            Some(Content::Text(text)) => text,
            // The service answers with a text.
            _ => String::new(),
        };
        if result.is_error {
            Err(ToolFailure::Reported(text))
        } else {
            Ok(text)
        }
    }
}

impl ServerHandler for McpServer {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .build();
        let about = match self.scope.fixed() {
            Some(session) => format!("the session {session}"),
            None => format!(
                "the sessions of {}. Each call names its session",
                self.scope.parent()
            ),
        };
        ServerConfig::new(capabilities)
            .with_server_info(
                Implementation::new("palimpsest", env!("CARGO_PKG_VERSION"))
                    .with_title("Palimpsest"),
            )
            .with_instructions(format!(
                "These tools read back {about}. The transcript keeps every message and tool result, also those that \
                 left the context window. Search first, then read messages by their numbers. A shortened tool result \
                 is read by the reference that the context shows in its place."
            ))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let definitions = self.definitions(&self.scope.listed()).await;
        let definitions = definitions.map_err(|status| protocol_error(&status, &self.scope))?;
        let mut tools: Vec<_> = definitions
            .into_iter()
            .map(|definition| tool(definition, &self.scope))
            .collect();
        tools.push(memory::tool(&self.scope));
        if self.scope.fixed().is_none() {
            tools.push(sessions::tool(&self.scope));
        }
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let outcome = match &*request.name {
            READ_MEMORY => memory::call(&self.clients, arguments, &self.scope).await,
            LIST_SESSIONS if self.scope.fixed().is_none() => {
                sessions::call(&self.clients, arguments, &self.scope).await
            }
            name => self.run(name, arguments).await,
        };
        // A failed tool is a result, which the model reads and can correct. An error of the protocol goes to the
        // client.
        let result = match outcome {
            Ok(text) => CallToolResult::success(vec![ContentBlock::text(text)]),
            Err(ToolFailure::Reported(text)) => {
                CallToolResult::error(vec![ContentBlock::text(text)])
            }
            Err(ToolFailure::UnknownTool) => {
                // The name comes from the client and can be long, so the error repeats its beginning only.
                let name: Cow<'_, str> = request.name.chars().take(200).collect();
                let text = format!("there is no tool {name}: tools/list returns the tools");
                return Err(ErrorData::invalid_params(text, None));
            }
        };
        Ok(result.into())
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        // The only resource is known without a call, and other sessions must not be listed.
        if let Some(session) = self.scope.fixed() {
            return Ok(ListResourcesResult::with_all_items(vec![memory::resource(
                session,
            )]));
        }
        // The cursor of the protocol is the page token of the contract.
        let token = request.and_then(|request| request.cursor);
        let page = sessions::page(
            &self.clients,
            &self.scope,
            RESOURCES_PER_PAGE,
            token.unwrap_or_default(),
        );
        let page = page
            .await
            .map_err(|status| protocol_error(&status, &self.scope))?;
        let resources = page.sessions.iter();
        let resources = resources.map(|session| memory::resource(&session.name));
        let mut result = ListResourcesResult::with_all_items(resources.collect());
        result.next_cursor = Some(page.next_page_token).filter(|token| !token.is_empty());
        Ok(result)
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let templates = match self.scope.fixed() {
            Some(_) => Vec::new(),
            None => vec![memory::template()],
        };
        Ok(ListResourceTemplatesResult::with_all_items(templates))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let session = memory::session_of(&request.uri);
        // A fixed session is a limit of the configuration, so no URI leads to another one.
        let session = session.filter(|name| self.scope.fixed().is_none_or(|fixed| fixed == *name));
        let Some(session) = session else {
            let text = "there is no such resource: resources/list returns the resources";
            let data = json!({"uri": request.uri});
            return Err(ErrorData::resource_not_found(text, Some(data)));
        };
        let text = memory::read(&self.clients, session.to_owned()).await;
        let text = text.map_err(|status| protocol_error(&status, &self.scope))?;
        let contents = ResourceContents::text(text, request.uri).with_mime_type(memory::MEDIA_TYPE);
        Ok(ReadResourceResult::new(vec![contents]).into())
    }

    // The default logs a line at level info for each client.
    async fn on_initialized(&self, _: NotificationContext<RoleServer>) {}
}
