//! One file's sessions as calls, and the calls made.

use std::collections::HashMap;
use std::path::Path;

use palimpsest_core::ids::{MessageId, Timestamp};
use palimpsest_core::import::{Imported, ImportedMessage, Step};
use palimpsest_core::message::Digest;
use palimpsest_core::view::Provider;
use palimpsest_proto::context::v1::{
    AppendMessagesRequest, CreateSessionRequest, Format, MessageInput, MessageMetadata, Payload,
    RewindSessionRequest, Session, message_input, rewind_session_request,
};
use tonic::{Code, Status};
use uuid::Builder;

use super::change::Change;
use super::report::{FileReport, SessionReport};
use crate::cli::client::{Clients, said};
use crate::cli::files;

/// How much goes into one call: large enough that a commit is worth its sync, small enough that no
/// call holds up others.
const BATCH_BYTES: usize = 1024 * 1024;
const BATCH_MESSAGES: usize = 1_000;

/// What is to be done for a file.
pub(super) struct Plan {
    report: FileReport,
    sessions: Vec<SessionPlan>,
}

struct SessionPlan {
    parent: String,
    id: String,
    title: String,
    parent_session: String,
    calls: Vec<Call>,
}

enum Call {
    Append {
        lines: Vec<usize>,
        messages: Vec<MessageInput>,
    },
    Rewind(Option<MessageId>),
    Change(Change),
}

/// Turns a file that was read into calls.
pub(super) fn plan(project: &str, file: &Path, imported: &Imported<'_>) -> Plan {
    let mut report = FileReport::new(file);
    report.defects = imported.defects.iter().map(ToString::to_string).collect();
    report.skipped.clone_from(&imported.skipped);
    let parent = format!("projects/{project}");
    let main = files::session_id(file, "");
    let has_main = imported.sessions.iter().any(|session| !session.subagent);
    let sessions = imported.sessions.iter().map(|session| {
        let id = files::session_id(file, &session.suffix);
        let parent_session = if session.subagent && has_main && id != main {
            format!("{parent}/sessions/{main}")
        } else {
            String::new()
        };
        SessionPlan {
            parent: parent.clone(),
            calls: calls(&format!("{parent}/sessions/{id}"), &session.steps),
            title: session.title.clone().unwrap_or_default(),
            id,
            parent_session,
        }
    });
    Plan {
        sessions: sessions.collect(),
        report,
    }
}

fn calls(name: &str, steps: &[Step<'_>]) -> Vec<Call> {
    let mut calls = Vec::new();
    let (mut lines, mut messages, mut bytes) = (Vec::new(), Vec::new(), 0);
    for (index, step) in steps.iter().enumerate() {
        match step {
            Step::Message(message) => {
                bytes += message.payload.get().len();
                lines.push(message.line);
                messages.push(input(name, index, message));
                if bytes < BATCH_BYTES && messages.len() < BATCH_MESSAGES {
                    continue;
                }
            }
            Step::Rewind(_) | Step::Compacted(_) | Step::Removed { .. } => {}
        }
        if !messages.is_empty() {
            calls.push(Call::Append {
                lines: std::mem::take(&mut lines),
                messages: std::mem::take(&mut messages),
            });
            bytes = 0;
        }
        match step {
            Step::Message(_) => {}
            Step::Rewind(to) => calls.push(Call::Rewind(*to)),
            Step::Compacted(compaction) => {
                let summary = input(name, index, &compaction.summary);
                calls.push(Call::Change(Change::compacted(compaction, summary)));
            }
            Step::Removed { line, messages } => {
                calls.push(Call::Change(Change::removed(*line, messages)));
            }
        }
    }
    if !messages.is_empty() {
        calls.push(Call::Append { lines, messages });
    }
    calls
}

fn input(name: &str, index: usize, message: &ImportedMessage<'_>) -> MessageInput {
    // A message without an id gets one that is the same each time its file is imported.
    let id = message.id.unwrap_or_else(|| {
        let digest = Digest::of_bytes(format!("{name}\0{index}").as_bytes());
        MessageId::new(Builder::from_custom_bytes(*digest.as_bytes()).into_uuid())
    });
    let format = match message.provider {
        Provider::Anthropic | Provider::Bedrock => Format::AnthropicMessages,
        Provider::OpenAi => Format::OpenaiChat,
    };
    let attributes: HashMap<String, String> = message
        .attributes
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .collect();
    MessageInput {
        id: id.to_string(),
        content: Some(message_input::Content::Payload(Payload {
            format: format.into(),
            json: message.payload.get().to_owned().into(),
        })),
        metadata: Some(MessageMetadata {
            parent_id: message.parent.map(|id| id.to_string()).unwrap_or_default(),
            create_time: message.at.map(time),
            meta: message.meta,
            transcript_only: message.transcript_only,
            attributes,
            ..MessageMetadata::default()
        }),
    }
}

fn time(at: Timestamp) -> prost_types::Timestamp {
    let millis = at.as_millis();
    prost_types::Timestamp {
        seconds: millis.div_euclid(1_000),
        nanos: i32::try_from(millis.rem_euclid(1_000) * 1_000_000).unwrap_or_default(),
    }
}

/// Makes the calls.
pub(super) async fn run(mut clients: Clients, plan: Plan) -> FileReport {
    let mut report = plan.report;
    for session in plan.sessions {
        let mut session_report = SessionReport::new(&session.parent, &session.id);
        let defects = &mut report.defects;
        // Holding a whole batch, it does not belong on the stack.
        let outcome = Box::pin(bring(&mut clients, session, &mut session_report, defects)).await;
        report.sessions.push(session_report);
        if let Err(status) = outcome {
            report.failure = Some(said(&status).to_string());
            break;
        }
    }
    report
}

async fn bring(
    clients: &mut Clients,
    plan: SessionPlan,
    report: &mut SessionReport,
    defects: &mut Vec<String>,
) -> Result<(), Status> {
    let create = CreateSessionRequest {
        parent: plan.parent,
        session_id: plan.id,
        session: Some(Session {
            title: plan.title,
            parent_session: plan.parent_session,
            ..Session::default()
        }),
        ..CreateSessionRequest::default()
    };
    match Box::pin(clients.sessions.create_session(create)).await {
        Ok(_) => {}
        Err(status) if status.code() == Code::AlreadyExists => {}
        Err(status) => return Err(status),
    }
    for call in plan.calls {
        match call {
            Call::Append { lines, messages } => {
                append(clients, lines, messages, report, defects).await?;
            }
            Call::Rewind(to) => rewind(clients, to, report).await?,
            Call::Change(change) => {
                if let Some(defect) = change.run(clients, report).await? {
                    defects.push(defect);
                }
            }
        }
    }
    Ok(())
}

/// Appends a batch. When a message in it is refused, the others still come in, one by one.
async fn append(
    clients: &mut Clients,
    lines: Vec<usize>,
    messages: Vec<MessageInput>,
    report: &mut SessionReport,
    defects: &mut Vec<String>,
) -> Result<(), Status> {
    match send(clients, messages.clone(), report).await {
        Ok(()) => return Ok(()),
        Err(status) if is_refusal(&status) => {}
        Err(status) => return Err(status),
    }
    for (line, message) in lines.into_iter().zip(messages) {
        match send(clients, vec![message], report).await {
            Ok(()) => {}
            Err(status) if is_refusal(&status) => {
                defects.push(format!("line {line}: {}", said(&status)));
            }
            Err(status) => return Err(status),
        }
    }
    Ok(())
}

/// Whether the server refuses what it was given, so that giving it again is of no use.
pub(super) fn is_refusal(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::InvalidArgument | Code::AlreadyExists | Code::NotFound
    )
}

async fn send(
    clients: &mut Clients,
    messages: Vec<MessageInput>,
    report: &mut SessionReport,
) -> Result<(), Status> {
    let request = AppendMessagesRequest {
        session: report.name.clone(),
        messages,
        ..AppendMessagesRequest::default()
    };
    let response = clients.context.append_messages(request).await?.into_inner();
    report.count(&response.append.unwrap_or_default());
    Ok(())
}

async fn rewind(
    clients: &mut Clients,
    to: Option<MessageId>,
    report: &mut SessionReport,
) -> Result<(), Status> {
    let Some(to) = to else {
        return Ok(());
    };
    let request = RewindSessionRequest {
        session: report.name.clone(),
        // A second import must not rewind what a first one has brought in since.
        request_id: format!("import-rewind-{to}"),
        target_message: Some(rewind_session_request::TargetMessage::ToMessageId(
            to.to_string(),
        )),
        ..RewindSessionRequest::default()
    };
    match clients.context.rewind_session(request).await {
        Ok(_) => {
            report.rewinds += 1;
            Ok(())
        }
        Err(status) if status.code() == Code::FailedPrecondition => Ok(()),
        Err(status) => Err(status),
    }
}
