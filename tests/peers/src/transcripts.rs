//! Conversations from a folder of Claude Code transcripts. The final state of each session becomes an array that its
//! provider would accept, so that no participant is blamed for earlier defects.
//!
//! Compactions in the transcript are left out, and the messages that they summarized are included. Thinking is left
//! out, and an image becomes a line of text, because not all participants support them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use palimpsest_core::codec;
use palimpsest_core::command::{
    Append, Command, CreateSession, Decided, DecisionContext, Rewind, ServeView, create_session,
    decide,
};
use palimpsest_core::event::RecordedEvent;
use palimpsest_core::ids::{MessageId, SessionKey, Timestamp};
use palimpsest_core::limits::Limits;
use palimpsest_core::session::Session;
use palimpsest_core::view::Target;
use palimpsest_transcripts::import::{self, ImportFormat, ImportStep, ImportedSession};
use palimpsest_transcripts::replay::no_levels;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::conversation::Conversation;

/// Reads the conversations of all transcripts in a folder.
pub(crate) fn read(folder: &Path) -> anyhow::Result<Vec<Conversation>> {
    let entries = fs::read_dir(folder);
    let entries =
        entries.with_context(|| format!("cannot read the folder {}", folder.display()))?;
    let mut files: Vec<PathBuf> = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<anyhow::Result<_>>()?;
    files.retain(|file| file.extension().is_some_and(|ending| ending == "jsonl"));
    files.sort();
    if files.is_empty() {
        bail!(
            "no transcripts in {}: expected .jsonl files",
            folder.display()
        );
    }
    let mut conversations = Vec::new();
    for file in &files {
        let text = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        let imported = import::read(Some(ImportFormat::ClaudeCode), &text);
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        for (number, session) in imported.sessions.iter().enumerate() {
            let messages = messages(session);
            let messages = messages.with_context(|| format!("in {}", file.display()))?;
            conversations.push(Conversation::new(format!("{name}.{number}"), messages)?);
        }
    }
    Ok(conversations)
}

/// Returns the array of a complete session.
fn messages(imported: &ImportedSession<'_>) -> anyhow::Result<Vec<Value>> {
    let mut session = Plain::new()?;
    for (number, step) in (1_u128..).zip(&imported.steps) {
        match step {
            ImportStep::Rewind(to) => session.run(Command::Rewind(Rewind {
                to: *to,
                ..Rewind::default()
            }))?,
            ImportStep::Compacted(_) | ImportStep::Removed { .. } => {}
            ImportStep::Message(message) => {
                // No array contains an unreadable message.
                let Ok(message) = message.decode(MessageId::new(Uuid::from_u128(number))) else {
                    continue;
                };
                session.run(Command::Append(Append {
                    messages: vec![Arc::new(message)],
                    ..Append::default()
                }))?;
            }
        }
    }
    let target = Target::default();
    session.run(Command::ServeView(ServeView {
        target: target.clone(),
        // A provider rejects an array whose last calls have no results.
        interrupt_open_calls: true,
        ..ServeView::default()
    }))?;
    let view = session.session.view(&target, None);
    let view = view
        .ok()
        .context("a session that was never unloaded holds its messages")?;
    let rendered = view.messages.iter().map(|message| {
        let mut json = Vec::new();
        codec::write(target.provider, message, &mut json);
        let mut message = serde_json::from_slice(&json)?;
        without_media(&mut message);
        Ok(message)
    });
    rendered.collect()
}

/// Replaces images and documents by a line of text.
fn without_media(value: &mut Value) {
    let is_media = matches!(value["type"].as_str(), Some("image" | "document"));
    if is_media && value.get("source").is_some() {
        *value = json!({ "type": "text", "text": "[a picture or a document]" });
        return;
    }
    let parts = match value {
        Value::Object(fields) => fields.get_mut("content"),
        _ => None,
    };
    for part in parts.and_then(Value::as_array_mut).into_iter().flatten() {
        without_media(part);
    }
}

/// A session without any level.
struct Plain {
    session: Session,
    limits: Limits,
}

impl Plain {
    fn new() -> anyhow::Result<Self> {
        let limits = Limits::default();
        let command = CreateSession {
            policy: Arc::new(no_levels()),
            ..CreateSession::default()
        };
        let at = Timestamp::default();
        let event = create_session(command, context(&limits))?;
        let key = SessionKey::parse("projects/peers/sessions/plain")?;
        Ok(Self {
            session: Session::replay(
                key,
                [RecordedEvent {
                    at,
                    by: None,
                    event,
                }],
            )?,
            limits,
        })
    }

    fn run(&mut self, command: Command) -> anyhow::Result<()> {
        let decided = decide(&self.session, command, context(&self.limits))?;
        let Decided::Now(decision) = decided else {
            return Ok(());
        };
        for event in decision.events {
            let at = Timestamp::default();
            self.session.apply(&RecordedEvent {
                at,
                by: None,
                event,
            })?;
        }
        Ok(())
    }
}

fn context(limits: &Limits) -> DecisionContext<'_> {
    DecisionContext {
        now: Timestamp::default(),
        limits,
        can_store: false,
        file_salt: 0,
    }
}
