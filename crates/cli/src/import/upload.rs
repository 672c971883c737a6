//! Planning and running the calls that import the sessions of one file.

use std::collections::HashMap;
use std::path::Path;

use palimpsest_core::event::Attributes;
use palimpsest_core::ids::{MessageId, Timestamp};
use palimpsest_core::message::Digest;
use palimpsest_core::view::Provider;
use palimpsest_proto::context::v1::{
    AppendMessagesRequest, CreateSessionRequest, Format, MessageInput, MessageMetadata, Payload,
    RewindSessionRequest, Session, message_input, rewind_session_request,
};
use palimpsest_server::convert;
use palimpsest_transcripts::import::{ImportStep, Imported, ImportedMessage};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;
use uuid::Builder;

use super::atomic;
use super::removed_messages::RemovedMessages;
use super::report::{FileReport, SessionReport};
use super::view_change::ViewChangeUpload;
use crate::client::{Clients, status_error};
use crate::files;

/// The size of a batch in one call. It is large enough to amortize the sync of a commit, and small enough not to delay
/// other calls.
const BATCH_BYTES: usize = 1024 * 1024;
const BATCH_MESSAGES: usize = 1_000;
/// The reason of a rejected append whose parent message does not exist.
const MESSAGE_NOT_FOUND: &str = "MESSAGE_NOT_FOUND";
/// The reasons of `RESOURCE_EXHAUSTED` that a retry does not remove.
const TOO_LARGE: [&str; 2] = ["MESSAGE_TOO_LARGE", "REQUEST_TOO_LARGE"];

/// The calls for one file.
pub(super) struct ImportPlan {
    report: FileReport,
    sessions: Vec<SessionPlan>,
    /// True if the file is imported completely or not at all.
    is_atomic: bool,
}

struct SessionPlan {
    parent: String,
    id: String,
    about: Session,
    calls: Vec<UploadCall>,
}

enum UploadCall {
    Append {
        lines: Vec<usize>,
        messages: Vec<MessageInput>,
    },
    Rewind(RewindUpload),
    Change(ViewChangeUpload),
}

/// A rewind to repeat on the server.
struct RewindUpload {
    /// The last message that stays. `None` removes all messages.
    to: Option<MessageId>,
    /// The messages of the file that leave the view, in order.
    removed: Vec<String>,
}

/// Plans the calls for a parsed file. `named` is the session id from the command line.
pub(super) fn plan(
    project: &str,
    (file, named): (&Path, Option<&str>),
    imported: &Imported<'_>,
) -> ImportPlan {
    let mut report = FileReport::new(file);
    report.defects = imported.defects.iter().map(ToString::to_string).collect();
    if let Some(reason) = &imported.unrecognized {
        // The reason already counts the unreadable lines.
        report.defects.clear();
        report.failure = Some(format!("nothing was imported: the file {reason}"));
    } else if imported.is_atomic && !report.defects.is_empty() {
        // An export of Palimpsest with an unreadable line is truncated or changed.
        let defects = std::mem::take(&mut report.defects);
        report.failure = Some(format!("nothing was imported: {}", defects.join("; ")));
    } else if named.is_some() && imported.sessions.len() > 1 {
        let count = imported.sessions.len();
        report.failure = Some(format!(
            "--session is for a file with one session, but this file has {count}"
        ));
    }
    report.skipped.clone_from(&imported.skipped);
    let parent = format!("projects/{project}");
    // The main session of a file has no suffix. Its subagents name it as their parent.
    let main = files::session_id(file, "");
    let has_main = imported.sessions.iter().any(|session| !session.subagent);
    let sessions = imported.sessions.iter().map(|session| {
        let id = files::session_id(file, &session.suffix);
        let id = named.map_or(id, ToOwned::to_owned);
        // A file with only one subagent gives its session the name of the file, and there is no main session to link.
        let parent_session = if session.subagent && has_main && id != main {
            format!("{parent}/sessions/{main}")
        } else {
            String::new()
        };
        SessionPlan {
            parent: parent.clone(),
            calls: calls(&format!("{parent}/sessions/{id}"), &session.steps),
            id,
            about: Session {
                title: session.title.as_deref().unwrap_or_default().to_owned(),
                project_path: session.project_path.to_string(),
                branch: session.branch.to_string(),
                attributes: pairs(&session.attributes),
                parent_session,
                ..Session::default()
            },
        }
    });
    let sessions = sessions.filter(|_| report.failure.is_none()).collect();
    if imported.is_atomic {
        // These defects change fields, but lose no message. They do not stop the import.
        report.defects.extend(atomic::inexact_messages(imported));
    }
    ImportPlan {
        is_atomic: imported.is_atomic,
        sessions,
        report,
    }
}

fn calls(name: &str, steps: &[ImportStep<'_>]) -> Vec<UploadCall> {
    let mut calls = Vec::new();
    let (mut lines, mut messages, mut bytes) = (Vec::new(), Vec::new(), 0);
    // The ids of the messages that no rewind has removed, in order.
    let mut shown: Vec<String> = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        match step {
            ImportStep::Message(message) => {
                // A message can exceed the size of a batch. It is then the last one of its batch.
                bytes += message.payload.get().len();
                lines.push(message.line);
                let message = input(name, index, message);
                shown.push(message.id.clone());
                messages.push(message);
                if bytes < BATCH_BYTES && messages.len() < BATCH_MESSAGES {
                    continue;
                }
            }
            ImportStep::Rewind(_) | ImportStep::Compacted(_) | ImportStep::Removed { .. } => {}
        }
        // A full batch is flushed. A view change also flushes, because it applies to the messages before it.
        if !messages.is_empty() {
            calls.push(UploadCall::Append {
                lines: std::mem::take(&mut lines),
                messages: std::mem::take(&mut messages),
            });
            bytes = 0;
        }
        match step {
            ImportStep::Message(_) => {}
            ImportStep::Rewind(to) => {
                let last = to.map(|to| to.to_string());
                let stays = last.map_or(Some(0), |last| {
                    shown.iter().rposition(|id| *id == last).map(|at| at + 1)
                });
                // Without its target among the shown messages, the removed ones are unknown. The server then decides
                // alone.
                let removed = stays.map(|stays| shown.split_off(stays));
                calls.push(UploadCall::Rewind(RewindUpload {
                    to: *to,
                    removed: removed.unwrap_or_default(),
                }));
            }
            ImportStep::Compacted(compaction) => {
                let summary = input(name, index, &compaction.summary);
                // A summary is a message too, so a later rewind can remove it.
                shown.push(summary.id.clone());
                calls.push(UploadCall::Change(ViewChangeUpload::compacted(
                    compaction, summary,
                )));
            }
            ImportStep::Removed { line, messages } => {
                calls.push(UploadCall::Change(ViewChangeUpload::removed(
                    *line, messages,
                )));
            }
        }
    }
    if !messages.is_empty() {
        calls.push(UploadCall::Append { lines, messages });
    }
    calls
}

fn pairs(attributes: &Attributes) -> HashMap<String, String> {
    let pair = |(name, value): &(Box<str>, Box<str>)| (name.to_string(), value.to_string());
    attributes.iter().map(pair).collect()
}

fn input(name: &str, index: usize, message: &ImportedMessage<'_>) -> MessageInput {
    if let Some(whole) = &message.decoded {
        return convert::message_input(whole).0;
    }
    // A message without an id gets an id that is stable across imports, so that a second import adds nothing.
    let id = message.id.unwrap_or_else(|| {
        let digest = Digest::of_bytes(format!("{name}\0{index}").as_bytes());
        MessageId::new(Builder::from_custom_bytes(*digest.as_bytes()).into_uuid())
    });
    let format = match message.provider {
        Provider::Anthropic | Provider::Bedrock => Format::AnthropicMessages,
        Provider::OpenAi => Format::OpenaiChat,
        Provider::OpenAiResponses => Format::OpenaiResponses,
    };
    MessageInput {
        id: id.to_string(),
        content: Some(message_input::Content::Payload(Payload {
            format: format.into(),
            json: message.payload.get().to_owned().into(),
        })),
        metadata: Some(MessageMetadata {
            parent_id: message.parent.map(|id| id.to_string()).unwrap_or_default(),
            create_time: message.at.map(time),
            machine_generated: message.machine_generated,
            transcript_only: message.transcript_only,
            attributes: pairs(&message.attributes),
            // The server reads both from a payload that contains them.
            model: message.model.as_deref().unwrap_or_default().to_owned(),
            usage: message.usage.as_ref().map(convert::export_usage),
            ..MessageMetadata::default()
        }),
    }
}

fn time(at: Timestamp) -> prost_types::Timestamp {
    let millis = at.as_millis();
    prost_types::Timestamp {
        // Before 1970, `/` would round toward zero and leave negative nanoseconds.
        seconds: millis.div_euclid(1_000),
        nanos: i32::try_from(millis.rem_euclid(1_000) * 1_000_000).unwrap_or_default(),
    }
}

/// Runs the calls of a plan and returns the report.
pub(super) async fn run(mut clients: Clients, plan: ImportPlan) -> FileReport {
    let mut report = plan.report;
    for session in plan.sessions {
        let mut session_report = SessionReport::new(&session.parent, &session.id);
        let (defects, is_atomic) = (&mut report.defects, plan.is_atomic);
        // The future contains a whole batch, so it is on the heap.
        let outcome = Box::pin(upload_session(
            &mut clients,
            session,
            &mut session_report,
            (is_atomic, defects),
        ));
        if let Err(failure) = outcome.await {
            report.failure = Some(failure);
        } else if session_report.is_empty() && !report.defects.is_empty() {
            let first = report.defects.first().map_or("", String::as_str);
            report.failure = Some(format!(
                "the server accepted no message: check --format. The first reason: {first}"
            ));
        }
        report.sessions.push(session_report);
        if report.failure.is_some() {
            break;
        }
    }
    report
}

/// Imports a session. Returns the reason if the import stopped early.
async fn upload_session(
    clients: &mut Clients,
    plan: SessionPlan,
    report: &mut SessionReport,
    (is_atomic, defects): (bool, &mut Vec<String>),
) -> Result<(), String> {
    let create = CreateSessionRequest {
        parent: plan.parent,
        session_id: plan.id,
        session: Some(plan.about),
        ..CreateSessionRequest::default()
    };
    let is_new = match Box::pin(clients.sessions.create_session(create)).await {
        Ok(_) => true,
        // A second import continues the session. The server recognizes its messages as duplicates.
        Err(status) if status.code() == Code::AlreadyExists => false,
        Err(status) => return Err(status_error(&status).to_string()),
    };
    let changes_view = |call: &UploadCall| !matches!(call, UploadCall::Append { .. });
    // Listing events needs the right `read`, which an import without changes of the view does not need.
    let earlier = if !is_new && plan.calls.iter().any(changes_view) {
        RemovedMessages::read(clients, &report.name).await
    } else {
        Ok(RemovedMessages::default())
    };
    let earlier = earlier.map_err(|status| status_error(&status).to_string())?;
    let run = run_calls(clients, plan.calls, report, (is_atomic, defects), &earlier);
    let uploaded = run.await;
    let Err(failure) = uploaded else {
        return Ok(());
    };
    if is_atomic {
        return Err(atomic::undo(clients, &report.name, is_new, &failure).await);
    }
    Err(failure)
}

async fn run_calls(
    clients: &mut Clients,
    calls: Vec<UploadCall>,
    report: &mut SessionReport,
    (is_atomic, defects): (bool, &mut Vec<String>),
    earlier: &RemovedMessages,
) -> Result<(), String> {
    let describe = |status: Status| status_error(&status).to_string();
    // A rewind without a target removes all messages, so it needs the id of the first one.
    let first = calls.iter().find_map(|call| match call {
        UploadCall::Append { messages, .. } => Some(messages.first()?.id.clone()),
        UploadCall::Rewind(_) | UploadCall::Change(_) => None,
    });
    let first = first.unwrap_or_default();
    for call in calls {
        match call {
            // An atomic import ends at the first rejection, so its messages are not appended one by one.
            UploadCall::Append { lines, messages } if is_atomic => {
                let sent = send(clients, messages, report).await;
                sent.map_err(|status| atomic::describe_rejection(&lines, &status))?;
            }
            UploadCall::Append { lines, messages } => {
                let appended = append(clients, lines, messages, report, defects).await;
                appended.map_err(describe)?;
            }
            // An earlier import has repeated this rewind. Another one would remove messages that were appended since.
            UploadCall::Rewind(call) if earlier.were_rewound(&call.removed) => {}
            UploadCall::Rewind(call) => {
                let rewound = rewind(clients, (&call, &first), report).await;
                defects.extend(rewound.map_err(describe)?);
            }
            UploadCall::Change(change) => {
                let changed = change.run(clients, report, earlier).await;
                defects.extend(changed.map_err(describe)?);
            }
        }
    }
    Ok(())
}

/// Appends a batch. If the server rejects it, appends its messages one by one and collects the rejected ones.
async fn append(
    clients: &mut Clients,
    lines: Vec<usize>,
    messages: Vec<MessageInput>,
    report: &mut SessionReport,
    defects: &mut Vec<String>,
) -> Result<(), Status> {
    match send(clients, messages.clone(), report).await {
        Ok(()) => return Ok(()),
        Err(status) if is_permanent(&status) => {}
        // A temporary failure would repeat for each message, so it ends the file.
        Err(status) => return Err(status),
    }
    // An append stores all its messages or none, so none of the batch is stored yet.
    for (line, mut message) in lines.into_iter().zip(messages) {
        let mut sent = send(clients, vec![message.clone()], report).await;
        if sent.as_ref().is_err_and(lacks_parent) {
            // The parent was rejected or is not in the file. The message is appended without a parent instead of not at
            // all.
            if let Some(metadata) = &mut message.metadata {
                metadata.parent_id.clear();
            }
            sent = send(clients, vec![message], report).await;
        }
        match sent {
            Ok(()) => {}
            Err(status) if is_permanent(&status) => {
                defects.push(format!("line {line}: {}", status_error(&status)));
            }
            Err(status) => return Err(status),
        }
    }
    Ok(())
}

/// Returns true if a message was rejected because its parent does not exist.
fn lacks_parent(status: &Status) -> bool {
    has_reason(status, &[MESSAGE_NOT_FOUND])
}

fn has_reason(status: &Status, reasons: &[&str]) -> bool {
    let info = status.get_details_error_info();
    info.is_some_and(|info| reasons.contains(&&*info.reason))
}

/// Returns true if the server rejected the content of a call, so that a retry fails again.
pub(super) fn is_permanent(status: &Status) -> bool {
    matches!(
        status.code(),
        // ALREADY_EXISTS: a stored message has the same id and other content. NOT_FOUND: the parent message does not
        // exist.
        Code::InvalidArgument | Code::AlreadyExists | Code::NotFound
    ) || has_reason(status, &TOO_LARGE)
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

/// Rewinds the session to a message, or to before its first message. Returns a defect if the server rejects the
/// rewind.
async fn rewind(
    clients: &mut Clients,
    (RewindUpload { to, removed }, first): (&RewindUpload, &str),
    report: &mut SessionReport,
) -> Result<Option<String>, Status> {
    use rewind_session_request::TargetMessage::{BeforeMessageId, ToMessageId};
    let target = match to {
        Some(to) => ToMessageId(to.to_string()),
        None => BeforeMessageId(first.to_owned()),
    };
    // A file can rewind to one message several times, so the id contains the message that leaves.
    let removed = removed.first().map_or("nothing", String::as_str);
    let request = RewindSessionRequest {
        session: report.name.clone(),
        request_id: format!("import-rewind-{removed}"),
        target_message: Some(target),
        ..RewindSessionRequest::default()
    };
    match clients.context.rewind_session(request).await {
        Ok(_) => {
            report.rewinds += 1;
            Ok(None)
        }
        // The target left the view on the server, so the server cannot remove only the messages after it.
        Err(status) if status.code() == Code::FailedPrecondition => Ok(Some(format!(
            "a rewind was rejected, and the messages that it removes stay in the view: {}",
            status_error(&status)
        ))),
        // If the first message does not exist, nothing was appended and nothing needs a rewind.
        Err(status) if to.is_none() && status.code() == Code::NotFound => Ok(None),
        Err(status) => Err(status),
    }
}
