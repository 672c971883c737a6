//! `palimpsest undo`: restores the view of an earlier revision.

use anyhow::bail;
use clap::Args;
use palimpsest_proto::context::v1::session_event::Event;
use palimpsest_proto::context::v1::{
    EventKind, ListEventsRequest, RestoreContextRequest, RestoreContextResponse, SessionEvent,
};

use super::change_report::{ChangeReport, print_returned};
use super::client::{Clients, Remote, block_on, reply_of};
use super::output::{count, print_line, words};
use super::reply_json::ReplyJson;

/// The changes that the command undoes without `--to`, and the undos of such changes.
const UNDOABLE: [EventKind; 5] = [
    EventKind::ContentSnipped,
    EventKind::ResultsCleared,
    EventKind::SpansCollapsed,
    EventKind::Compacted,
    EventKind::ContextRestored,
];

/// Restore an earlier view of a session
#[derive(Debug, Args)]
#[command(
    after_help = "Without --to, the command undoes the last compaction, collapse, clear or snip that is not undone yet. Run it \
again to undo the one before. With --to, it undoes all changes of the view after the revision. Later messages stay. \
`palimpsest watch --from 0 --once` prints the revisions. With --json, the output is the reply of the rpc \
`RestoreContext` in the form of the REST API.

Examples:
  palimpsest undo my-session --dry-run
  palimpsest undo my-session
  palimpsest undo my-session --to 57"
)]
pub(super) struct Undo {
    /// Id or full name of the session
    session: String,
    /// Revision whose view returns [default: the one before the last change]
    #[arg(long, value_name = "REVISION", value_parser = clap::value_parser!(u64).range(1..))]
    to: Option<u64>,
    /// Restore the view even if it exceeds the limit of a request
    #[arg(long)]
    force: bool,
    /// Print the effect and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Print the reply as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    remote: Remote,
}

impl Undo {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let session = self.remote.session(&self.session)?;
        let reply = block_on(self.call(&session))?;
        if self.json {
            return ReplyJson::of("RestoreContextResponse")?.print(&reply);
        }
        self.print(&session, &reply)
    }

    async fn call(&self, session: &str) -> anyhow::Result<RestoreContextResponse> {
        let mut clients = self.remote.connect().await?;
        let to_revision = match self.to {
            Some(revision) => revision,
            // A session begins with an event of its own, so a change has at least the revision 2.
            None => last_change(&mut clients, session).await? - 1,
        };
        let request = RestoreContextRequest {
            session: session.to_owned(),
            to_revision,
            force: self.force,
            dry_run: self.dry_run,
            ..RestoreContextRequest::default()
        };
        reply_of(clients.context.restore_context(request).await)
    }

    fn print(&self, session: &str, reply: &RestoreContextResponse) -> anyhow::Result<()> {
        let restored = reply.restored.clone().unwrap_or_default();
        if restored.undone.is_empty() {
            return print_line(&format!("{session}: no change of the view to undo"));
        }
        let events = count(restored.undone.len(), "change");
        let verb = if self.dry_run {
            "would be undone"
        } else {
            "undone"
        };
        print_line(&format!(
            "{session}: {events} of the view {verb}, back to revision {}",
            restored.to_revision
        ))?;
        for event in &restored.undone {
            let kind = words(event.kind().as_str_name(), "EVENT_KIND_");
            print_line(&format!("  {kind} at revision {}", event.revision))?;
        }
        print_returned(reply.recovery.as_ref())?;
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

/// Returns the revision of the last change that is not undone.
async fn last_change(clients: &mut Clients, session: &str) -> anyhow::Result<u64> {
    let mut search = UndoSearch::default();
    let mut page_token = String::new();
    loop {
        let request = ListEventsRequest {
            session: session.to_owned(),
            // The server lowers it to its own limit.
            page_size: 1_000,
            page_token,
            kinds: UNDOABLE.map(i32::from).to_vec(),
            descending: true,
            ..ListEventsRequest::default()
        };
        let page = reply_of(clients.sessions.list_events(request).await)?;
        if let Some(revision) = page.events.iter().find_map(|event| search.check(event)) {
            return Ok(revision);
        }
        page_token = page.next_page_token;
        if page_token.is_empty() {
            bail!(
                "nothing to undo: no compaction, collapse, clear or snip of {session} is in effect. To restore another \
                 view, pass --to with its revision"
            );
        }
    }
}

/// Finds the last change that is not undone. Events arrive latest first.
#[derive(Debug, Default)]
struct UndoSearch {
    /// The events after this revision are undone.
    below: Option<u64>,
}

impl UndoSearch {
    /// Returns the revision of the event if it is the last change.
    fn check(&mut self, event: &SessionEvent) -> Option<u64> {
        if self.below.is_some_and(|below| event.revision > below) {
            return None;
        }
        if let Some(Event::ContextRestored(restored)) = &event.event {
            // The undo restored this revision, so no earlier event after it is in effect. Such an event can be another
            // undo.
            self.below = Some(restored.to_revision);
            return None;
        }
        Some(event.revision)
    }
}

#[cfg(test)]
mod tests {
    use palimpsest_proto::context::v1::{ContentSnipped, ContextRestored};

    use super::*;

    #[test]
    fn an_undone_change_is_skipped_together_with_the_changes_after_it() {
        let snip = |revision| SessionEvent {
            revision,
            event: Some(Event::ContentSnipped(ContentSnipped::default())),
            ..SessionEvent::default()
        };
        let undo = |revision, to_revision| SessionEvent {
            revision,
            event: Some(Event::ContextRestored(ContextRestored {
                to_revision,
                undone: Vec::new(),
            })),
            ..SessionEvent::default()
        };
        let find = |events: &[SessionEvent]| {
            let mut search = UndoSearch::default();
            events.iter().find_map(|event| search.check(event))
        };
        assert_eq!(find(&[snip(9), snip(5)]), Some(9));
        // The undo at 10 restored revision 8, so the snip at 9 is undone.
        assert_eq!(find(&[undo(10, 8), snip(9), snip(5)]), Some(5));
        assert_eq!(
            // The undo at 12 went back to revision 4, so the undo at 10 and both snips before it do not count.
            find(&[undo(12, 4), undo(10, 8), snip(9), snip(5), snip(3)]),
            Some(3)
        );
        assert_eq!(find(&[undo(10, 4), snip(9), snip(5)]), None);
    }
}
