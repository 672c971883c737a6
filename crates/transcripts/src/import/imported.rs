//! The content of a file that was read: its sessions, their steps, and what could not be read.

use std::borrow::Cow;
use std::fmt;

use palimpsest_core::codec;
use palimpsest_core::codec::CodecError;
use palimpsest_core::ids::{Attributes, MessageId, Timestamp};
use palimpsest_core::message::Message;
use palimpsest_core::view::Provider;
use serde_json::value::RawValue;

/// A program's way to write transcripts down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportFormat {
    /// Claude Code's JSON lines: one session a file.
    ClaudeCode,
    /// `OpenAI` chat messages: an array, an object that holds one, or one of these on every line.
    OpenAi,
    /// The same with Anthropic's messages.
    Anthropic,
    /// Our own complete export: one session a file.
    Palimpsest,
}

impl ImportFormat {
    /// The name that people use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
            Self::Palimpsest => "palimpsest",
        }
    }
}

/// A file, read.
#[derive(Debug, Default)]
pub struct Imported<'a> {
    /// Its sessions, in the order of the file.
    pub sessions: Vec<ImportedSession<'a>>,
    /// What could not be read.
    pub defects: Vec<ImportDefect>,
    /// Lines that hold no message, by what they say they are.
    pub skipped: Vec<(String, usize)>,
    /// Whether a fault anywhere means that nothing of it is to be taken.
    pub is_whole_or_nothing: bool,
    /// Set when nothing or next to nothing of the file is of the format: completes a sentence that begins with
    /// the file. Then there are no sessions.
    pub unrecognised: Option<String>,
}

/// A session of a file.
#[derive(Debug, Default)]
pub struct ImportedSession<'a> {
    /// Tells it from other sessions of the file; empty when it is the only or the main one.
    pub suffix: String,
    /// A name for people.
    pub title: Option<Box<str>>,
    /// The folder that the work is in.
    pub project_path: Box<str>,
    /// The branch that the work is on.
    pub branch: Box<str>,
    /// The caller's own notes.
    pub attributes: Attributes,
    /// Whether it is a subagent's.
    pub subagent: bool,
    /// What happened, in order.
    pub steps: Vec<ImportStep<'a>>,
}

/// What happened.
#[derive(Debug)]
pub enum ImportStep<'a> {
    /// A message came.
    Message(ImportedMessage<'a>),
    /// What came after this message was abandoned; everything, when there is none.
    Rewind(Option<MessageId>),
    /// A summary took the place of messages.
    Compacted(ImportedCompaction<'a>),
    /// Messages left the model's view.
    Removed {
        /// The line that says so.
        line: usize,
        /// Which.
        messages: Vec<MessageId>,
    },
}

/// A compaction that the program made. What it replaced is all that came before, unless it says otherwise.
#[derive(Debug)]
pub struct ImportedCompaction<'a> {
    /// The summary.
    pub summary: ImportedMessage<'a>,
    /// The first message that it stands for.
    pub first: Option<MessageId>,
    /// The last one.
    pub last: Option<MessageId>,
    /// The messages that stayed word for word.
    pub kept: Vec<MessageId>,
    /// Whether a person had asked for it.
    pub manual: bool,
    /// What the view had before, in tokens; none when the program did not say.
    pub before_tokens: Option<u32>,
}

/// A message, not yet decoded: its content is still the file's own text.
#[derive(Debug)]
pub struct ImportedMessage<'a> {
    /// Where it stands, counted from 1.
    pub line: usize,
    /// Its id, when it has one.
    pub id: Option<MessageId>,
    /// Whose JSON `payload` is.
    pub provider: Provider,
    /// One message object.
    pub payload: Cow<'a, RawValue>,
    /// The message before it.
    pub parent: Option<MessageId>,
    /// When it was said.
    pub at: Option<Timestamp>,
    /// Not a human's words.
    pub machine_generated: bool,
    /// Never shown to a model.
    pub transcript_only: bool,
    /// What else the program wrote.
    pub attributes: Attributes,
    /// The message itself, where its format says all of it.
    pub whole: Option<Box<Message>>,
}

impl ImportedMessage<'_> {
    /// Decodes it. `id` names it when it has no id of its own.
    pub fn decode(&self, id: MessageId) -> Result<Message, CodecError> {
        if let Some(whole) = &self.whole {
            return Ok(Message::clone(whole));
        }
        let mut id = self.id.or(Some(id));
        let mut next = || {
            id.take()
                .unwrap_or_else(|| MessageId::new(uuid::Uuid::nil()))
        };
        let mut messages = codec::read(self.provider, self.payload.get().as_bytes(), &mut next)?;
        let Some(mut message) = messages.pop().filter(|_| messages.is_empty()) else {
            return Err(CodecError {
                path: String::new(),
                error: palimpsest_core::json::JsonError::Kind {
                    expected: "one message",
                },
            });
        };
        message.parent = self.parent;
        message.at = self.at;
        message.machine_generated = self.machine_generated;
        message.transcript_only = self.transcript_only;
        message.attributes.clone_from(&self.attributes);
        Ok(message)
    }
}

/// Something that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportDefect {
    /// Where, counted from 1.
    pub line: usize,
    /// What is wrong; never the text itself.
    pub what: String,
}

impl fmt::Display for ImportDefect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

/// The lines of a file that are not empty, each with its number.
pub(super) fn lines(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    bytes
        .split(|byte| *byte == b'\n')
        .enumerate()
        .map(|(index, line)| (index + 1, line.trim_ascii()))
        .filter(|(_, line)| !line.is_empty())
}
