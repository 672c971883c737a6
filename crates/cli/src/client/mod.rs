//! How commands reach a server, and how they say what went wrong.

mod address;
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

use self::address::Address;
use self::security::{Credential, Security};
use super::terminal;

/// Part of tonic's message where a reply is no gRPC.
const ANSWERED_BY_HTTP: &str = "mapped from HTTP status code";
const SESSION_NOT_FOUND: &str = "SESSION_NOT_FOUND";

/// A reply holds at most a view of `limits.max_reply_bytes`, or one message.
const MAX_REPLY_BYTES: usize = 64 * 1024 * 1024;

/// Where the server is, how to show who asks, and in which project.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Server")]
pub(super) struct Remote {
    /// The server's address: host:port, or with https:// for TLS
    #[arg(long, value_name = "URL", env = "PALIMPSEST_SERVER", value_parser = address::url)]
    #[arg(default_value = "http://127.0.0.1:50051")]
    server: Address,
    /// The project, for sessions that are named by their id alone
    #[arg(long, env = "PALIMPSEST_PROJECT", default_value = "default")]
    pub(super) project: String,
    #[command(flatten)]
    security: Security,
}

/// A connection that shows in each call who asks.
pub(super) type AuthenticatedChannel = InterceptedService<Channel, Credential>;

/// Clients of both services.
#[derive(Debug, Clone)]
pub(super) struct Clients {
    pub(super) context: ContextServiceClient<AuthenticatedChannel>,
    pub(super) sessions: SessionServiceClient<AuthenticatedChannel>,
    pub(super) admin: AdminServiceClient<AuthenticatedChannel>,
}

impl Remote {
    /// The server's URL.
    pub(super) fn server(&self) -> &str {
        self.server.url(self.security.has_tls())
    }

    /// A connection.
    pub(super) async fn channel(&self) -> anyhow::Result<Channel> {
        let server = self.server();
        let endpoint = Endpoint::from_shared(server.to_owned())
            .with_context(|| format!("{server} is not an address such as http://host:50051"))?
            .tcp_nodelay(true);
        let endpoint = self.security.apply(endpoint, server)?;
        let connected = endpoint.connect().await;
        connected.map_err(|error| security::connect_error(server, &error))
    }

    pub(super) async fn connect(&self) -> anyhow::Result<Clients> {
        let credential = self.security.credential(self.server())?;
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
pub(super) fn status_error(status: &Status) -> anyhow::Error {
    // A command line does not speak gRPC: what helps there is another step than for a client's code.
    if status.message().contains(ANSWERED_BY_HTTP) {
        return anyhow!(
            "the address of --server answers HTTP but not gRPC: it may be the admin port \
             (`admin.listen`, 50052 by default); use the address of `listen` (50051 by default)"
        );
    }
    let info = status.get_details_error_info();
    if let Some(info) = info
        .as_ref()
        .filter(|info| info.reason == SESSION_NOT_FOUND)
    {
        let name = info.metadata.get("session").map_or("", String::as_str);
        let name = terminal::line(name);
        return anyhow!(
            "there is no session {name} ({SESSION_NOT_FOUND}): `palimpsest sessions` lists those of \
             a project, which --project names"
        );
    }
    let hint = security::hint(status, info.is_some());
    let reason = info.map_or_else(String::new, |info| format!(" ({})", info.reason));
    // The server's text may hold names and content: it stays on one line.
    let text = format!("{}{reason}", status.message());
    anyhow!("{}{hint}", terminal::line(&text))
}

/// Runs a command that talks to a server.
pub(super) fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(work)
}
