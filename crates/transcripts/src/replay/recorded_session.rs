//! A decoded session of a transcript. It is decoded once for all replays.

use std::sync::Arc;

use palimpsest_core::event::Trigger;
use palimpsest_core::ids::MessageId;
use palimpsest_core::message::Message;

use crate::import::{ImportDefect, ImportStep, ImportedCompaction, ImportedSession};

/// The steps of a session in order.
#[derive(Debug)]
pub struct RecordedSession {
    pub(super) steps: Vec<RecordedStep>,
    /// The first model that answered.
    pub(super) model: Box<str>,
    pub(super) subagent: bool,
    /// Messages that could not be decoded.
    pub(super) defects: Vec<ImportDefect>,
}

#[derive(Debug)]
pub(super) enum RecordedStep {
    /// A message was appended.
    Message { line: usize, message: Arc<Message> },
    /// All messages after this one were abandoned. `None`: all messages.
    Rewind(Option<MessageId>),
    /// The other program replaced messages by a summary.
    Compacted(Box<RecordedCompaction>),
    /// The other program removed messages from its model's view.
    Removed {
        line: usize,
        messages: Vec<MessageId>,
    },
}

/// A compaction by the program that wrote the transcript.
#[derive(Debug)]
pub(super) struct RecordedCompaction {
    pub(super) line: usize,
    pub(super) summary: Arc<Message>,
    pub(super) first: Option<MessageId>,
    pub(super) last: Option<MessageId>,
    pub(super) kept: Vec<MessageId>,
    pub(super) manual: Trigger,
    pub(super) before_tokens: Option<u64>,
}

impl RecordedSession {
    /// Decodes a session. Messages that cannot be decoded become defects.
    pub fn new(imported: &ImportedSession<'_>) -> Self {
        let mut tape = Self {
            steps: Vec::with_capacity(imported.steps.len()),
            model: Box::default(),
            subagent: imported.subagent,
            defects: Vec::new(),
        };
        for (number, step) in (1_u128..).zip(&imported.steps) {
            let message = match step {
                ImportStep::Rewind(to) => {
                    tape.steps.push(RecordedStep::Rewind(*to));
                    continue;
                }
                ImportStep::Removed { line, messages } => {
                    let (line, messages) = (*line, messages.clone());
                    tape.steps.push(RecordedStep::Removed { line, messages });
                    continue;
                }
                ImportStep::Compacted(compaction) => &compaction.summary,
                ImportStep::Message(message) => message,
            };
            let line = message.line;
            // The step's number serves as the id of a message without one, so every replay uses the
            // same ids.
            match message.decode(MessageId::new(uuid::Uuid::from_u128(number))) {
                Ok(message) => match step {
                    ImportStep::Compacted(compaction) => tape.compacted(compaction, message),
                    _ => tape.push(line, message),
                },
                Err(error) => tape.defects.push(ImportDefect {
                    line,
                    problem: error.to_string(),
                }),
            }
        }
        tape
    }

    /// Returns the messages with their lines. Summaries of other programs are left out.
    pub fn messages(&self) -> impl Iterator<Item = (usize, &Message)> {
        self.steps.iter().filter_map(|step| match step {
            RecordedStep::Message { line, message } => Some((*line, &**message)),
            _ => None,
        })
    }

    fn compacted(&mut self, compaction: &ImportedCompaction<'_>, summary: Message) {
        let asked = if compaction.manual {
            Trigger::Manual
        } else {
            Trigger::Auto
        };
        let compacted = Box::new(RecordedCompaction {
            line: compaction.summary.line,
            summary: Arc::new(summary),
            first: compaction.first,
            last: compaction.last,
            kept: compaction.kept.clone(),
            manual: asked,
            before_tokens: compaction.before_tokens.map(Into::into),
        });
        self.steps.push(RecordedStep::Compacted(compacted));
    }

    fn push(&mut self, line: usize, message: Message) {
        if self.model.is_empty() {
            self.model = message.model.clone().unwrap_or_default();
        }
        self.steps.push(RecordedStep::Message {
            line,
            message: Arc::new(message),
        });
    }
}
