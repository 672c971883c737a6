//! A session of a transcript, decoded once for as many replays as there are.

use std::sync::Arc;

use crate::ids::MessageId;
use crate::import::{Defect, ImportedSession, Step};
use crate::message::Message;

/// What happened in a session, in order.
#[derive(Debug)]
pub struct Tape {
    pub(super) steps: Vec<TapeStep>,
    /// The first model that spoke.
    pub(super) model: Box<str>,
    pub(super) subagent: bool,
    /// Messages that could not be decoded.
    pub(super) defects: Vec<Defect>,
}

/// What happened.
#[derive(Debug)]
pub(super) enum TapeStep {
    /// A message came.
    Message { line: usize, message: Arc<Message> },
    /// What came after this message was abandoned; everything, when there is none.
    Rewind(Option<MessageId>),
}

impl Tape {
    /// Decodes a session.
    pub fn new(imported: &ImportedSession<'_>) -> Self {
        let mut tape = Self {
            steps: Vec::with_capacity(imported.steps.len()),
            model: Box::default(),
            subagent: imported.subagent,
            defects: Vec::new(),
        };
        for (number, step) in (1_u128..).zip(&imported.steps) {
            let message = match step {
                Step::Rewind(to) => {
                    tape.steps.push(TapeStep::Rewind(*to));
                    continue;
                }
                Step::Message(message) => message,
            };
            let line = message.line;
            match message.decode(MessageId::new(uuid::Uuid::from_u128(number))) {
                Ok(message) => tape.push(line, message),
                Err(error) => tape.defects.push(Defect {
                    line,
                    what: error.to_string(),
                }),
            }
        }
        tape
    }

    fn push(&mut self, line: usize, message: Message) {
        if self.model.is_empty() {
            self.model = message.model.clone().unwrap_or_default();
        }
        self.steps.push(TapeStep::Message {
            line,
            message: Arc::new(message),
        });
    }
}
