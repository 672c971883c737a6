//! How commands reach a server, and how they say what went wrong.

mod security;

use anyhow::{Context as _, anyhow};
use clap::Args;
use palimpsest_core::ids::SessionKey;
use palimpsest_proto::context::v1::admin_service_client::AdminServiceClient;
use palimpsest_proto::context::v1::context_service_client::ContextServiceClient;
use palimpsest_proto::context::v1::session_service_client::SessionServiceClient;
use tonic::Status;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic_types::StatusExt as _;

use self::security::{Credential, Security};

/// A reply holds at most a view of `limits.max_reply_bytes`, or one message.
const MAX_REPLY_BYTES: usize = 64 * 1024 * 1024;

/// Where the server is, how to show who asks, and in which project.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Server")]
pub(super) struct Remote {
    /// The server's address; https:// for TLS
    #[arg(long, value_name = "URL", env = "PALIMPSEST_SERVER")]
    #[arg(default_value = "http://127.0.0.1:50051")]
    server: String,
    /// The project, for sessions that are named by their id alone
    #[arg(long, env = "PALIMPSEST_PROJECT", default_value = "default")]
    pub(super) project: String,
    #[command(flatten)]
    security: Security,
}

/// A connection that shows in each call who asks.
pub(super) type Connection = InterceptedService<Channel, Credential>;

/// Clients of both services.
#[derive(Debug, Clone)]
pub(super) struct Clients {
    pub(super) context: ContextServiceClient<Connection>,
    pub(super) sessions: SessionServiceClient<Connection>,
    pub(super) admin: AdminServiceClient<Connection>,
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
        let endpoint = self.security.apply(endpoint, &self.server)?;
        let connected = endpoint.connect().await;
        connected.map_err(|error| security::unreachable(&self.server, &error))
    }

    pub(super) async fn connect(&self) -> anyhow::Result<Clients> {
        let credential = self.security.credential(&self.server)?;
        let channel = self.channel().await?;
        let context = ContextServiceClient::with_interceptor(channel.clone(), credential.clone());
        let admin = AdminServiceClient::with_interceptor(channel.clone(), credential.clone());
        let sessions = SessionServiceClient::with_interceptor(channel, credential);
        Ok(Clients {
            context: context
                .max_decoding_message_size(MAX_REPLY_BYTES)
                .max_encoding_message_size(MAX_REPLY_BYTES),
            admin: admin
                .max_decoding_message_size(MAX_REPLY_BYTES)
                .max_encoding_message_size(MAX_REPLY_BYTES),
            sessions: sessions
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

/// A refusal in one sentence, with its reason and with what to do about it here.
pub(super) fn said(status: &Status) -> anyhow::Error {
    let info = status.get_details_error_info();
    let hint = security::hint(status, info.is_some());
    let reason = info.map_or_else(String::new, |info| format!(" ({})", info.reason));
    anyhow!("{}{reason}{hint}", status.message())
}

/// Runs a command that talks to a server.
pub(super) fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(work)
}
