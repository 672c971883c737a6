//! The official MCP client, over both transports.

use std::process::Stdio;

use palimpsest_tests::binary;
use rmcp::model::{
    CallToolRequestParams, CallToolResult, ContentBlock, JsonObject, ProtocolVersion,
    ReadResourceRequestParams, ResourceContents,
};
use rmcp::service::{RunningService, ServiceError};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientLifecycleMode, RoleClient, serve_client, serve_client_with_lifecycle};
use serde_json::Value;
use tokio::process::{Child, Command};

/// A connected client. `palimpsest mcp` ends with it.
pub(crate) struct Client {
    pub(crate) mcp: RunningService<RoleClient, ()>,
    _child: Option<Child>,
}

/// Returns `palimpsest mcp` as a command with an empty environment.
pub(crate) fn command(server: &str, args: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command
        .arg("mcp")
        .args(["--server", server])
        .args(args)
        .env_clear()
        .kill_on_drop(true)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    command
}

/// Connects over standard input and output.
pub(crate) async fn stdio(server: &str, args: &[&str]) -> Client {
    stdio_of(command(server, args)).await
}

/// Connects to a command.
pub(crate) async fn stdio_of(mut command: Command) -> Client {
    let mut child = command.spawn().unwrap();
    let pipes = (child.stdout.take().unwrap(), child.stdin.take().unwrap());
    Client {
        mcp: serve_client((), pipes).await.unwrap(),
        _child: Some(child),
    }
}

/// Returns the transport to a path of a server.
pub(crate) fn transport(
    server: &str,
    path: &str,
    key: Option<&str>,
) -> StreamableHttpClientTransport<reqwest::Client> {
    let url = format!("http://{server}{path}");
    let mut config = StreamableHttpClientTransportConfig::with_uri(url);
    if let Some(key) = key {
        config = config.auth_header(key);
    }
    StreamableHttpClientTransport::with_client(reqwest::Client::new(), config)
}

/// Connects over HTTP, with the handshake of earlier revisions.
pub(crate) async fn http(server: &str, path: &str, key: Option<&str>) -> Client {
    Client {
        mcp: serve_client((), transport(server, path, key))
            .await
            .unwrap(),
        _child: None,
    }
}

/// Connects over HTTP with the revision that has no handshake.
pub(crate) async fn http_without_handshake(server: &str, path: &str) -> Client {
    let lifecycle = ClientLifecycleMode::Discover {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
    };
    let transport = transport(server, path, None);
    let mcp = serve_client_with_lifecycle((), transport, lifecycle).await;
    Client {
        mcp: mcp.unwrap(),
        _child: None,
    }
}

impl Client {
    /// Calls a tool.
    pub(crate) async fn call(
        &self,
        tool: &str,
        arguments: Value,
    ) -> Result<CallToolResult, ServiceError> {
        let arguments: JsonObject = serde_json::from_value(arguments).unwrap();
        let request = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        self.mcp.call_tool(request).await
    }

    /// Calls a tool that succeeds, and returns its text.
    pub(crate) async fn reads(&self, tool: &str, arguments: Value) -> String {
        let result = self.call(tool, arguments).await.unwrap();
        assert_ne!(result.is_error, Some(true), "{result:?}");
        text(&result)
    }

    /// Calls a tool that fails, and returns the text for the model.
    pub(crate) async fn fails(&self, tool: &str, arguments: Value) -> String {
        let result = self.call(tool, arguments).await.unwrap();
        assert_eq!(result.is_error, Some(true), "{result:?}");
        text(&result)
    }

    /// Reads a resource with one text.
    pub(crate) async fn resource(&self, uri: &str) -> Result<String, ServiceError> {
        let result = self.mcp.read_resource(ReadResourceRequestParams::new(uri));
        let result = result.await?;
        match &result.contents[..] {
            [
                ResourceContents::TextResourceContents {
                    text, mime_type, ..
                },
            ] => {
                assert_eq!(mime_type.as_deref(), Some("text/markdown"));
                Ok(text.clone())
            }
            other => panic!("{other:?}"),
        }
    }

    /// Returns the names of the tools.
    pub(crate) async fn tools(&self) -> Vec<String> {
        let tools = self.mcp.list_all_tools().await.unwrap();
        tools
            .into_iter()
            .map(|tool| tool.name.into_owned())
            .collect()
    }
}

/// Returns the only text of a result.
pub(crate) fn text(result: &CallToolResult) -> String {
    match &result.content[..] {
        [ContentBlock::Text(text)] => text.text.clone(),
        other => panic!("{other:?}"),
    }
}
