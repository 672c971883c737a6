//! `palimpsest mcp`: lets an agent read sessions back over the Model Context Protocol.

use anyhow::Context as _;
use clap::Args;
use palimpsest_mcp::{McpServer, Scope, channel};

use super::client::{Remote, block_on, status_error};

/// Let an agent read sessions back, as an MCP server on standard input and output
#[derive(Debug, Args)]
#[command(after_help = "The agent starts this command. Examples:
  claude mcp add palimpsest -- palimpsest mcp --session my-session
  codex mcp add palimpsest -- palimpsest mcp")]
pub(super) struct McpCommand {
    /// Id or full name of the session that all tools read [default: each call names its session]
    #[arg(long, value_name = "NAME")]
    session: Option<String>,
    /// Offer the tool Snip, which removes user turns from the view of a session
    #[arg(long)]
    allow_snip: bool,
    #[command(flatten)]
    remote: Remote,
}

impl McpCommand {
    pub(super) fn run(self) -> anyhow::Result<()> {
        block_on(self.serve())
    }

    async fn serve(self) -> anyhow::Result<()> {
        let project = self.remote.project.clone();
        let scope = match &self.session {
            Some(name) => Scope::session(project, self.remote.session(name)?),
            None => Scope::project(project),
        };
        let channel = channel(self.remote.authenticated().await?);
        let server = McpServer::new(&channel, scope, self.allow_snip);
        // A wrong key must end the command. The agent then reports the cause, instead of tools that always fail.
        server
            .verify()
            .await
            .map_err(|status| status_error(&status))?;
        server
            .serve_stdio()
            .await
            .context("the agent ended the MCP handshake: start this command from an MCP client")
    }
}
