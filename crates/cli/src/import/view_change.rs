//! View changes that another program recorded: a summary that replaces messages, and removed messages.

use palimpsest_core::ids::MessageId;
use palimpsest_proto::context::v1::{
    AdoptedCompaction, AppendMessagesRequest, AppendOutcome, MessageInput, SnipRequest, Trigger,
};
use palimpsest_transcripts::import::ImportedCompaction;
use tonic::{Code, Status};

use super::removed_messages::RemovedMessages;
use super::report::SessionReport;
use super::upload::is_permanent;
use crate::client::{Clients, status_error};

/// The maximum number of messages that one call removes.
const MAX_REMOVED: usize = 100;

/// A change of the view to repeat on the server.
pub(super) enum ViewChangeUpload {
    Compacted {
        line: usize,
        summary: Box<MessageInput>,
        compaction: AdoptedCompaction,
    },
    Removed {
        line: usize,
        messages: Vec<MessageId>,
    },
}

impl ViewChangeUpload {
    pub(super) fn compacted(compaction: &ImportedCompaction<'_>, summary: MessageInput) -> Self {
        let name = |id: Option<MessageId>| id.map(|id| id.to_string()).unwrap_or_default();
        let trigger = if compaction.manual {
            Trigger::Manual
        } else {
            Trigger::Auto
        };
        Self::Compacted {
            line: compaction.summary.line,
            summary: Box::new(summary),
            compaction: AdoptedCompaction {
                first_message_id: name(compaction.first),
                last_message_id: name(compaction.last),
                kept_message_ids: compaction.kept.iter().map(ToString::to_string).collect(),
                trigger: trigger.into(),
                before_tokens: compaction.before_tokens.unwrap_or(0),
            },
        }
    }

    pub(super) fn removed(line: usize, messages: &[MessageId]) -> Self {
        let messages = messages.to_vec();
        Self::Removed { line, messages }
    }

    /// Applies the change. Returns a defect if the server rejects it.
    pub(super) async fn run(
        self,
        clients: &mut Clients,
        report: &mut SessionReport,
        earlier: &RemovedMessages,
    ) -> Result<Option<String>, Status> {
        match self {
            Self::Compacted {
                line,
                summary,
                compaction,
            } => compact(clients, report, line, (*summary, compaction)).await,
            Self::Removed { line, messages } => {
                let ids = messages.iter().map(ToString::to_string);
                // A repeated snip would also remove messages again that an undo has brought back since.
                let left: Vec<_> = ids.filter(|id| !earlier.was_snipped(id)).collect();
                remove(clients, report, line, &left).await
            }
        }
    }
}

async fn compact(
    clients: &mut Clients,
    report: &mut SessionReport,
    line: usize,
    (summary, compaction): (MessageInput, AdoptedCompaction),
) -> Result<Option<String>, Status> {
    let request = AppendMessagesRequest {
        session: report.name.clone(),
        messages: vec![summary.clone()],
        adopted_compaction: Some(compaction),
        ..AppendMessagesRequest::default()
    };
    match clients.context.append_messages(request).await {
        Ok(response) => {
            let result = response.into_inner().append.unwrap_or_default();
            let mut new = result.messages.iter();
            // A later import of the same file appends the summary as a duplicate, which compacts nothing.
            let is_new = new.any(|one| one.outcome() != AppendOutcome::Duplicate);
            report.compactions += usize::from(is_new);
            report.count(&result);
            return Ok(None);
        }
        Err(status) if is_permanent(&status) => {}
        Err(status) => return Err(status),
    }
    // The summary cannot replace the messages, so it is appended as an ordinary message and they stay in the view.
    let request = AppendMessagesRequest {
        session: report.name.clone(),
        messages: vec![summary],
        ..AppendMessagesRequest::default()
    };
    match clients.context.append_messages(request).await {
        Ok(response) => {
            report.count(&response.into_inner().append.unwrap_or_default());
            let defect = "the summary cannot replace its messages, which stay in the view";
            Ok(Some(format!("line {line}: {defect}")))
        }
        Err(status) if is_permanent(&status) => {
            Ok(Some(format!("line {line}: {}", status_error(&status))))
        }
        Err(status) => Err(status),
    }
}

async fn remove(
    clients: &mut Clients,
    report: &mut SessionReport,
    line: usize,
    messages: &[String],
) -> Result<Option<String>, Status> {
    for messages in messages.chunks(MAX_REMOVED) {
        let request = SnipRequest {
            session: report.name.clone(),
            // A chunk is never empty.
            request_id: format!("import-removal-{}", messages[0]),
            message_ids: messages.to_vec(),
            reason: "removed in the transcript".into(),
            ..SnipRequest::default()
        };
        match clients.context.snip(request).await {
            Ok(_) => report.removals += 1,
            Err(status) if is_permanent(&status) || status.code() == Code::FailedPrecondition => {
                return Ok(Some(format!("line {line}: {}", status_error(&status))));
            }
            Err(status) => return Err(status),
        }
    }
    Ok(None)
}
