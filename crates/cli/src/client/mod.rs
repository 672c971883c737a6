//! The connection of commands to a server, and the text of its errors.

mod address;
mod security;

use anyhow::{Context as _, anyhow};
use clap::Args;
use palimpsest_core::ids::SessionKey;
use palimpsest_proto::context::v1::admin_service_client::AdminServiceClient;
use palimpsest_proto::context::v1::context_service_client::ContextServiceClient;
use palimpsest_proto::context::v1::session_service_client::SessionServiceClient;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Response, Status, Streaming};
use tonic_types::StatusExt as _;

use self::address::Address;
use self::security::{Credential, Security};
use super::escapes;

/// A part of tonic's message for an HTTP reply that is not gRPC.
const ANSWERED_BY_HTTP: &str = "mapped from HTTP status code";
const SESSION_NOT_FOUND: &str = "SESSION_NOT_FOUND";

/// The errors that advise a field of the request: the reason, the advice, and the advice for the command line.
const ADVICE_AS_FLAGS: [(&str, &str, &str); 2] = [
    (
        "SESSION_HAS_SUBAGENTS",
        "set delete_subagents",
        "pass --subagents",
    ),
    ("RESTORE_OVER_BLOCK", "set force", "pass --force"),
];

/// The maximum size of a request or reply, in bytes. A reply contains at most a view of `limits.max_reply_bytes`, or one
/// message.
const MAX_REPLY_BYTES: usize = 64 * 1024 * 1024;

/// The server, the project and the credential of a command.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Server")]
pub(super) struct Remote {
    /// Address of the server: host:port, or https://host:port for TLS
    #[arg(long, value_name = "URL", env = "PALIMPSEST_URL", value_parser = address::url)]
    #[arg(default_value = "http://127.0.0.1:50051", hide_env_values = true)]
    server: Address,
    /// Project of sessions that are named by their id
    #[arg(long, value_name = "NAME", env = "PALIMPSEST_PROJECT")]
    #[arg(default_value = "default", hide_env_values = true)]
    pub(super) project: String,
    #[command(flatten)]
    security: Security,
}

/// A connection that sends the credential with each call.
pub(super) type AuthenticatedChannel = InterceptedService<Channel, Credential>;

#[derive(Debug, Clone)]
pub(super) struct Clients {
    pub(super) context: ContextServiceClient<AuthenticatedChannel>,
    pub(super) sessions: SessionServiceClient<AuthenticatedChannel>,
    pub(super) admin: AdminServiceClient<AuthenticatedChannel>,
}

impl Remote {
    pub(super) fn server(&self) -> &str {
        self.server.url(self.security.has_tls())
    }

    /// Connects to the server.
    pub(super) async fn channel(&self) -> anyhow::Result<Channel> {
        let server = self.server();
        // Without `TCP_NODELAY`, a reply of 64 KiB took 44 ms instead of 4 ms.
        let endpoint = Endpoint::from_shared(server.to_owned())
            .with_context(|| format!("{server} is not an address: write http://host:50051"))?
            .tcp_nodelay(true);
        let endpoint = self.security.apply(endpoint, server)?;
        let connected = endpoint.connect().await;
        connected.map_err(|error| security::connect_error(server, &error))
    }

    /// Connects to the server. The connection sends the credential.
    pub(super) async fn authenticated(&self) -> anyhow::Result<AuthenticatedChannel> {
        let credential = self.security.credential(self.server())?;
        Ok(InterceptedService::new(self.channel().await?, credential))
    }

    pub(super) async fn connect(&self) -> anyhow::Result<Clients> {
        let channel = self.authenticated().await?;
        let context = ContextServiceClient::new(channel.clone());
        let admin = AdminServiceClient::new(channel.clone());
        let sessions = SessionServiceClient::new(channel);
        Ok(Clients {
            // tonic accepts replies of at most 4 MiB by default, and a view can be larger.
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

    /// Returns the full name of a session from its id or full name.
    pub(super) fn session(&self, name: &str) -> anyhow::Result<String> {
        // An id cannot contain a slash, so no id is taken for a full name.
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

/// Converts the status of a rejected call to an error with its reason and a next step for the command line.
pub(super) fn status_error(status: &Status) -> anyhow::Error {
    // The hints of the server are for client code. A user of the command line often needs another step.
    if status.message().contains(ANSWERED_BY_HTTP) {
        return anyhow!(
            "the address of --server answers HTTP but not gRPC. It may be the admin port (`admin.listen`, 50052 by \
             default): use the address of `listen` (50051 by default)"
        );
    }
    let info = status.get_details_error_info();
    if let Some(info) = info
        .as_ref()
        .filter(|info| info.reason == SESSION_NOT_FOUND)
    {
        let name = info.metadata.get("session").map_or("", String::as_str);
        let name = escapes::line(name);
        return anyhow!(
            "session {name} does not exist ({SESSION_NOT_FOUND}): `palimpsest sessions --project NAME` lists the \
             sessions of a project"
        );
    }
    let hint = security::hint(status, info.is_some());
    let mut message = status.message().to_owned();
    for (reason, advice, flag) in ADVICE_AS_FLAGS {
        if info.as_ref().is_some_and(|info| info.reason == reason) {
            message = message.replace(advice, flag);
        }
    }
    let reason = info.map_or_else(String::new, |info| format!(" ({})", info.reason));
    // The text of the server can contain names and content, so its line breaks are escaped.
    let text = format!("{message}{reason}");
    anyhow!("{}{hint}", escapes::line(&text))
}

/// Returns the reply of a call, or the error for the command line.
pub(super) fn reply_of<T>(called: Result<Response<T>, Status>) -> anyhow::Result<T> {
    let reply = called.map_err(|status| status_error(&status))?;
    Ok(reply.into_inner())
}

/// Returns the next message of a stream, or `None` at its end.
pub(super) async fn next_message<T>(stream: &mut Streaming<T>) -> anyhow::Result<Option<T>> {
    let next = stream.message().await;
    next.map_err(|status| status_error(&status))
}

/// Runs an asynchronous command on a new runtime.
pub(super) fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(work)
}

#[cfg(test)]
mod tests {
    use tonic::Code;
    use tonic_types::ErrorDetails;

    use super::*;

    #[test]
    fn errors_name_flags_instead_of_fields_of_requests() {
        for (reason, message, expected) in [
            (
                "SESSION_HAS_SUBAGENTS",
                "s has 2 subagent sessions: delete them first, or set delete_subagents",
                "s has 2 subagent sessions: delete them first, or pass --subagents (SESSION_HAS_SUBAGENTS)",
            ),
            (
                "RESTORE_OVER_BLOCK",
                "choose a later revision, or set force",
                "choose a later revision, or pass --force (RESTORE_OVER_BLOCK)",
            ),
            ("OTHER", "set force", "set force (OTHER)"),
        ] {
            let details = ErrorDetails::with_error_info(reason, "palimpsest", []);
            let status = Status::with_error_details(Code::FailedPrecondition, message, details);
            assert_eq!(status_error(&status).to_string(), expected);
        }
    }
}
