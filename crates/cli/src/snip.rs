//! `palimpsest snip`: removes user turns or messages from the view of a session.

use clap::Args;
use palimpsest_proto::context::v1::{SnipRequest, SnipResponse};

use super::change_report::{ChangeReport, print_removed};
use super::client::{Remote, block_on, reply_of};
use super::output::{count, print_line};
use super::reply_json::ReplyJson;

/// Remove user turns or messages from a session's view
#[derive(Debug, Args)]
#[command(
    after_help = "Either all targets are removed, or none. The transcript keeps them, and `palimpsest undo` restores the view. \
`palimpsest inspect` prints the ids of turns and messages. With --json, the output is the reply of the rpc `Snip` in \
the form of the REST API.

Examples:
  palimpsest snip my-session --turns a1b2c3,d4e5f6 --dry-run
  palimpsest snip my-session --messages 0192a4c0-0000-7000-8000-000000000021 --reason secret"
)]
pub(super) struct Snip {
    /// Id or full name of the session
    session: String,
    /// Ids of user turns, which are removed with all their messages
    #[arg(
        long,
        value_name = "ID",
        value_delimiter = ',',
        required_unless_present = "messages"
    )]
    turns: Vec<String>,
    /// Ids of messages; a tool call is removed with its results
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    messages: Vec<String>,
    /// Reason, for the record
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    reason: String,
    /// Print the effect and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Print the reply as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    remote: Remote,
}

impl Snip {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let session = self.remote.session(&self.session)?;
        let reply = block_on(self.call(&session))?;
        if self.json {
            return ReplyJson::of("SnipResponse")?.print(&reply);
        }
        self.print(&session, &reply)
    }

    async fn call(&self, session: &str) -> anyhow::Result<SnipResponse> {
        let mut clients = self.remote.connect().await?;
        let request = SnipRequest {
            session: session.to_owned(),
            turn_ids: self.turns.clone(),
            message_ids: self.messages.clone(),
            reason: self.reason.clone(),
            dry_run: self.dry_run,
            ..SnipRequest::default()
        };
        reply_of(clients.context.snip(request).await)
    }

    fn print(&self, session: &str, reply: &SnipResponse) -> anyhow::Result<()> {
        let snipped = reply.snipped.clone().unwrap_or_default();
        let turns = count(snipped.turn_ids.len(), "turn");
        let messages = count(snipped.message_ids.len(), "message");
        let verb = if self.dry_run { "would leave" } else { "left" };
        print_line(&format!("{session}: {turns}, {messages} {verb} the view"))?;
        print_removed(reply.recovery.as_ref())?;
        ChangeReport {
            effect: reply.effect.as_ref(),
            cache_ledger: reply.cache_ledger.as_ref(),
            warnings: &reply.warnings,
            revision: reply.revision,
            epoch: reply.epoch,
        }
        .print()
    }
}
