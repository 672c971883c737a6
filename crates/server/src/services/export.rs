//! `ExportTranscript`: a transcript as a file, in chunks.

mod claude_code;
mod complete;

use async_stream::try_stream;
use bytes::Bytes;
use palimpsest_core::codec;
use palimpsest_core::ids::{Revision, SessionKey};
use palimpsest_core::session::Session;
use palimpsest_core::view::{Provider, WireBlock};
use palimpsest_proto::context::v1::{ExportTranscriptRequest, ExportTranscriptResponse, Format};
use tonic::Status;

use super::Service;
use super::context::Replies;
use super::originals::{Original, Walk, put_back};
use crate::convert;
use crate::errors::ServiceError;

/// How the file is put together.
#[derive(Debug)]
enum File {
    /// One object a line, with everything that is known of a message.
    Complete(Box<complete::Lines>),
    /// One object a line, as Claude Code writes them.
    ClaudeCode(claude_code::Lines),
    /// One array of a provider's messages.
    Array(Provider),
}

impl File {
    fn new(format: i32, session: &Session, partial: bool) -> Result<Self, ServiceError> {
        let key = session.key();
        Ok(match Format::try_from(format) {
            Ok(Format::Unspecified | Format::PalimpsestJsonl) => {
                Self::Complete(Box::new(complete::Lines::of(session, partial)))
            }
            Ok(Format::ClaudeCodeJsonl) => Self::ClaudeCode(claude_code::Lines::new(&key.session)),
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

    fn message(&mut self, original: &Original, is_first: bool) -> Bytes {
        let data = match self {
            Self::Complete(lines) => lines.line(original),
            Self::ClaudeCode(lines) => lines.line(&original.message, original.entry.standing),
            Self::Array(provider) => elements(original, *provider, is_first),
        };
        data.into()
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
) -> Result<Replies<ExportTranscriptResponse>, ServiceError> {
    let key = convert::session_key(&request.session, "session")?;
    let inline = request.inline_results.unwrap_or(true);
    let partial = request.filter.is_some() || !inline;
    let filter = convert::message_filter(request.filter)?;
    let begin = |session: &Session| {
        let file = File::new(request.format, session, partial);
        (session.revision(), file)
    };
    let (revision, file) = service.sessions.read(&key, begin).await?;
    let mut file = file?;
    let mut walk = Walk::begin(service, &key, filter, false, None).await?;
    let service = service.clone();
    let stream = try_stream! {
        let mut exported = 0;
        let begin = file.begin();
        if !begin.is_empty() {
            yield part(begin, exported);
        }
        while !walk.is_done() {
            let originals = walk.chunk(&service, usize::MAX).await.map_err(Status::from)?;
            for mut original in originals {
                if inline {
                    // What a caller appended in a stored result's place is not the original.
                    put_back(&service, &key, &mut original).await.map_err(Status::from)?;
                }
                let data = file.message(&original, exported == 0);
                exported += 1;
                yield part(data, exported);
            }
        }
        yield ExportTranscriptResponse {
            data: file.end(),
            exported_messages: exported,
            last: true,
            revision: revision.get(),
        };
    };
    Ok(Box::pin(stream))
}

/// A whole transcript in the format that loses nothing, some lines at a time, for whoever keeps it
/// before the session is deleted.
#[derive(Debug)]
pub struct CompleteExport {
    key: SessionKey,
    revision: Revision,
    walk: Walk,
    lines: complete::Lines,
    is_begun: bool,
    is_ended: bool,
}

impl CompleteExport {
    /// Begins an export.
    pub(crate) async fn begin(service: &Service, key: &SessionKey) -> Result<Self, ServiceError> {
        let filter = convert::message_filter(None)?;
        let begin = |session: &Session| (session.revision(), complete::Lines::of(session, false));
        let (revision, lines) = service.sessions.read(key, begin).await?;
        Ok(Self {
            key: key.clone(),
            revision,
            walk: Walk::begin(service, key, filter, false, None).await?,
            lines,
            is_begun: false,
            is_ended: false,
        })
    }

    /// The session's revision when the export began.
    pub(crate) const fn revision(&self) -> Revision {
        self.revision
    }

    /// The next lines; none after the last.
    pub(crate) async fn next(
        &mut self,
        service: &Service,
    ) -> Result<Option<Vec<Bytes>>, ServiceError> {
        if !std::mem::replace(&mut self.is_begun, true) {
            return Ok(Some(vec![self.lines.begin().into()]));
        }
        if self.walk.is_done() {
            let is_ended = std::mem::replace(&mut self.is_ended, true);
            return Ok((!is_ended).then(|| vec![self.lines.end().into()]));
        }
        let mut originals = self.walk.chunk(service, usize::MAX).await?;
        for original in &mut originals {
            put_back(service, &self.key, original).await?;
        }
        let lines = originals.iter().map(|it| self.lines.line(it).into());
        Ok(Some(lines.collect()))
    }
}

fn part(data: Bytes, exported_messages: u64) -> ExportTranscriptResponse {
    ExportTranscriptResponse {
        data,
        exported_messages,
        ..ExportTranscriptResponse::default()
    }
}

fn elements(original: &Original, provider: Provider, is_first: bool) -> Vec<u8> {
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

/// An object as a line of its own, with the message last, as the bytes that it has: unknown fields and
/// numbers stay as they are. A line break can only be space between values, and would end the line.
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

/// Appends blocks as they came, between brackets.
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
