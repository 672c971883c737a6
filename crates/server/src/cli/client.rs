//! How commands reach a server, and how they say what went wrong.

use anyhow::{Context as _, anyhow};
use clap::Args;
use palimpsest_core::ids::SessionKey;
use palimpsest_proto::context::v1::context_service_client::ContextServiceClient;
use palimpsest_proto::context::v1::session_service_client::SessionServiceClient;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};
use tonic_types::StatusExt as _;

/// A reply holds at most a view of `limits.max_reply_bytes`, or one message.
const MAX_REPLY_BYTES: usize = 64 * 1024 * 1024;

/// Where the server is, and in which project.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Server")]
pub(super) struct Remote {
    /// The server's address
    #[arg(long, value_name = "URL", env = "PALIMPSEST_SERVER")]
    #[arg(default_value = "http://127.0.0.1:50051")]
    server: String,
    /// The project, for sessions that are named by their id alone
    #[arg(long, env = "PALIMPSEST_PROJECT", default_value = "default")]
    pub(super) project: String,
}

/// Clients of both services.
#[derive(Debug, Clone)]
pub(super) struct Clients {
    pub(super) context: ContextServiceClient<Channel>,
    pub(super) sessions: SessionServiceClient<Channel>,
}

impl Remote {
    /// The server's address, as it was given.
    pub(super) fn server(&self) -> &str {
        &self.server
    }

    /// A connection.
    pub(super) async fn channel(&self) -> anyhow::Result<Channel> {
        let endpoint = Endpoint::from_shared(self.server.clone())
            .with_context(|| {
                format!(
                    "{} is not an address such as http://host:50051",
                    self.server
                )
            })?
            .tcp_nodelay(true);
        endpoint.connect().await.map_err(|_| {
            anyhow!(
                "no server answers at {}: start one with `palimpsest serve`, or name it with --server",
                self.server
            )
        })
    }

    pub(super) async fn connect(&self) -> anyhow::Result<Clients> {
        let channel = self.channel().await?;
        Ok(Clients {
            context: ContextServiceClient::new(channel.clone())
                .max_decoding_message_size(MAX_REPLY_BYTES)
                .max_encoding_message_size(MAX_REPLY_BYTES),
            sessions: SessionServiceClient::new(channel)
                .max_decoding_message_size(MAX_REPLY_BYTES)
                .max_encoding_message_size(MAX_REPLY_BYTES),
        })
    }

    /// The full name of a session that a person named, by its id or in full.
    pub(super) fn session(&self, name: &str) -> anyhow::Result<String> {
        let full = if name.starts_with("projects/") {
            name.to_owned()
        } else {
            format!("projects/{}/sessions/{name}", self.project)
        };
        let key =
            SessionKey::parse(&full).map_err(|error| anyhow!("the session {full} {error}"))?;
        Ok(key.to_string())
    }
}

/// A refusal in one sentence, with its reason.
pub(super) fn said(status: &Status) -> anyhow::Error {
    let reason = status
        .get_details_error_info()
        .map(|info| format!(" ({})", info.reason))
        .unwrap_or_default();
    anyhow!("{}{reason}", status.message())
}

/// Runs a command that talks to a server.
pub(super) fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(work)
}
