//! `palimpsest fork`: copies a session, up to a message.

use anyhow::{anyhow, bail};
use clap::Args;
use palimpsest_proto::context::v1::{
    ForkSessionRequest, ForkSessionResponse, GetSessionRequest, ListMessagesRequest, MessageFilter,
};
use tonic::Code;

use super::client::{Clients, Remote, block_on, reply_of, status_error};
use super::output::{count, print_line};
use super::reply_json::ReplyJson;

/// Create a session that begins as a copy of another one
#[derive(Debug, Args)]
#[command(
    after_help = "The forked session does not change. `palimpsest inspect` prints the ids of messages. With --json, the output is \
the reply of the rpc `ForkSession` in the form of the REST API.

Examples:
  palimpsest fork my-session
  palimpsest fork my-session --at 0192a4c0-0000-7000-8000-000000000021 --id before-the-bug"
)]
pub(super) struct Fork {
    /// Id or full name of the session
    session: String,
    /// Id of the last message of the copy [default: the last message of the view]
    #[arg(
        long,
        value_name = "MESSAGE",
        default_value = "",
        hide_default_value = true
    )]
    at: String,
    /// Id of the new session, in the same project [default: a UUID]
    #[arg(long, value_name = "ID", default_value = "", hide_default_value = true)]
    id: String,
    /// Title of the new session [default: the title of the session]
    #[arg(long, default_value = "", hide_default_value = true)]
    title: String,
    /// Check the session, the message and the id, and create nothing
    #[arg(long, conflicts_with = "json")]
    dry_run: bool,
    /// Print the reply as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    remote: Remote,
}

impl Fork {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let session = self.remote.session(&self.session)?;
        if self.dry_run {
            return print_line(&block_on(self.check(&session))?);
        }
        let reply = block_on(self.call(&session))?;
        if self.json {
            return ReplyJson::of("ForkSessionResponse")?.print(&reply);
        }
        let fork = reply.session.unwrap_or_default();
        let origin = fork.forked_from.unwrap_or_default();
        print_line(&fork.name)?;
        print_line(&format!(
            "a copy of {session} up to the message {}",
            origin.message_id
        ))
    }

    async fn call(&self, session: &str) -> anyhow::Result<ForkSessionResponse> {
        let mut clients = self.remote.connect().await?;
        let request = ForkSessionRequest {
            session: session.to_owned(),
            session_id: self.id.clone(),
            last_message_id: self.at.clone(),
            title: self.title.clone(),
            ..ForkSessionRequest::default()
        };
        reply_of(clients.sessions.fork_session(request).await)
    }

    /// Returns the effect of the command. The rpc has no dry run, so the command reads what the rpc would check.
    async fn check(&self, session: &str) -> anyhow::Result<String> {
        let mut clients = self.remote.connect().await?;
        let request = GetSessionRequest {
            session: session.to_owned(),
            ..GetSessionRequest::default()
        };
        let origin = reply_of(clients.sessions.get_session(request).await)?;
        let origin = origin.session.unwrap_or_default();
        let messages = if self.at.is_empty() {
            origin.counts.unwrap_or_default().messages
        } else {
            self.ordinal(&mut clients, session).await?
        };
        let project = session.split("/sessions/").next().unwrap_or_default();
        let fork = if self.id.is_empty() {
            "a session with a new UUID".to_owned()
        } else {
            let fork = self
                .remote
                .session(&format!("{project}/sessions/{}", self.id))?;
            // The rpc fails with ALREADY_EXISTS for such an id.
            if exists(&mut clients, &fork).await? {
                bail!("session {fork} exists already: choose another --id");
            }
            fork
        };
        let messages = count(usize::try_from(messages).unwrap_or(usize::MAX), "message");
        Ok(format!(
            "{fork} would be a copy of {session}, {messages} of its transcript"
        ))
    }

    /// Returns the ordinal of the last message of the copy.
    async fn ordinal(&self, clients: &mut Clients, session: &str) -> anyhow::Result<u64> {
        let request = ListMessagesRequest {
            session: session.to_owned(),
            page_size: 1,
            filter: Some(MessageFilter {
                // Both ends are the same message, so the page has this message alone.
                first_message_id: self.at.clone(),
                last_message_id: self.at.clone(),
                ..MessageFilter::default()
            }),
            omit_content: true,
            ..ListMessagesRequest::default()
        };
        let page = reply_of(clients.sessions.list_messages(request).await)?;
        let message = page.messages.first();
        message
            .map(|message| message.ordinal)
            .ok_or_else(|| anyhow!("session {session} has no message {}", self.at))
    }
}

async fn exists(clients: &mut Clients, session: &str) -> anyhow::Result<bool> {
    let request = GetSessionRequest {
        session: session.to_owned(),
        ..GetSessionRequest::default()
    };
    match clients.sessions.get_session(request).await {
        Ok(_) => Ok(true),
        Err(status) if status.code() == Code::NotFound => Ok(false),
        Err(status) => Err(status_error(&status)),
    }
}
