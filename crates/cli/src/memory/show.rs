//! `palimpsest memory show`: prints session memory.

use clap::Args;

use super::{about, fetch};
use crate::client::{Remote, block_on};
use crate::output::{note, print_document};
use crate::reply_json::ReplyJson;

/// Print the running summary of a session
#[derive(Debug, Args)]
#[command(
    after_help = "The text is on standard output, and its version and state on standard error. With --json, the output is \
the message `SessionMemory` in the form of the REST API.

Examples:
  palimpsest memory show my-session > summary.md
  palimpsest memory show my-session --json | jq -r .state"
)]
pub(super) struct Show {
    /// Id or full name of the session
    session: String,
    /// Print the text, its sections and its state as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    remote: Remote,
}

impl Show {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let session = self.remote.session(&self.session)?;
        let memory = block_on(async {
            let mut clients = self.remote.connect().await?;
            fetch(&mut clients, &session).await
        })?;
        if self.json {
            return ReplyJson::of("SessionMemory")?.print(&memory);
        }
        note(&format!("{session}: {}", about(&memory)));
        print_document(&memory.text)
    }
}
