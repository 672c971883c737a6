//! `palimpsest sessions`: what a project holds, and the way to delete some of it.

use clap::{Args, Subcommand};
use palimpsest_proto::context::v1::{ListSessionsRequest, Session};

use super::client::{Remote, block_on, said};
use super::delete::Delete;
use super::output::{align_right, number, one_line, print, print_json, table};

/// List the sessions of a project, latest first
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Sessions {
    #[command(subcommand)]
    action: Option<Action>,
    /// How many to list
    #[arg(long, default_value_t = 50)]
    limit: u32,
    /// Print JSON lines
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Debug, Subcommand)]
enum Action {
    Delete(Delete),
}

impl Sessions {
    pub(super) fn run(self) -> anyhow::Result<()> {
        if let Some(Action::Delete(delete)) = self.action {
            return delete.run();
        }
        let sessions = block_on(self.list())?;
        if self.json {
            for session in &sessions {
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
        for session in &sessions {
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

    async fn list(&self) -> anyhow::Result<Vec<Session>> {
        let mut clients = self.remote.connect().await?;
        let mut sessions = Vec::new();
        let mut page_token = String::new();
        while sessions.len() < self.limit as usize {
            let request = ListSessionsRequest {
                parent: format!("projects/{}", self.remote.project),
                page_size: self.limit.min(1_000),
                page_token,
                ..ListSessionsRequest::default()
            };
            let page = clients
                .sessions
                .list_sessions(request)
                .await
                .map_err(|status| said(&status))?
                .into_inner();
            sessions.extend(page.sessions);
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }
        sessions.truncate(self.limit as usize);
        Ok(sessions)
    }
}
