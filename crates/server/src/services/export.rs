//! `ExportTranscript`: streams a transcript as a file.

mod claude_code;
mod complete;

use async_stream::try_stream;
use bytes::Bytes;
use palimpsest_core::codec;
use palimpsest_core::ids::SessionKey;
use palimpsest_core::session::Session;
use palimpsest_core::view::{Provider, WireBlock};
use palimpsest_engine::originals::{OriginalMessage, TranscriptWalk, put_back};
use palimpsest_engine::results::{BlobLoss, stored_text};
use palimpsest_proto::context::v1::{
    BlockRef, ExportTranscriptRequest, ExportTranscriptResponse, Format, LostResult, ResultLoss,
};
use palimpsest_store::Position;
use tonic::Status;

use super::Service;
use super::context::ReplyStream;
use crate::convert;
use crate::errors::ServiceError;

/// The writer of the requested format.
#[derive(Debug)]
enum File {
    /// JSON Lines with all stored data of each message.
    Complete(Box<complete::CompleteWriter>),
    /// JSON Lines in the format of Claude Code.
    ClaudeCode(claude_code::ClaudeCodeWriter),
    /// One JSON array of messages in a provider's format.
    Array(Provider),
}

impl File {
    fn new(format: i32, session: &Session, partial: bool) -> Result<Self, ServiceError> {
        let key = session.key();
        Ok(match Format::try_from(format) {
            Ok(Format::Unspecified | Format::PalimpsestJsonl) => {
                Self::Complete(Box::new(complete::CompleteWriter::of(session, partial)))
            }
            Ok(Format::ClaudeCodeJsonl) => {
                Self::ClaudeCode(claude_code::ClaudeCodeWriter::new(&key.session))
            }
            Ok(Format::AnthropicMessages) => Self::Array(Provider::Anthropic),
            Ok(Format::OpenaiChat) => Self::Array(Provider::OpenAi),
            Err(_) => {
                let what = "is not a format that this server knows";
                return Err(ServiceError::invalid("format", what));
            }
        })
    }

    fn begin(&mut self) -> Bytes {
        match self {
            Self::Array(_) => "[".into(),
            Self::Complete(lines) => lines.begin().into(),
            Self::ClaudeCode(_) => Bytes::new(),
        }
    }

    fn message(&mut self, original: &OriginalMessage, is_first: bool) -> Bytes {
        let data = match self {
            Self::Complete(lines) => lines.line(original),
            Self::ClaudeCode(lines) => lines.line(&original.message, original.entry.standing),
            Self::Array(provider) => elements(original, *provider, is_first),
        };
        data.into()
    }

    /// Returns the line of a stored result without a message, or no bytes if the format has no such line.
    async fn pending(
        &mut self,
        service: &Service,
        key: &SessionKey,
        result: &PendingResult,
    ) -> Result<Bytes, ServiceError> {
        Ok(match self {
            Self::Complete(lines) => lines
                .pending(result, result.text(service, key).await?)
                .into(),
            Self::ClaudeCode(_) | Self::Array(_) => Bytes::new(),
        })
    }

    fn end(&self) -> Bytes {
        match self {
            Self::Array(_) => "\n]\n".into(),
            Self::Complete(lines) => lines.end().into(),
            Self::ClaudeCode(_) => Bytes::new(),
        }
    }
}

pub(super) async fn export(
    service: &Service,
    request: ExportTranscriptRequest,
) -> Result<ReplyStream<ExportTranscriptResponse>, ServiceError> {
    let key = convert::session_key(&request.session, "session")?;
    let inline = request.inline_results.unwrap_or(true);
    // A filter or omitted results make the export incomplete, which its header reports.
    let partial = request.filter.is_some() || !inline;
    let filter = convert::message_filter(request.filter, service.limits())?;
    let look = |session: &Session| File::new(request.format, session, partial);
    let begun = TranscriptWalk::begin_with(service, &key, (filter, false), None, look);
    let (mut walk, file) = begun.await?;
    let mut file = file?;
    let service = service.clone();
    let stream = try_stream! {
        let mut exported = 0;
        let head = file.begin();
        if !head.is_empty() {
            yield part(head, exported);
        }
        while !walk.is_done() {
            let originals = walk.chunk(&service, usize::MAX).await.map_err(ServiceError::from)?;
            for mut original in originals {
                if inline {
                    // The caller may have appended a preview in place of a stored result. The export contains the
                    // original.
                    put_back(&service, &key, &mut original).await.map_err(ServiceError::from)?;
                }
                let data = file.message(&original, exported == 0);
                exported += 1;
                yield ExportTranscriptResponse {
                    unreadable_results: unreadable(&original),
                    ..part(data, exported)
                };
            }
        }
        // Stored results without a message belong only to a complete export.
        if inline && !partial {
            let pending = PendingResult::of(&service, &key).await.map_err(Status::from)?;
            for result in pending {
                let data = file.pending(&service, &key, &result).await.map_err(Status::from)?;
                yield part(data, exported);
            }
        }
        // The transcript was read in several steps. The stream fails here if another history has replaced the
        // session meanwhile.
        service.sessions.confirm(&key, walk.position()).await.map_err(ServiceError::from)?;
        yield ExportTranscriptResponse {
            data: file.end(),
            exported_messages: exported,
            last: true,
            revision: walk.position().revision.get(),
            ..ExportTranscriptResponse::default()
        };
    };
    Ok(Box::pin(stream))
}

/// A complete export of one session, read in batches of lines. Retention stores it before it deletes the session.
#[derive(Debug)]
pub struct CompleteExport {
    key: SessionKey,
    walk: TranscriptWalk,
    lines: complete::CompleteWriter,
    lost: Option<(Box<str>, BlobLoss)>,
    is_begun: bool,
    is_ended: bool,
}

impl CompleteExport {
    /// Starts an export.
    pub(crate) async fn begin(service: &Service, key: &SessionKey) -> Result<Self, ServiceError> {
        let filter = convert::message_filter(None, service.limits())?;
        let look = |session: &Session| complete::CompleteWriter::of(session, false);
        let begun = TranscriptWalk::begin_with(service, key, (filter, false), None, look);
        let (walk, lines) = begun.await?;
        Ok(Self {
            key: key.clone(),
            walk,
            lines,
            lost: None,
            is_begun: false,
            is_ended: false,
        })
    }

    /// Returns the session's position at the start of the export.
    pub(crate) const fn position(&self) -> Position {
        self.walk.position()
    }

    /// Returns the first stored result that is lost permanently and missing from the lines so far.
    pub(crate) fn lost(&self) -> Option<(&str, BlobLoss)> {
        let lost = self.lost.as_ref();
        lost.map(|(file, loss)| (&**file, *loss))
    }

    /// Returns the next lines, or `None` after the last.
    pub(crate) async fn next(
        &mut self,
        service: &Service,
    ) -> Result<Option<Vec<Bytes>>, ServiceError> {
        if !std::mem::replace(&mut self.is_begun, true) {
            return Ok(Some(vec![self.lines.begin().into()]));
        }
        if self.walk.is_done() {
            if std::mem::replace(&mut self.is_ended, true) {
                return Ok(None);
            }
            let mut lines: Vec<Bytes> = Vec::new();
            for pending in PendingResult::of(service, &self.key).await? {
                let text = pending.text(service, &self.key).await?;
                if let Err(loss) = text {
                    self.lost.get_or_insert((pending.file.clone(), loss));
                }
                lines.push(self.lines.pending(&pending, text).into());
            }
            // The last line is written only if the history is unchanged, so a mixed export has no valid end.
            service.sessions.confirm(&self.key, self.position()).await?;
            lines.push(self.lines.end().into());
            return Ok(Some(lines));
        }
        let mut originals = self.walk.chunk(service, usize::MAX).await?;
        for original in &mut originals {
            put_back(service, &self.key, original).await?;
            let lost = original.unreadable.first();
            let lost = lost.map(|it| (it.file.clone(), it.loss));
            self.lost = self.lost.take().or(lost);
        }
        let lines = originals.iter().map(|it| self.lines.line(it).into());
        Ok(Some(lines.collect()))
    }
}

/// A stored result whose message has not been appended. Its content exists only in the file.
#[derive(Debug)]
struct PendingResult {
    tool_use_id: Box<str>,
    tool: Box<str>,
    file: Box<str>,
    sha256: [u8; 32],
}

impl PendingResult {
    /// Returns those of a session, oldest first.
    async fn of(service: &Service, key: &SessionKey) -> Result<Vec<Self>, ServiceError> {
        let find = |session: &Session| {
            let stored = session.stored();
            let pending = session.persist_decisions().iter().filter_map(|offer| {
                let kept = offer.kept.as_ref()?;
                stored.in_file(&kept.file).is_none().then(|| Self {
                    tool_use_id: offer.tool_use_id.clone(),
                    tool: offer.tool.clone(),
                    file: kept.file.clone(),
                    sha256: kept.sha256,
                })
            });
            pending.collect()
        };
        Ok(service.sessions.read(key, find).await?)
    }

    async fn text(
        &self,
        service: &Service,
        key: &SessionKey,
    ) -> Result<Result<(String, bool), BlobLoss>, ServiceError> {
        Ok(stored_text(service, key, &self.file, &self.sha256).await?)
    }
}

fn unreadable(original: &OriginalMessage) -> Vec<LostResult> {
    let lost = original.unreadable.iter().map(|lost| LostResult {
        block: Some(BlockRef {
            message_id: original.entry.id.to_string(),
            block_index: lost.block.into(),
        }),
        file: lost.file.to_string(),
        loss: match lost.loss {
            BlobLoss::Missing => ResultLoss::Missing.into(),
            BlobLoss::Damaged => ResultLoss::Damaged.into(),
        },
    });
    lost.collect()
}

fn part(data: Bytes, exported_messages: u64) -> ExportTranscriptResponse {
    ExportTranscriptResponse {
        data,
        exported_messages,
        ..ExportTranscriptResponse::default()
    }
}

fn elements(original: &OriginalMessage, provider: Provider, is_first: bool) -> Vec<u8> {
    let mut out = Vec::new();
    for (index, message) in convert::json_messages(&original.message, provider)
        .iter()
        .enumerate()
    {
        if !(is_first && index == 0) {
            out.push(b',');
        }
        out.push(b'\n');
        out.extend_from_slice(message);
    }
    out
}

/// Returns an object as one line with the message as its last field. The message keeps its bytes, so unknown fields
/// and numbers do not change. Line breaks in JSON can only be white space between values. They become spaces,
/// because they would end the line.
fn line(head: &serde_json::Value, message: &[u8]) -> Vec<u8> {
    let mut out = head.to_string().into_bytes();
    out.pop();
    out.extend_from_slice(b",\"message\":");
    let byte = |byte: &u8| match byte {
        b'\n' | b'\r' => b' ',
        byte => *byte,
    };
    out.extend(message.iter().map(byte));
    out.extend_from_slice(b"}\n");
    out
}

/// Appends blocks in their original bytes as a JSON array.
fn content<'a>(blocks: impl IntoIterator<Item = WireBlock<'a>>, out: &mut Vec<u8>) {
    out.push(b'[');
    for (index, block) in blocks.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        codec::write_original(&block, out);
    }
    out.push(b']');
}
