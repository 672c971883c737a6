//! The content of an imported file: sessions, their steps, and defects.

use std::borrow::Cow;
use std::fmt;

use palimpsest_core::codec;
use palimpsest_core::codec::CodecError;
use palimpsest_core::ids::{Attributes, MessageId, Timestamp};
use palimpsest_core::message::{Message, Usage};
use palimpsest_core::view::Provider;
use serde_json::value::RawValue;

/// The file format of a transcript.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportFormat {
    /// Claude Code's JSON lines, with one main session per file.
    ClaudeCode,
    /// `OpenAI` chat messages: an array, an object that contains one, or one of these per line.
    OpenAi,
    /// Items of `OpenAI`'s Responses API, in the same containers as `OpenAi`.
    OpenAiResponses,
    /// Anthropic messages, in the same containers as `OpenAi`.
    Anthropic,
    /// Palimpsest's own complete export, with one session per file.
    Palimpsest,
    /// Rollout files of Codex, with one session per file.
    Codex,
    /// Event files of the Copilot CLI, with one main session per file.
    CopilotCli,
    /// Session files of pi.
    Pi,
    /// Session files of the Gemini CLI.
    GeminiCli,
    /// Exports of `OpenCode`, with one session per file.
    OpenCode,
}

impl ImportFormat {
    /// All formats.
    pub const ALL: [Self; 10] = [
        Self::ClaudeCode,
        Self::Codex,
        Self::CopilotCli,
        Self::GeminiCli,
        Self::OpenCode,
        Self::Pi,
        Self::OpenAi,
        Self::OpenAiResponses,
        Self::Anthropic,
        Self::Palimpsest,
    ];

    /// Returns the name that users pass on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::OpenAi => "openai",
            Self::OpenAiResponses => "openai-responses",
            Self::Anthropic => "anthropic",
            Self::Palimpsest => "palimpsest",
            Self::Codex => "codex",
            Self::CopilotCli => "copilot-cli",
            Self::Pi => "pi",
            Self::GeminiCli => "gemini-cli",
            Self::OpenCode => "opencode",
        }
    }

    /// Returns the provider whose form the messages have.
    pub const fn provider(self) -> Provider {
        match self {
            Self::OpenAi | Self::CopilotCli | Self::GeminiCli => Provider::OpenAi,
            Self::OpenAiResponses | Self::Codex => Provider::OpenAiResponses,
            Self::ClaudeCode | Self::OpenCode | Self::Pi | Self::Anthropic | Self::Palimpsest => {
                Provider::Anthropic
            }
        }
    }
}

/// The content of a file.
#[derive(Debug, Default)]
pub struct Imported<'a> {
    /// The format that the file was read as. `None` if it was not detected.
    pub format: Option<ImportFormat>,
    /// The sessions in the order of the file.
    pub sessions: Vec<ImportedSession<'a>>,
    /// The parts of the file that could not be read.
    pub defects: Vec<ImportDefect>,
    /// The number of lines without a message, by type.
    pub skipped: Vec<(String, usize)>,
    /// True if any defect means that the whole file must be rejected.
    pub is_atomic: bool,
    /// The reason why the file does not have the expected format. The text completes a sentence that
    /// begins with the file. If set, `sessions` is empty.
    pub unrecognized: Option<String>,
}

/// A session of a file.
#[derive(Debug, Default)]
pub struct ImportedSession<'a> {
    /// The suffix that distinguishes the session from others of the file. Empty for the only or the
    /// main session.
    pub suffix: String,
    /// The title of the session.
    pub title: Option<Box<str>>,
    /// The working directory.
    pub project_path: Box<str>,
    /// The git branch.
    pub branch: Box<str>,
    /// The attributes of the session.
    pub attributes: Attributes,
    /// True if the session belongs to a subagent.
    pub subagent: bool,
    /// The steps in order.
    pub steps: Vec<ImportStep<'a>>,
}

/// A step of a session.
#[derive(Debug)]
pub enum ImportStep<'a> {
    /// A message was appended.
    Message(ImportedMessage<'a>),
    /// All messages after this one were abandoned. `None`: all messages.
    Rewind(Option<MessageId>),
    /// A summary replaced messages.
    Compacted(ImportedCompaction<'a>),
    /// Messages were removed from the model's view.
    Removed {
        /// The line that records the removal.
        line: usize,
        /// The removed messages.
        messages: Vec<MessageId>,
    },
}

impl ImportStep<'_> {
    /// Sets the usage of a message that the program recorded after it.
    pub(super) fn set_usage(&mut self, usage: Usage) {
        if let Self::Message(message) = self {
            message.usage = Some(usage);
        }
    }
}

/// A compaction by the other program. It replaces all earlier messages unless the fields restrict
/// it.
#[derive(Debug)]
pub struct ImportedCompaction<'a> {
    /// The summary.
    pub summary: ImportedMessage<'a>,
    /// The first replaced message, if the compaction is restricted to a span.
    pub first: Option<MessageId>,
    /// The last replaced message of the span.
    pub last: Option<MessageId>,
    /// The messages that were kept verbatim.
    pub kept: Vec<MessageId>,
    /// True if a person requested the compaction.
    pub manual: bool,
    /// The size of the view before, in tokens. `None` if the program did not record it.
    pub before_tokens: Option<u32>,
}

impl<'a> ImportedCompaction<'a> {
    /// Returns an automatic compaction of all messages except those that were kept.
    pub(super) fn of_all(mut summary: ImportedMessage<'a>, kept: Vec<MessageId>) -> Self {
        summary.machine_generated = true;
        Self {
            summary,
            first: None,
            last: None,
            kept,
            manual: false,
            before_tokens: None,
        }
    }
}

/// A message that is not decoded yet. The payload is the file's own text.
#[derive(Debug)]
pub struct ImportedMessage<'a> {
    /// The line, counted from 1.
    pub line: usize,
    /// The id, if the message has one.
    pub id: Option<MessageId>,
    /// The provider whose format `payload` has.
    pub provider: Provider,
    /// One message object as JSON.
    pub payload: Cow<'a, RawValue>,
    /// The preceding message.
    pub parent: Option<MessageId>,
    /// The time of the message.
    pub at: Option<Timestamp>,
    /// True if no person wrote the message.
    pub machine_generated: bool,
    /// True if no model ever sees the message.
    pub transcript_only: bool,
    /// Further fields that the program recorded.
    pub attributes: Attributes,
    /// The model that wrote the message, if the payload does not contain it.
    pub model: Option<Box<str>>,
    /// The usage of the response that ends with the message, if the payload does not contain it.
    pub usage: Option<Usage>,
    /// The decoded message, if its format contains all fields.
    pub decoded: Option<Box<Message>>,
}

impl ImportedMessage<'_> {
    /// Decodes the message. `id` is used if the message has no id. Returns an error unless the
    /// payload is exactly one message.
    pub fn decode(&self, id: MessageId) -> Result<Message, CodecError> {
        if let Some(whole) = &self.decoded {
            return Ok(Message::clone(whole));
        }
        let mut id = self.id.or(Some(id));
        let mut next = || {
            id.take()
                // A payload of several messages is rejected below, so its further ids are never used.
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
        message.model = message.model.or_else(|| self.model.clone());
        message.usage = message.usage.or(self.usage);
        Ok(message)
    }
}

/// A part of a file that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportDefect {
    /// The line, counted from 1.
    pub line: usize,
    /// The description of the defect. It never contains text of the file.
    pub problem: String,
}

impl fmt::Display for ImportDefect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.problem)
    }
}

/// Returns the non-empty lines of a file with their numbers, counted from 1.
pub(super) fn lines(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    bytes
        .split(|byte| *byte == b'\n')
        .enumerate()
        .map(|(index, line)| (index + 1, line.trim_ascii()))
        .filter(|(_, line)| !line.is_empty())
}
