//! `palimpsest top`: a live table of the sessions of a project.
//!
//! Each interval reads one page of `ListSessions` and nothing else, so the command costs a busy server next to nothing.

mod keys;
mod layout;
mod table;

use std::process;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use jiff::SignedDuration;
use palimpsest_engine::clock::{Clock as _, SystemClock};
use palimpsest_proto::context::v1::{ListSessionsRequest, ListSessionsResponse};
use tokio::time::sleep;
use tonic::Request;

use self::keys::QuitKey;
use self::table::{SortKey, TopRows};
use super::client::{Clients, Remote, block_on, reply_of};
use super::output::print;
use super::screen::{INTERRUPTED, Interrupt, Terminal};

/// The time limit of one read. A slow server is shown as an error, and the next interval reads again.
const MAX_READ: Duration = Duration::from_secs(10);

/// Show the sessions of a project in a live table
#[derive(Debug, Args)]
#[command(
    after_help = "On a terminal, the table is updated in place until `q` or Ctrl-C. Elsewhere, and with --once, the command prints \
one table and ends. The table contains the sessions with the latest changes, at most --limit. `messages` counts the \
messages with the roles user and assistant. `reported` is the sum of all tokens that providers reported.

Examples:
  palimpsest top --project support
  palimpsest top --sort reported --once"
)]
pub(super) struct Top {
    /// Time between two updates, from 500ms to 1h
    #[arg(long, default_value = "2s", value_parser = interval)]
    interval: Duration,
    /// Column that orders the rows
    #[arg(long, value_enum, default_value = "changed")]
    sort: SortKey,
    /// Maximum number of sessions, from 1 to 1000
    #[arg(long, value_name = "COUNT", default_value_t = 200)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,
    /// Print one table and end
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    remote: Remote,
}

fn interval(text: &str) -> Result<Duration, String> {
    let time: SignedDuration = text
        .parse()
        .map_err(|_| "is not a time: write a number with a unit, such as 2s".to_owned())?;
    // A negative time becomes zero, which the range below rejects.
    let time = Duration::try_from(time).unwrap_or_default();
    if (Duration::from_millis(500)..=Duration::from_hours(1)).contains(&time) {
        Ok(time)
    } else {
        Err("must be between 500ms and 1h".to_owned())
    }
}

impl Top {
    pub(super) fn run(self) -> anyhow::Result<()> {
        if block_on(self.show())? {
            return Ok(());
        }
        // The terminal is restored already.
        process::exit(INTERRUPTED);
    }

    /// Returns false if a signal ended the screen.
    async fn show(&self) -> anyhow::Result<bool> {
        let mut clients = self.remote.connect().await?;
        // The first read precedes the screen, so that its error is printed like that of any command.
        let first = self.read(&mut clients).await?;
        // The handlers precede the screen, because a signal in between would leave the terminal as it is.
        let mut interrupt = Interrupt::new()?;
        let terminal = if self.once { None } else { Terminal::open() };
        let Some(mut terminal) = terminal else {
            let rows = self.rows(&first);
            print(&rows.text())?;
            return Ok(true);
        };
        let mut keys = QuitKey::listen();
        tokio::select! {
            shown = self.update(&mut terminal, &mut clients, first) => shown.map(|()| true),
            () = keys.pressed() => Ok(true),
            () = interrupt.received() => Ok(false),
        }
    }

    /// Paints the table after each interval, until the caller drops the future.
    async fn update(
        &self,
        terminal: &mut Terminal,
        clients: &mut Clients,
        first: ListSessionsResponse,
    ) -> anyhow::Result<()> {
        let (mut page, mut problem) = (first, None);
        loop {
            let rows = self.rows(&page);
            let size = Terminal::size();
            terminal.paint(layout::draw(&rows, problem.as_deref(), self.interval, size))?;
            sleep(self.interval).await;
            match self.read(clients).await {
                Ok(next) => (page, problem) = (next, None),
                // The last table stays on the screen, and the connection is opened again by the next read.
                Err(error) => problem = Some(super::commands::error_text(&error)),
            }
        }
    }

    fn rows<'a>(&'a self, page: &'a ListSessionsResponse) -> TopRows<'a> {
        let now = SystemClock::new().now();
        TopRows::new(&self.remote.project, page, self.sort, now)
    }

    async fn read(&self, clients: &mut Clients) -> anyhow::Result<ListSessionsResponse> {
        let mut request = Request::new(ListSessionsRequest {
            parent: format!("projects/{}", self.remote.project),
            page_size: self.limit,
            ..ListSessionsRequest::default()
        });
        request.set_timeout(MAX_READ);
        let reply = reply_of(clients.sessions.list_sessions(request).await);
        reply.context("cannot list the sessions")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_has_a_unit_and_limits() {
        assert_eq!(interval("2s"), Ok(Duration::from_secs(2)));
        assert_eq!(interval("500ms"), Ok(Duration::from_millis(500)));
        for bad in ["2", "0s", "-3s", "2h", "soon"] {
            assert!(interval(bad).is_err(), "{bad}");
        }
    }
}
