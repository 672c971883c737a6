//! Exports of a transcript, part by part.

use std::collections::VecDeque;

use palimpsest_core::ids::{MessageId, Revision, SessionKey};
use palimpsest_core::session::Session;
use palimpsest_core::view::Provider;
use palimpsest_store::Position;
use palimpsest_transcripts::export::{
    BlobLoss, ClaudeCodeWriter, CodexWriter, CompleteWriter, OriginalMessage, PendingResult,
    messages_to_continue,
};

use crate::filter::MessageFilter;
use crate::originals::{TranscriptWalk, restore_results};
use crate::results::stored_text;
use crate::{Engine, EngineError};

/// The format of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportFormat {
    /// JSON Lines with all stored data of each message.
    Complete,
    /// JSON Lines in the format of Claude Code.
    ClaudeCode,
    /// JSON Lines in the format of Codex.
    Codex,
    /// One JSON array of messages in a provider's format.
    Messages(Provider),
}

/// The content of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportOptions {
    /// The format.
    pub format: ExportFormat,
    /// The exported messages. `None` exports all.
    pub filter: Option<MessageFilter>,
    /// True to replace the references to stored results by the results.
    pub inline_results: bool,
}

impl ExportOptions {
    /// A complete export of all messages.
    pub const COMPLETE: Self = Self {
        format: ExportFormat::Complete,
        filter: None,
        inline_results: true,
    };

    /// Returns true if a filter or omitted results make the export incomplete, which its header reports.
    const fn is_partial(&self) -> bool {
        self.filter.is_some() || !self.inline_results
    }
}

/// A part of an export.
#[derive(Debug)]
pub struct ExportPart {
    /// The bytes of the part.
    pub data: Vec<u8>,
    /// The number of messages up to and including this part.
    pub exported_messages: u64,
    /// The stored results that are lost permanently and missing from the data.
    pub lost: Vec<LostResult>,
    /// True for the last part.
    pub is_last: bool,
}

/// A stored result that is lost permanently.
#[derive(Debug)]
pub struct LostResult {
    /// The message and the index of the block. `None` if no message contains the result yet.
    pub block: Option<(MessageId, u16)>,
    /// The name of the file.
    pub file: Box<str>,
    /// The reason.
    pub loss: BlobLoss,
}

/// The step at which an export continues.
#[derive(Debug)]
enum ExportStep {
    Begin,
    Messages(VecDeque<OriginalMessage>),
    /// Stored results without a message belong only to a complete export.
    Pending(VecDeque<PendingResult>),
    End,
    Ended,
}

/// An export of one session.
#[derive(Debug)]
pub struct Export {
    key: SessionKey,
    walk: TranscriptWalk,
    writer: ExportWriter,
    inline_results: bool,
    is_complete: bool,
    exported_messages: u64,
    step: ExportStep,
}

impl Export {
    /// Starts an export.
    pub async fn begin(
        engine: &Engine,
        key: &SessionKey,
        options: ExportOptions,
    ) -> Result<Self, EngineError> {
        let is_partial = options.is_partial();
        let is_filtered = options.filter.is_some();
        let filter = options.filter.unwrap_or_default();
        // The writer is created from the state at the walk's position, so its header and the messages show one history.
        let look = |session: &Session| {
            ExportWriter::new(options.format, session, (is_partial, is_filtered))
        };
        let begun = TranscriptWalk::begin_with(engine, key, (filter, false), None, look);
        let (walk, mut writer) = begun.await?;
        if options.format == ExportFormat::Codex && !is_filtered {
            let codex = codex_writer(engine, key, walk.position().revision).await?;
            writer = ExportWriter::Codex(Box::new(codex));
        }
        Ok(Self {
            key: key.clone(),
            walk,
            writer,
            inline_results: options.inline_results,
            is_complete: options.format == ExportFormat::Complete && !is_partial,
            exported_messages: 0,
            step: ExportStep::Begin,
        })
    }

    /// Returns the session's position at the start of the export.
    pub const fn position(&self) -> Position {
        self.walk.position()
    }

    /// Returns the next part, or `None` after the last. At most one message has its stored results in memory.
    pub async fn next(&mut self, engine: &Engine) -> Result<Option<ExportPart>, EngineError> {
        loop {
            match &mut self.step {
                ExportStep::Begin => {
                    self.step = ExportStep::Messages(VecDeque::new());
                    let data = self.writer.begin();
                    if !data.is_empty() {
                        return Ok(Some(self.part(data)));
                    }
                }
                ExportStep::Messages(queue) => {
                    if let Some(original) = queue.pop_front() {
                        return self.message(engine, original).await.map(Some);
                    }
                    if self.walk.is_done() {
                        let pending = self.pending(engine).await?;
                        self.step = ExportStep::Pending(pending);
                    } else {
                        let chunk = self.walk.chunk(engine, usize::MAX).await?;
                        self.step = ExportStep::Messages(chunk.into());
                    }
                }
                ExportStep::Pending(queue) => match queue.pop_front() {
                    Some(pending) => return self.pending_part(engine, &pending).await.map(Some),
                    None => self.step = ExportStep::End,
                },
                ExportStep::End => {
                    self.step = ExportStep::Ended;
                    // The transcript was read in several steps. The last part is written only if the history is
                    // unchanged, so a mixed export has no valid end.
                    engine.sessions.confirm(&self.key, self.position()).await?;
                    let data = self.writer.end();
                    return Ok(Some(ExportPart {
                        is_last: true,
                        ..self.part(data)
                    }));
                }
                ExportStep::Ended => return Ok(None),
            }
        }
    }

    async fn message(
        &mut self,
        engine: &Engine,
        mut original: OriginalMessage,
    ) -> Result<ExportPart, EngineError> {
        if self.inline_results {
            // The caller may have appended a preview in place of a stored result. The export contains the original.
            restore_results(engine, &self.key, &mut original).await?;
        }
        let data = self.writer.message(&original, self.exported_messages == 0);
        self.exported_messages += 1;
        let lost = original.unreadable.into_iter().map(|lost| LostResult {
            block: Some((original.entry.id, lost.block)),
            file: lost.file,
            loss: lost.loss,
        });
        Ok(ExportPart {
            lost: lost.collect(),
            ..self.part(data)
        })
    }

    /// Returns the stored results without a message, oldest first.
    async fn pending(&self, engine: &Engine) -> Result<VecDeque<PendingResult>, EngineError> {
        if !self.is_complete {
            return Ok(VecDeque::new());
        }
        // A result that a message contains was exported with that message. Only the others are added here.
        let find = |session: &Session| {
            let stored = session.stored_results();
            let pending = session.persist_decisions().iter().filter_map(|offer| {
                let kept = offer.stored.as_ref()?;
                stored
                    .find_by_file(&kept.file)
                    .is_none()
                    .then(|| PendingResult {
                        tool_use_id: offer.tool_use_id.clone(),
                        tool: offer.tool.clone(),
                        file: kept.file.clone(),
                        sha256: kept.sha256,
                    })
            });
            pending.collect()
        };
        engine.sessions.read(&self.key, find).await
    }

    async fn pending_part(
        &mut self,
        engine: &Engine,
        pending: &PendingResult,
    ) -> Result<ExportPart, EngineError> {
        let text = stored_text(engine, &self.key, &pending.file, &pending.sha256).await?;
        let lost: Option<LostResult> = text.as_ref().err().map(|loss| LostResult {
            block: None,
            file: pending.file.clone(),
            loss: *loss,
        });
        let data = self.writer.pending(pending, text);
        Ok(ExportPart {
            lost: lost.into_iter().collect(),
            ..self.part(data)
        })
    }

    const fn part(&self, data: Vec<u8>) -> ExportPart {
        ExportPart {
            data,
            exported_messages: self.exported_messages,
            lost: Vec::new(),
            is_last: false,
        }
    }
}

/// Creates the writer of Codex's format, which needs the contents of all messages of the view.
async fn codex_writer(
    engine: &Engine,
    key: &SessionKey,
    revision: Revision,
) -> Result<CodexWriter, EngineError> {
    let write = |session: &Session| {
        CodexWriter::of(session).map_err(|_| EngineError::Internal {
            doing: "write the view with all its messages loaded",
            source: None,
        })
    };
    let look = |session: &Session| (session.revision() == revision).then(|| write(session));
    if let Some(writer) = engine.sessions.read_full(key, look).await? {
        return writer;
    }
    // The session has changed since the start of the export.
    let past = engine.sessions.session_at(key, revision).await?;
    let past = past.ok_or_else(|| EngineError::SessionNotFound(key.clone()))?;
    write(&past.session)
}

/// The writer of a format.
#[derive(Debug)]
enum ExportWriter {
    Complete(Box<CompleteWriter>),
    ClaudeCode(Box<ClaudeCodeWriter>),
    Codex(Box<CodexWriter>),
    Messages(Provider),
}

impl ExportWriter {
    /// Creates the writer. An agent cannot resume a filtered export, so it has no view.
    fn new(
        format: ExportFormat,
        session: &Session,
        (is_partial, is_filtered): (bool, bool),
    ) -> Self {
        match format {
            ExportFormat::Complete => {
                Self::Complete(Box::new(CompleteWriter::of(session, is_partial)))
            }
            ExportFormat::ClaudeCode => {
                let writer = if is_filtered {
                    ClaudeCodeWriter::new(&session.key().session)
                } else {
                    ClaudeCodeWriter::of(session)
                };
                Self::ClaudeCode(Box::new(writer))
            }
            ExportFormat::Codex => Self::Codex(Box::new(CodexWriter::new(session))),
            ExportFormat::Messages(provider) => Self::Messages(provider),
        }
    }

    fn begin(&mut self) -> Vec<u8> {
        match self {
            Self::Messages(_) => b"[".to_vec(),
            Self::Complete(lines) => lines.begin(),
            Self::Codex(lines) => lines.begin(),
            Self::ClaudeCode(_) => Vec::new(),
        }
    }

    fn message(&mut self, original: &OriginalMessage, is_first: bool) -> Vec<u8> {
        match self {
            Self::Complete(lines) => lines.line(original),
            Self::ClaudeCode(lines) => lines.message(original),
            Self::Codex(lines) => lines.message(original),
            Self::Messages(provider) => elements(original, *provider, is_first),
        }
    }

    fn pending(
        &mut self,
        result: &PendingResult,
        text: Result<(String, bool), BlobLoss>,
    ) -> Vec<u8> {
        match self {
            Self::Complete(lines) => lines.pending(result, text),
            Self::ClaudeCode(_) | Self::Codex(_) | Self::Messages(_) => Vec::new(),
        }
    }

    fn end(&mut self) -> Vec<u8> {
        match self {
            Self::Messages(_) => b"\n]\n".to_vec(),
            Self::Complete(lines) => lines.end(),
            Self::ClaudeCode(lines) => lines.end(),
            Self::Codex(lines) => lines.end(),
        }
    }
}

fn elements(original: &OriginalMessage, provider: Provider, is_first: bool) -> Vec<u8> {
    let mut out = Vec::new();
    let messages = messages_to_continue(&original.message, provider);
    for (index, message) in messages.iter().enumerate() {
        if !(is_first && index == 0) {
            out.push(b',');
        }
        out.push(b'\n');
        out.extend_from_slice(message);
    }
    out
}
