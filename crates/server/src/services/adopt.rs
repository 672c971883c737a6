//! Adoption of a compaction that the caller's own program made. Pending messages are served first. Then the
//! caller's summary replaces the messages that it covers.

use std::sync::Arc;

use palimpsest_core::command::{
    Append, Command, ExternalSummary, Rejection, ServeView, StartCompaction, SummarySource,
};
use palimpsest_core::event::Trigger;
use palimpsest_core::ids::{MessageId, Revision};
use palimpsest_core::message::Message;
use palimpsest_core::session::RequestStamp;
use palimpsest_core::view::TargetOverride;
use palimpsest_engine::sessions::{CommandOutcome, Transaction};
use palimpsest_proto::context::v1;

use super::Service;
use crate::convert::{self, FieldError};
use crate::errors::ServiceError;

/// The validated `adopted_compaction` of an append request.
#[derive(Debug, Clone)]
pub(super) struct AdoptOptions {
    first: Option<MessageId>,
    last: Option<MessageId>,
    kept: Vec<MessageId>,
    trigger: Trigger,
    before_tokens: Option<u64>,
    mark: MessageId,
}

impl AdoptOptions {
    pub(super) fn read(
        service: &Service,
        said: &v1::AdoptedCompaction,
        messages: usize,
    ) -> Result<Self, ServiceError> {
        let of = |field: &str| format!("adopted_compaction.{field}");
        let optional = |id: &str, field: &str| -> Result<_, FieldError> {
            let named = (!id.is_empty()).then(|| convert::message_id(id, &of(field)));
            named.transpose()
        };
        // The summary is the only message of the call: the messages that it replaces were appended earlier.
        if messages != 1 {
            let what = "must hold one message, the summary, where adopted_compaction is set";
            return Err(FieldError::invalid("messages", what).into());
        }
        let limit = service.limits().max_messages;
        let count = said.kept_message_ids.len();
        if count > limit {
            let what = format!("must name at most {limit} messages, names {count}");
            return Err(FieldError::invalid(of("kept_message_ids"), what).into());
        }
        let kept = said.kept_message_ids.iter().enumerate();
        let kept =
            kept.map(|(at, id)| convert::message_id(id, &of(&format!("kept_message_ids[{at}]"))));
        Ok(Self {
            first: optional(&said.first_message_id, "first_message_id")?,
            last: optional(&said.last_message_id, "last_message_id")?,
            kept: kept.collect::<Result<_, _>>()?,
            trigger: convert::trigger_from_proto(said.trigger, &of("trigger"))?,
            before_tokens: (said.before_tokens > 0).then(|| said.before_tokens.into()),
            mark: service.next_id()(),
        })
    }

    /// Runs the adoption. If the view has no message that the summary can replace, the summary is appended as an
    /// ordinary message.
    pub(super) fn run(
        &self,
        transaction: &mut Transaction<'_>,
        summary: &Arc<Message>,
        expected_revision: Option<Revision>,
        request: Option<&RequestStamp>,
    ) -> Result<CommandOutcome, Rejection> {
        let external = ExternalSummary {
            summary: Arc::clone(summary),
            first: self.first,
            last: self.last,
            kept: self.kept.clone(),
            before_tokens: self.before_tokens,
            mark: self.mark,
        };
        let source = SummarySource::External(Box::new(external));
        let start = |expected_revision| {
            Command::StartCompaction(StartCompaction {
                expected_revision,
                request: request.cloned(),
                ..StartCompaction::new(self.trigger, source)
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
        let mut message = Message::clone(summary);
        message.machine_generated = true;
        transaction.run(Command::Append(Append {
            messages: vec![Arc::new(message)],
            // The start of the compaction has compared the expected revision, and the serve has advanced it.
            expected_revision: None,
            request: request.cloned(),
        }))
    }
}
