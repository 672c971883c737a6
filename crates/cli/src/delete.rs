//! `palimpsest sessions delete`: deletes sessions permanently.

use std::io::{IsTerminal as _, Write as _};

use anyhow::{anyhow, bail};
use clap::Args;
use palimpsest_proto::context::v1::DeleteSessionRequest;

use super::client::{Remote, block_on, reply_of};
use super::output::{number, print_line};

/// Delete sessions and all their data permanently
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  palimpsest sessions delete my-session
  palimpsest sessions delete my-session projects/support/sessions/other --subagents --yes")]
pub(super) struct Delete {
    /// Ids or full names of the sessions
    #[arg(required = true, value_name = "SESSION")]
    sessions: Vec<String>,
    /// Delete their subagent sessions too
    #[arg(long)]
    subagents: bool,
    /// Delete without confirmation
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    remote: Remote,
}

impl Delete {
    pub(super) fn run(self) -> anyhow::Result<()> {
        // All names are checked before the first deletion, so an invalid name deletes nothing.
        let names = self.sessions.iter().map(|name| self.remote.session(name));
        let names = names.collect::<anyhow::Result<Vec<_>>>()?;
        if !self.yes && !confirm(&names)? {
            bail!("nothing was deleted");
        }
        block_on(self.delete(&names))
    }

    async fn delete(&self, names: &[String]) -> anyhow::Result<()> {
        let mut clients = self.remote.connect().await?;
        for (index, name) in names.iter().enumerate() {
            let request = DeleteSessionRequest {
                session: name.clone(),
                delete_subagents: self.subagents,
                ..DeleteSessionRequest::default()
            };
            let deleted = reply_of(clients.sessions.delete_session(request).await)
                .map_err(|error| with_rest(error, &names[index + 1..]))?;
            let rest = if deleted.complete {
                "all data is removed"
            } else {
                "the server is still removing data; run the command again to wait"
            };
            let count = number(u64::from(deleted.deleted_sessions));
            // Each line is printed at once, so a later failure does not hide the deletions before it.
            print_line(&format!("{name}: {count} deleted, {rest}"))?;
        }
        Ok(())
    }
}

/// Adds the sessions that were not tried to the error of the session before them.
fn with_rest(error: anyhow::Error, rest: &[String]) -> anyhow::Error {
    if rest.is_empty() {
        return error;
    }
    anyhow!(
        "{error}. The sessions after it were not deleted: {}",
        rest.join(", ")
    )
}

fn confirm(names: &[String]) -> anyhow::Result<bool> {
    if !std::io::stdin().is_terminal() {
        bail!(
            "cannot ask for confirmation, because standard input is not a terminal: pass --yes to delete {} sessions",
            names.len()
        );
    }
    // The question is on standard error, because standard output contains only results.
    let mut err = std::io::stderr();
    write!(
        err,
        "Permanently delete:\n  {}\nyes or no? ",
        names.join("\n  ")
    )?;
    err.flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "yes" | "y"))
}
