//! `palimpsest memory`: shows or edits session memory, the running summary of a session.

mod diff;
mod edit;
mod editor;
mod show;

use clap::{Args, Subcommand};
use palimpsest_proto::context::v1::{GetSessionMemoryRequest, MemoryState, SessionMemory};

use self::edit::Edit;
use self::show::Show;
use super::client::{Clients, reply_of};
use super::event_text::author;
use super::output::{count, number, words};

/// Show or edit the running summary of a session (summary.md)
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  palimpsest memory show my-session
  palimpsest memory edit my-session")]
pub(super) struct MemoryCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Show(Show),
    Edit(Edit),
}

impl MemoryCommand {
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self.action {
            Action::Show(show) => show.run(),
            Action::Edit(edit) => edit.run(),
        }
    }
}

async fn fetch(clients: &mut Clients, session: &str) -> anyhow::Result<SessionMemory> {
    let request = GetSessionMemoryRequest {
        session: session.to_owned(),
        ..GetSessionMemoryRequest::default()
    };
    let reply = reply_of(clients.context.get_session_memory(request).await)?;
    Ok(reply.memory.unwrap_or_default())
}

/// Returns the version and the state on one line.
fn about(memory: &SessionMemory) -> String {
    let state = match memory.state() {
        MemoryState::NotStarted => "no text yet, because the session is small".to_owned(),
        MemoryState::Disabled => "disabled by the policy of the session".to_owned(),
        state => words(state.as_str_name(), "MEMORY_STATE_"),
    };
    if memory.version == 0 {
        return state;
    }
    let behind = match memory.behind_messages {
        0 => String::new(),
        messages => format!(
            ", {} ({} tokens) behind",
            count(messages as usize, "message"),
            number(memory.behind_tokens.into())
        ),
    };
    format!(
        "version {} {}, {} tokens, {state}{behind}",
        memory.version,
        author(memory.source()),
        number(memory.tokens.into())
    )
}
