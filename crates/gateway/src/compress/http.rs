//! The HTTP requests of the contract, and their answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use palimpsest_core::ids::ProjectId;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::contract::CompressionRequest;
use super::metrics::Outcome;
use super::originals::hashes_in;
use super::{Compressed, Compression, InvalidRequest, Messages, Origin};
use crate::answer::Reason;
use crate::call::GatewayCall;
use crate::context::{NamedSession, Unmanaged};
use crate::in_flight::InFlight;
use crate::manage::{BODY_HEADER, REASON_HEADER, SESSION_HEADER, scope};
use crate::managed::{session_named, session_of_headers};
use crate::reading::{ReservedMemory, Unread, content_coding, decode_reserved, decode_whole};
use crate::request_body::{AgentBody, RequestBody};
use crate::response_body::ResponseBody;
use crate::route::OwnRoute;
use crate::thread::{MAX_INLINE_BYTES, on_fitting_thread};

/// The headers in which guardrails name a conversation. The first one that is present wins.
///
/// Headroom 0.42 and `LiteLLM` 1.110, as of November 2026.
const SESSION_HEADERS: [&str; 2] = ["x-headroom-session-id", "x-headroom-affinity"];
/// The header with which a caller gets its messages back unread.
const BYPASS_HEADER: &str = "x-headroom-bypass";

/// The reason for a rejected request of a compression guardrail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Problem {
    /// The body is no compression request.
    Invalid(InvalidRequest),
    /// The body exceeds `gateway.max_request_bytes`.
    TooLarge,
    /// `gateway.max_request_bytes_in_flight` is in use.
    Memory,
    /// The body has an unknown or invalid content coding.
    Encoding,
    /// The gateway has no sessions.
    NoSessions,
    /// The project has no original of this hash.
    NotFound,
    /// The original cannot be read.
    Unavailable,
    /// A defect of Palimpsest.
    Defect,
}

impl Problem {
    pub(crate) const fn status(self) -> StatusCode {
        match self {
            Self::Invalid(_) | Self::Encoding => StatusCode::BAD_REQUEST,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Memory | Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::NoSessions => StatusCode::NOT_IMPLEMENTED,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::Defect => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Returns the type of the error in the API of Anthropic, and type and code in that of OpenAI.
    pub(crate) const fn kinds(self) -> (&'static str, &'static str, &'static str) {
        const INVALID: &str = "invalid_request_error";
        match self {
            Self::Invalid(_) => (INVALID, INVALID, "invalid_compression_request"),
            Self::Encoding => (INVALID, INVALID, "invalid_encoding"),
            Self::TooLarge => ("request_too_large", INVALID, "request_too_large"),
            Self::Memory => ("overloaded_error", "server_error", "gateway_overloaded"),
            Self::Unavailable => ("api_error", "server_error", "original_unavailable"),
            Self::Defect => ("api_error", "server_error", "internal_error"),
            Self::NoSessions => ("api_error", "server_error", "sessions_disabled"),
            Self::NotFound => ("not_found_error", INVALID, "original_not_found"),
        }
    }

    pub(crate) fn message(self) -> String {
        match self {
            Self::Invalid(invalid) => format!(
                "palimpsest: cannot compress the messages: the body {invalid}. Send a JSON object with an array \
                 `messages`."
            ),
            Self::Encoding => "palimpsest: cannot compress the messages: the body has an unknown or invalid content \
                               coding. Send it as gzip, deflate, br or zstd, or without a coding."
                .to_owned(),
            Self::TooLarge => "palimpsest: cannot compress the messages: the body exceeds gateway.max_request_bytes. \
                               Forward the messages as they are, or raise the limit."
                .to_owned(),
            Self::Memory => "palimpsest: the requests in flight use gateway.max_request_bytes_in_flight. Retry after a \
                             second, or raise the limit."
                .to_owned(),
            Self::NoSessions => "palimpsest: cannot compress messages without sessions. Set gateway.manage to true."
                .to_owned(),
            Self::NotFound => "palimpsest: the project has no original of this hash. Use a hash of `ccr_hashes`, and \
                               the project of the compression request."
                .to_owned(),
            Self::Defect => "palimpsest: cannot write the answer because of a defect. Forward the messages as they are; \
                             the log of the server describes the defect."
                .to_owned(),
            Self::Unavailable => "palimpsest: the original cannot be read at the moment. Retry; the log of the server \
                                  describes the fault."
                .to_owned(),
        }
    }
}

/// The body of an answer. The request counts as in flight until the caller has received the body.
struct AnswerBody {
    text: String,
    memory: ReservedMemory,
    _in_flight: InFlight,
}

impl AsRef<[u8]> for AnswerBody {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

/// The body of an answer with messages. The first five fields are those that guardrails read.
#[derive(Serialize)]
struct Answer<'a> {
    messages: &'a RawValue,
    tokens_before: u64,
    tokens_after: u64,
    tokens_saved: u64,
    /// The share of the tokens that is left.
    compression_ratio: f64,
    transforms_applied: Vec<&'static str>,
    ccr_hashes: Vec<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<Session<'a>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    compression_skipped: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    skip_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    skip_message: Option<String>,
}

#[derive(Serialize)]
struct Session<'a> {
    id: &'a str,
}

impl Compression {
    /// Answers a request of the contract.
    pub(crate) async fn answer(
        &self,
        route: &OwnRoute,
        request: Request<AgentBody>,
        (project, in_flight): (ProjectId, InFlight),
    ) -> Result<Response<ResponseBody>, Reason> {
        let (head, body) = request.into_parts();
        let call = in_flight.call.clone();
        let mut body_of_answer = AnswerBody {
            text: String::new(),
            memory: ReservedMemory::new(self.memory.clone()),
            _in_flight: in_flight,
        };
        let memory = &mut body_of_answer.memory;
        let mut headers = HeaderMap::new();
        body_of_answer.text = match route {
            OwnRoute::Compress => {
                let answered =
                    self.answer_compress(&head, (body, memory), (project, call), &mut headers);
                let answered = answered.await;
                if answered.is_err() {
                    self.metrics.rejected();
                }
                answered?
            }
            OwnRoute::Retrieve(hash) => {
                let query = head.uri.query().unwrap_or_default();
                self.answer_retrieve(hash, query, project, memory).await?
            }
        };
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        // The owner is dropped with the last reference to its bytes, which releases the reserved memory and the guard
        // of the request in flight.
        let body = Bytes::from_owner(body_of_answer);
        let mut response = Response::new(ResponseBody::Own(Some(body)));
        *response.headers_mut() = headers;
        Ok(response)
    }

    async fn answer_compress(
        &self,
        head: &Parts,
        (body, memory): (AgentBody, &mut ReservedMemory),
        (project, call): (ProjectId, GatewayCall),
        headers: &mut HeaderMap,
    ) -> Result<String, Reason> {
        let begun = Instant::now();
        // The body is received even for a bypass, because the answer repeats its array.
        let body = self.receive(&head.headers, (body, &call), memory).await?;
        let is_large = body.len() > MAX_INLINE_BYTES;
        let read = on_fitting_thread(is_large, move || CompressionRequest::read(body)).await;
        let request = read.map_err(|_| Reason::Compression(Problem::Defect))?;
        let request = request.map_err(|invalid| Reason::Compression(Problem::Invalid(invalid)))?;
        let compressed = if is_bypassed(&head.headers) {
            Compressed::untouched()
        } else {
            let origin = Origin {
                call,
                project,
                scope: scope(&head.headers),
                session: session(&head.headers, &request),
            };
            self.compress(&request, origin).await
        };
        // `answer` counts this error as a rejection, so it is not counted as a compression too.
        if let Some(reason) = compressed.unmanaged.filter(|_| self.requires_session) {
            return Err(Reason::Unmanaged(reason));
        }
        let outcome = compressed.outcome();
        self.metrics.compressed(
            outcome,
            compressed.unmanaged,
            (compressed.tokens_before, compressed.tokens_after),
            begun.elapsed(),
        );
        compressed.describe(outcome, headers);
        let write = move || compressed.body(&request);
        let written = on_fitting_thread(is_large, write).await;
        let written = written.ok().flatten();
        written.ok_or(Reason::Compression(Problem::Defect))
    }

    /// Receives the body of a request, without a content coding.
    async fn receive(
        &self,
        headers: &HeaderMap,
        (body, call): (AgentBody, &GatewayCall),
        memory: &mut ReservedMemory,
    ) -> Result<Bytes, Reason> {
        let has_stalled = Arc::new(AtomicBool::new(false));
        let mut body = RequestBody::new(
            body,
            self.stall,
            Arc::clone(&has_stalled),
            call.request_bytes(),
        );
        let max = self.max_bytes;
        let receiving = body.receive(|size| {
            if size > max {
                return Err(Problem::TooLarge);
            }
            // The array exists twice: in the body, and in the answer.
            let reserved = memory.reserve(size.saturating_mul(2));
            reserved.map_err(|_| Problem::Memory)
        });
        let Some(received) = receiving.await.map_err(Reason::Compression)? else {
            return Err(if has_stalled.load(SeqCst) {
                Reason::Stalled
            } else {
                Reason::Compression(Problem::Invalid(InvalidRequest::Incomplete))
            });
        };
        let problem = |unread| {
            Reason::Compression(match unread {
                Unread::TooLarge => Problem::TooLarge,
                Unread::Memory => Problem::Memory,
                Unread::Panic => Problem::Defect,
                _ => Problem::Encoding,
            })
        };
        let coding = content_coding(headers).map_err(problem)?;
        let decoded = decode_reserved(coding, received, max, memory).await;
        let decoded = decoded.map_err(problem)?;
        let size: usize = decoded.iter().map(Bytes::len).sum();
        memory.reserve(size.saturating_mul(2)).map_err(problem)?;
        // The text has no coding any more, so the frames are only joined.
        decode_whole(b"", &decoded, |_| Ok(())).map_err(problem)
    }
}

/// Returns true if the caller wants its messages back.
fn is_bypassed(headers: &HeaderMap) -> bool {
    let value = headers.get(BYPASS_HEADER).map(HeaderValue::as_bytes);
    value.is_some_and(|value| value.eq_ignore_ascii_case(b"true"))
}

/// Returns the session that a request names.
fn session(headers: &HeaderMap, request: &CompressionRequest) -> Option<NamedSession> {
    let of_contract = || {
        let header = |name: &&str| headers.get(*name)?.to_str().ok();
        let text = request.session.as_deref();
        let text = text.or_else(|| SESSION_HEADERS.iter().find_map(header))?;
        session_named(text).map(|id| NamedSession { id, is_own: false })
    };
    let mut named = session_of_headers(headers).or_else(of_contract)?;
    // A request without tools can be a side request of an agent. Guardrails leave the tools out of each request.
    named.is_own |= !request.has_tools;
    Some(named)
}

impl Compressed {
    const fn outcome(&self) -> Outcome {
        match (&self.array, self.unmanaged) {
            (_, Some(_)) => Outcome::Unmanaged,
            (Messages::Original, None) => Outcome::Original,
            (Messages::Replaced(_), None) => Outcome::Replaced,
            (Messages::View(_), None) => Outcome::View,
        }
    }

    /// Adds the headers about the messages to their answer.
    fn describe(&self, outcome: Outcome, headers: &mut HeaderMap) {
        headers.insert(BODY_HEADER, HeaderValue::from_static(outcome.name()));
        let session = self.session.as_ref().map(HeaderValue::try_from);
        if let Some(Ok(session)) = session {
            headers.insert(SESSION_HEADER, session);
        }
        if let Some(reason) = self.unmanaged {
            headers.insert(REASON_HEADER, HeaderValue::from_static(reason.name()));
        }
    }

    fn body(&self, request: &CompressionRequest) -> Option<String> {
        let array = match &self.array {
            Messages::Original => request.array(),
            Messages::Replaced(array) | Messages::View(array) => array,
        };
        let is_view = matches!(self.array, Messages::View(_));
        let transforms = [(self.replaced, "persist"), (is_view, "view")];
        let applied = transforms.into_iter().filter(|(is_applied, _)| *is_applied);
        #[expect(clippy::cast_precision_loss, reason = "a ratio of counts below 2^52")]
        let compression_ratio = match self.tokens_before {
            // Messages without a count were not changed, so all of their tokens are left.
            0 => 1.0,
            before => self.tokens_after as f64 / before as f64,
        };
        let answer = Answer {
            messages: serde_json::from_str(array).ok()?,
            tokens_before: self.tokens_before,
            tokens_after: self.tokens_after,
            tokens_saved: self.tokens_before.saturating_sub(self.tokens_after),
            compression_ratio,
            transforms_applied: applied.map(|(_, name)| name).collect(),
            // Searched in the final text, because a view can omit new replacements, and an array can contain older
            // ones.
            ccr_hashes: hashes_in(array),
            session: self.session.as_deref().map(|id| Session { id }),
            compression_skipped: self.unmanaged.is_some(),
            skip_reason: self.unmanaged.map(Unmanaged::name),
            skip_message: self.unmanaged.map(|reason| {
                format!(
                    "palimpsest: no session has taken the messages (reason: {}). Forward them as they are. \
                     docs/gateway.md lists the reasons.",
                    reason.name()
                )
            }),
        };
        serde_json::to_string(&answer).ok()
    }
}
