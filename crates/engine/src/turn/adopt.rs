//! Adoption of a compaction that the caller's own program made. Pending messages are served first. Then the
//! caller's summary replaces the messages that it covers.

use std::sync::Arc;

use palimpsest_core::command::{
    Append, AppendSource, Command, ExternalSummary, Rejection, ServeView, StartCompaction,
    SummarySource,
};
use palimpsest_core::event::Trigger;
use palimpsest_core::ids::Revision;
use palimpsest_core::message::Message;
use palimpsest_core::session::RequestStamp;
use palimpsest_core::view::TargetOverride;

use crate::sessions::{CommandOutcome, Transaction};

/// A summary by which the caller's program has replaced earlier messages.
#[derive(Debug, Clone)]
pub struct Adoption {
    /// The cause of the compaction.
    pub trigger: Trigger,
    /// The summary and the messages that it replaces.
    pub summary: Box<ExternalSummary>,
}

impl Adoption {
    /// Runs the adoption. If the view has no message that the summary can replace, the summary is appended as an
    /// ordinary message.
    pub(super) fn run(
        &self,
        transaction: &mut Transaction<'_>,
        expected_revision: Option<Revision>,
        request: Option<&RequestStamp>,
    ) -> Result<CommandOutcome, Rejection> {
        let start = |expected_revision| {
            Command::StartCompaction(StartCompaction {
                expected_revision,
                request: request.cloned(),
                ..StartCompaction::new(self.trigger, SummarySource::External(self.summary.clone()))
            })
        };
        // Pending messages have no pieces yet. They are served first so that the summary can also replace them.
        let view = TargetOverride::default();
        let outcome = transaction.run_served(&view, expected_revision, start)?;
        if !matches!(outcome, CommandOutcome::Skipped(_)) {
            return Ok(outcome);
        }
        // The skip has undone the serve. The earlier messages are served anyway, as before a compaction.
        if let Some(session) = transaction.session() {
            let serve = ServeView::for_target(session, &view);
            transaction.run(Command::ServeView(serve))?;
        }
        // A message appended in place of a compaction still is not user input: a program wrote it.
        let mut message = Message::clone(&self.summary.summary);
        message.machine_generated = true;
        transaction.run(Command::Append(Append {
            messages: vec![Arc::new(message)],
            source: AppendSource::Messages,
            // The start of the compaction has compared the expected revision, and the serve has advanced it.
            expected_revision: None,
            request: request.cloned(),
        }))
    }
}
