//! Reads a response beside its forwarding, and assembles it to the JSON of a response without a stream.
//!
//! The reader has no I/O and never changes a byte. It gives up with a reason if it meets something that it does not
//! understand or that exceeds a limit. The forwarding continues then.

mod assemble;
mod coding;
mod fields;
mod memory;
mod sse;
mod summary;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method};

use self::assemble::{Assembler, Progress};
use self::coding::Decoder;
pub(crate) use self::coding::{content_coding, decode_reserved, decode_whole};
pub(crate) use self::fields::Fields;
pub use self::memory::ReadMemory;
pub(crate) use self::memory::ReservedMemory;
pub(crate) use self::sse::{EventParser, write_event};
pub use self::summary::ResponseSummary;

/// An API whose responses are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseApi {
    /// Anthropic's Messages.
    Messages,
    /// OpenAI's Chat Completions.
    Chat,
    /// OpenAI's Responses.
    Responses,
}

impl ResponseApi {
    /// All APIs.
    pub const ALL: [Self; 3] = [Self::Messages, Self::Chat, Self::Responses];

    /// Returns the API of a request whose response is read. `None` for any other request.
    pub(crate) fn of(method: &Method, path: &str) -> Option<Self> {
        if *method != Method::POST {
            return None;
        }
        // The base URL of an upstream can end with `/v1`. Its clients then send paths without it.
        match path.strip_prefix("/v1").unwrap_or(path) {
            "/messages" => Some(Self::Messages),
            "/chat/completions" => Some(Self::Chat),
            "/responses" => Some(Self::Responses),
            _ => None,
        }
    }

    /// Returns the name in metrics and logs.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::Chat => "chat",
            Self::Responses => "responses",
        }
    }
}

/// The reason for a response that is not read. It is forwarded all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unread {
    /// The content coding is none of gzip, deflate, br and zstd.
    #[error("its content coding is unknown")]
    Encoding,
    /// The body is neither JSON nor a stream of events.
    #[error("its content type is neither JSON nor an event stream")]
    ContentType,
    /// The coding or the JSON is invalid.
    #[error("its coding or its JSON is invalid")]
    Malformed,
    /// An event cannot be added to the response.
    #[error("it contains an event that the gateway does not understand")]
    Unknown,
    /// An event or the content exceeds its maximum size.
    #[error("it is larger than gateway.max_response_bytes or the maximum of one event")]
    TooLarge,
    /// One frame decodes to more than the reader decodes at once.
    #[error("a compressed frame of it is too large when decompressed")]
    Expansion,
    /// The memory of all readers is exhausted.
    #[error("gateway.max_response_bytes_in_flight is exhausted")]
    Memory,
    /// The reader panicked. This is a defect.
    #[error("the reader panicked")]
    Panic,
}

impl Unread {
    /// All reasons.
    pub(crate) const ALL: [Self; 8] = [
        Self::Encoding,
        Self::ContentType,
        Self::Malformed,
        Self::Unknown,
        Self::TooLarge,
        Self::Expansion,
        Self::Memory,
        Self::Panic,
    ];

    /// Returns the name in metrics and logs.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Encoding => "encoding",
            Self::ContentType => "content_type",
            Self::Malformed => "malformed",
            Self::Unknown => "unknown_event",
            Self::TooLarge => "too_large",
            Self::Expansion => "expansion",
            Self::Memory => "memory",
            Self::Panic => "panic",
        }
    }
}

impl From<serde_json::Error> for Unread {
    // The error is dropped, because it can contain content.
    fn from(_: serde_json::Error) -> Self {
        Self::Malformed
    }
}

/// Returns true if the headers are those of a stream of events.
pub(crate) fn is_event_stream(headers: &HeaderMap) -> bool {
    media_type(headers) == b"text/event-stream"
}

/// Returns the media type of a response without its parameters, in lower case.
fn media_type(headers: &HeaderMap) -> Vec<u8> {
    let media = headers.get(CONTENT_TYPE);
    let media = media.map_or(&b""[..], |value| value.as_bytes());
    let media = media.split(|byte| *byte == b';').next().unwrap_or_default();
    media.trim_ascii().to_ascii_lowercase()
}

/// The end of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseEnd {
    /// The response is complete.
    Complete,
    /// The provider reported an error inside the response.
    Failed,
    /// The response ended before its last event.
    Cut,
}

/// A response that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinishedResponse {
    /// The end of the response.
    pub end: ResponseEnd,
    /// The JSON of the response, as the provider sends it without a stream. A response that is not complete contains
    /// the parts that a client can use. `None` if the response did not begin.
    pub json: Option<Vec<u8>>,
    /// Usage and stop reason.
    pub summary: ResponseSummary,
}

/// A reader of one response.
///
/// A reader uses at most twice `max_bytes` of content, 32 MiB of events, 4 MiB of decoded text, and the window of the
/// coding: 16 MiB for br, 8 MiB for zstd, 32 KiB otherwise. Content and events count as [`ReadMemory`].
#[derive(Debug)]
pub struct Reader {
    api: ResponseApi,
    decoder: Decoder,
    body: ReadBody,
    /// The maximum size of the content, in bytes.
    max_bytes: usize,
    memory: ReservedMemory,
}

#[derive(Debug)]
enum ReadBody {
    /// One JSON value. It is parsed at the end of the body.
    Whole(Vec<u8>),
    Stream {
        events: EventParser,
        assembler: Assembler,
        end: Option<ResponseEnd>,
    },
}

impl Reader {
    /// Creates a reader for a response with these headers.
    pub fn new(
        api: ResponseApi,
        headers: &HeaderMap,
        max_bytes: usize,
        memory: ReadMemory,
    ) -> Result<Self, Unread> {
        let coding = content_coding(headers)?;
        let body = match media_type(headers).as_slice() {
            b"application/json" => ReadBody::Whole(Vec::new()),
            b"text/event-stream" => ReadBody::Stream {
                events: EventParser::default(),
                assembler: Assembler::new(api),
                end: None,
            },
            _ => return Err(Unread::ContentType),
        };
        Ok(Self {
            api,
            decoder: Decoder::new(coding.trim_ascii())?,
            body,
            max_bytes,
            memory: ReservedMemory::new(memory),
        })
    }

    /// Reads a frame of the body. Returns the position in the frame at which the last event of the response begins, if
    /// that event ends in this frame: 0 if the event began in an earlier frame, or if the frame is compressed.
    pub fn read(&mut self, frame: &[u8]) -> Result<Option<usize>, Unread> {
        let text = self.decoder.decode(frame)?;
        match &mut self.body {
            ReadBody::Whole(json) => {
                let size = json.len() + text.len();
                if size > self.max_bytes {
                    return Err(Unread::TooLarge);
                }
                self.memory.reserve(size)?;
                json.extend_from_slice(&text);
                Ok(None)
            }
            // Bytes after the last event belong to no event.
            ReadBody::Stream { end: Some(_), .. } => Ok(None),
            ReadBody::Stream {
                events,
                assembler,
                end,
            } => {
                let mut rest = &*text;
                // A frame can begin with the line feed of CR LF, which belongs to the event before.
                events.skip_end_of_event(&mut rest);
                let mut begins_at = text.len() - rest.len();
                while let Some(event) = events.next(&mut rest)? {
                    if let Progress::Ended(ended) = assembler.add(&event)? {
                        *end = Some(ended);
                        // A position in the decoded text has none in a compressed frame, so the whole frame is held.
                        let is_identity = self.decoder.is_identity();
                        return Ok(Some(if is_identity { begins_at } else { 0 }));
                    }
                    if assembler.memory() > self.max_bytes {
                        return Err(Unread::TooLarge);
                    }
                    begins_at = text.len() - rest.len();
                }
                self.memory.reserve(assembler.memory() + events.memory())?;
                Ok(None)
            }
        }
    }

    /// Returns true if the response is a stream of events.
    pub(crate) fn is_stream(&self) -> bool {
        matches!(self.body, ReadBody::Stream { .. })
    }

    /// Returns the size of the content so far, in bytes.
    pub(crate) fn content_bytes(&self) -> usize {
        match &self.body {
            ReadBody::Whole(json) => json.len(),
            ReadBody::Stream { assembler, .. } => assembler.memory(),
        }
    }

    /// Returns the response so far. `is_whole` is true if its body ended as HTTP requires.
    pub fn finish(self, is_whole: bool) -> Result<FinishedResponse, Unread> {
        let (json, end) = match self.body {
            ReadBody::Whole(json) if is_whole => (Some(json), None),
            // A part of one JSON value cannot be parsed.
            ReadBody::Whole(_) => (None, Some(ResponseEnd::Cut)),
            ReadBody::Stream { assembler, end, .. } => {
                let end = end.unwrap_or_else(|| {
                    if is_whole {
                        assembler.end_without_last_event()
                    } else {
                        ResponseEnd::Cut
                    }
                });
                (assembler.finish()?, Some(end))
            }
        };
        let (summary, own_end) = match &json {
            Some(json) => summary::read(self.api, json)?,
            None => (ResponseSummary::default(), ResponseEnd::Cut),
        };
        Ok(FinishedResponse {
            end: end.unwrap_or(own_end),
            json,
            summary,
        })
    }
}
