//! `palimpsest sessions`: lists or deletes the sessions of a project.

use clap::{Args, Subcommand};
use palimpsest_proto::context::v1::{ListSessionsRequest, Session, SessionFilter};

use super::client::{Remote, block_on, reply_of};
use super::delete::Delete;
use super::output::{align_right, note, number, one_line, print, print_json, table};

/// List the sessions of a project, latest first
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "Examples:
  palimpsest sessions --project support --limit 10
  palimpsest sessions --json | jq -r .name
  palimpsest sessions delete my-session --yes")]
pub(super) struct SessionsCommand {
    #[command(subcommand)]
    action: Option<Action>,
    /// Maximum number of sessions
    #[arg(long, value_name = "COUNT", default_value_t = 50)]
    limit: u32,
    /// List only sessions whose next request reaches the threshold at which a compaction is due
    #[arg(long)]
    over_threshold: bool,
    /// Print one JSON object per session
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Debug, Subcommand)]
enum Action {
    Delete(Delete),
}

impl SessionsCommand {
    pub(super) fn run(self) -> anyhow::Result<()> {
        if let Some(Action::Delete(delete)) = self.action {
            return delete.run();
        }
        let (sessions, unreadable, nodes) = block_on(self.list())?;
        self.print(&sessions)?;
        // The note is on standard error, because programs read the rows from standard output.
        if unreadable > 0 {
            note(&unreadable_note(unreadable));
        }
        if nodes > 0 {
            note(&format!(
                "Sessions are missing: nodes of the database that do not answer: {nodes}. The log of the server names them."
            ));
        }
        Ok(())
    }

    fn print(&self, sessions: &[Session]) -> anyhow::Result<()> {
        if self.json {
            for session in sessions {
                let counts = session.counts.unwrap_or_default();
                let line = serde_json::json!({
                    "name": session.name,
                    "title": session.title,
                    "first_prompt": session.first_prompt,
                    "user_and_assistant_messages": counts.messages,
                    "revision": session.revision,
                    "parent_session": session.parent_session,
                    "project_path": session.project_path,
                    "branch": session.branch,
                });
                print_json(&line.to_string())?;
            }
            return Ok(());
        }
        let mut table = table(&[
            "session",
            "user and assistant messages",
            "revision",
            "title or first prompt",
        ]);
        for session in sessions {
            let counts = session.counts.unwrap_or_default();
            let about = if session.title.is_empty() {
                &session.first_prompt
            } else {
                &session.title
            };
            table.add_row([
                session.name.clone(),
                number(counts.messages),
                number(session.revision),
                one_line(about, 60),
            ]);
        }
        align_right(&mut table, &[1, 2]);
        print(&format!("{table}\n"))
    }

    /// Returns the sessions, the number of sessions whose rows cannot be decoded, and the number of nodes of the database
    /// that do not answer.
    async fn list(&self) -> anyhow::Result<(Vec<Session>, u32, u32)> {
        let mut clients = self.remote.connect().await?;
        let mut sessions = Vec::new();
        let (mut unreadable, mut nodes) = (0, 0);
        let mut page_token = String::new();
        while sessions.len() < self.limit as usize {
            let request = ListSessionsRequest {
                parent: format!("projects/{}", self.remote.project),
                page_size: self.limit,
                page_token,
                filter: Some(SessionFilter {
                    over_threshold: self.over_threshold,
                    ..SessionFilter::default()
                }),
                ..ListSessionsRequest::default()
            };
            let page = reply_of(clients.sessions.list_sessions(request).await)?;
            sessions.extend(page.sessions);
            // The count of each page is for the whole project, so it is not added up.
            unreadable = page.unreadable_sessions;
            // Nodes can fail between two pages, so the highest number is reported.
            nodes = page.unavailable_nodes.max(nodes);
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }
        // The last page can exceed the limit, because all pages have the same size.
        sessions.truncate(self.limit as usize);
        Ok((sessions, unreadable, nodes))
    }
}

fn unreadable_note(sessions: u32) -> String {
    let sessions = match u64::from(sessions) {
        1 => "1 session is".to_owned(),
        more => format!("{} sessions are", number(more)),
    };
    format!(
        "{sessions} not listed, because the store's row cannot be decoded. Run `palimpsest verify-store` with the \
         settings of the server to find the cause. Stop the server first, unless the store is a database."
    )
}
