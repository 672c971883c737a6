//! `ReadToolResult`: returns the original of a tool result, completely or in part.

use bytes::Bytes;
use futures::stream;
use palimpsest_core::command::Rejection;
use palimpsest_core::ids::{CallKey, Ordinal, SessionKey};
use palimpsest_core::levels::results::file_of;
use palimpsest_core::limits::Limits;
use palimpsest_core::session::{PersistDecision, Session, TranscriptEntry};
use palimpsest_engine::results::{
    ResultSelection, in_file, in_message, line_of, newlines, range, search,
};
use palimpsest_engine::search_threads::{SearchBudget, SearchEnd};
use palimpsest_proto::context::v1::read_tool_result_request::{Result as Whose, Selection as Part};
use palimpsest_proto::context::v1::{
    CallRef, ErrorReason, LineMatch, ReadToolResultRequest, ReadToolResultResponse, ToolResultInfo,
};
use sha2::{Digest as _, Sha256};
use tokio::task::spawn_blocking;
use tonic::Status;

use super::Service;
use super::context::ReplyStream;
use super::messages::number;
use crate::convert::{self, PageCursor};
use crate::errors::ServiceError;
use crate::grpc::CallContext;

const DEFAULT_MAX_BYTES: u32 = 1024 * 1024;
const MAX_BYTES: std::ops::RangeInclusive<u32> = 1024..=16 * 1024 * 1024;
const CHUNK_BYTES: usize = 256 * 1024;
const MAX_CONTEXT_LINES: u32 = 100;
/// The assumed number of bytes per token.
const BYTES_PER_TOKEN: u64 = 4;

/// The original of a tool result.
pub(super) struct OriginalResult {
    pub(super) info: ToolResultInfo,
    pub(super) text: String,
}

pub(super) async fn read(
    service: &Service,
    request: ReadToolResultRequest,
) -> Result<ReplyStream<ReadToolResultResponse>, ServiceError> {
    let key = convert::session_key(&request.session, "session")?;
    let digest = convert::body_digest(&request);
    let from = number(convert::page_token(&request.page_token, digest)?.as_ref())?;
    let max_bytes = match request.max_bytes {
        0 => DEFAULT_MAX_BYTES,
        given if MAX_BYTES.contains(&given) => given,
        _ => {
            return Err(ServiceError::invalid(
                "max_bytes",
                "must be between 1 KiB and 16 MiB",
            ));
        }
    };
    let limits = service.limits_of(&key).await?;
    let selection = selection(&limits, request.selection)?;
    let searches = matches!(selection, ResultSelection::Search { .. });
    let whose = request
        .result
        .ok_or_else(|| ServiceError::invalid("call", "is required, or reference"))?;
    let original = original(service, &key, &whose).await?;
    let cut = move |work: &mut SearchBudget| {
        answers(original, &selection, (from, max_bytes as usize), work)
    };
    // A search runs on the search threads with a work limit. Copying a range needs no limit.
    let cut = if searches {
        let work = SearchBudget::of_call();
        service.searches.run(&key.project, work, cut).await?.0
    } else {
        spawn_blocking(move || cut(&mut SearchBudget::default()))
            .await
            .map_err(|error| ServiceError::internal("cut a tool result", error))?
    };
    let (mut answers, next) = cut.map_err(ended)?;
    if let Some(last) = answers.last_mut() {
        last.last = true;
        last.next_page_token = next
            .map(|next| convert::page_token_text(&PageCursor::Number(next), digest))
            .unwrap_or_default();
    }
    let answers = answers.into_iter().map(Ok::<_, Status>);
    Ok(Box::pin(stream::iter(answers)))
}

fn selection(limits: &Limits, part: Option<Part>) -> Result<ResultSelection, ServiceError> {
    Ok(match part {
        None => ResultSelection::All,
        Some(Part::ByteRange(bytes)) => ResultSelection::Bytes {
            offset: bytes.offset_bytes,
            length: bytes.length_bytes,
        },
        Some(Part::LineRange(lines)) if lines.first_line == 0 => {
            return Err(ServiceError::invalid(
                "line_range.first_line",
                "must be at least 1",
            ));
        }
        Some(Part::LineRange(lines)) => ResultSelection::Lines {
            first: lines.first_line,
            lines: lines.lines,
        },
        Some(Part::HeadLines(lines)) => ResultSelection::Lines {
            first: 1,
            lines: Some(lines.into()),
        },
        Some(Part::TailLines(lines)) => ResultSelection::Tail(lines.into()),
        Some(Part::Search(search)) => {
            // Context lines multiply the size of the reply, so their number is limited.
            if search.context_lines > MAX_CONTEXT_LINES {
                let what = format!("must be at most {MAX_CONTEXT_LINES}");
                return Err(ServiceError::invalid("search.context_lines", what));
            }
            ResultSelection::Search {
                pattern: convert::text_pattern(search.pattern, limits, "search.pattern")?,
                context: search.context_lines as usize,
            }
        }
    })
}

/// Builds the chunks of a reply. Also returns the position at which the next page continues.
fn answers(
    original: OriginalResult,
    selection: &ResultSelection,
    (from, max_bytes): (Option<u64>, usize),
    work: &mut SearchBudget,
) -> Result<(Vec<ReadToolResultResponse>, Option<u64>), SearchEnd> {
    let OriginalResult { info, text } = original;
    let mut answers = Vec::new();
    let next = if let ResultSelection::Search { pattern, context } = selection {
        let page = (from.unwrap_or(1), max_bytes);
        let (found, next) = search(&text, pattern, *context, page, work)?;
        let matches = found.into_iter().map(|found| LineMatch {
            first_line: found.first_line as u64,
            text: Bytes::copy_from_slice(&text.as_bytes()[found.range]),
            matching_lines: found.matching.into_iter().map(|line| line as u64).collect(),
        });
        answers.push(ReadToolResultResponse {
            matches: matches.collect(),
            ..ReadToolResultResponse::default()
        });
        next
    } else {
        let wanted = range(&text, selection);
        let start = from
            .and_then(|from| usize::try_from(from).ok())
            .unwrap_or(wanted.start);
        let start = start.clamp(wanted.start, wanted.end);
        let end = wanted.end.min(start.saturating_add(max_bytes));
        let mut line = line_of(&text, start);
        let bytes = Bytes::from(text);
        let mut at = start;
        // The loop adds at least one chunk, so the reply to an empty selection still contains `info`.
        loop {
            let data = bytes.slice(at..end.min(at + CHUNK_BYTES));
            let (first_line, offset) = (line, at);
            line += newlines(&data);
            at += data.len();
            answers.push(ReadToolResultResponse {
                data,
                offset_bytes: offset as u64,
                first_line,
                ..ReadToolResultResponse::default()
            });
            if at >= end {
                break;
            }
        }
        (end < wanted.end).then_some(end as u64)
    };
    if let Some(first) = answers.first_mut() {
        first.info = Some(info);
    }
    Ok((answers, next))
}

/// Returns the error for a search that ended without a result to return.
pub(super) fn ended(ended: SearchEnd) -> ServiceError {
    match ended {
        SearchEnd::Cancelled | SearchEnd::Late => ServiceError::deadline_exceeded(),
        SearchEnd::TooMuch => ServiceError::invalid(
            "search.pattern",
            "takes more work than one call may do on this result: read it by lines",
        ),
    }
}

/// The location of an original.
enum ResultLocation {
    /// In a message of the transcript.
    Message {
        entry: (Ordinal, TranscriptEntry),
        block: u16,
    },
    /// In a file: the message is not appended yet, or it contains a replacement.
    File { file: Box<str>, sha256: [u8; 32] },
}

/// A located result.
struct LocatedResult {
    call: CallRef,
    tool_name: String,
    reference: String,
    /// The approximate size of the original in bytes.
    bytes: u64,
    place: ResultLocation,
}

/// Reads the original of a tool result.
pub(super) async fn original(
    service: &Service,
    key: &SessionKey,
    whose: &Whose,
) -> Result<OriginalResult, ServiceError> {
    let find = |session: &Session| match whose {
        Whose::Call(call) => by_call(session, call),
        Whose::Reference(reference) => by_reference(session, reference),
    };
    let found = service.sessions.read(key, find).await??;
    let (call, tool_name, reference) = (found.call, found.tool_name, found.reference);
    // The original and the selected part stay in memory until the caller has received the last chunk. The expected
    // size is reserved before the read, so that many concurrent calls are rejected early.
    let expected = usize::try_from(found.bytes).unwrap_or(usize::MAX);
    let expected = expected.saturating_mul(2);
    CallContext::reserve_reply(expected)?;
    let (text, is_json) = match found.place {
        ResultLocation::Message { entry, block } => in_message(service, key, entry, block).await?,
        ResultLocation::File { file, sha256 } => in_file(service, key, &file, &sha256).await?,
    };
    CallContext::reserve_reply(text.len().saturating_mul(2).saturating_sub(expected))?;
    let make = move || {
        let info = ToolResultInfo {
            call: Some(call),
            tool_name,
            reference,
            media_type: if is_json {
                "application/json".into()
            } else {
                "text/plain".into()
            },
            total_bytes: text.len() as u64,
            total_lines: text.lines().count() as u64,
            sha256: Sha256::digest(text.as_bytes()).to_vec().into(),
        };
        OriginalResult { info, text }
    };
    let outcome = spawn_blocking(make).await;
    outcome.map_err(|error| ServiceError::internal("read a tool result", error))
}

fn by_call(session: &Session, named: &CallRef) -> Result<LocatedResult, ServiceError> {
    let offers = session.persist_decisions();
    let call = match find_call(session, named, "call") {
        // A result may be stored before the message of its call is appended.
        Err(missing) if missing.reason() == ErrorReason::ResultNotFound => {
            let offer = offers.unbound(&named.tool_use_id);
            let offer = offer.filter(|_| named.call_key.is_empty());
            let found = offer.and_then(|offer| locate_pending(session, offer));
            return found.ok_or(missing);
        }
        call => call?,
    };
    let missing = || ServiceError::result_not_found(&call.to_string());
    let known = session.calls().get(call).ok_or_else(missing)?;
    // The current result comes first, then a stored result, then the one that a rewind removed.
    let came = |place: Option<(Ordinal, u16)>| in_place(session, call, place?);
    came(known.result())
        .or_else(|| locate_pending(session, offers.of_call(call)?))
        .or_else(|| came(known.original))
        .ok_or_else(missing)
}

fn by_reference(session: &Session, reference: &str) -> Result<LocatedResult, ServiceError> {
    let template = &session.policy().tool_results.reference_template;
    let stored = session.stored();
    let found = file_of(template, session.key(), reference).and_then(|file| {
        // A result in the transcript has a position. Otherwise only the decision names its file.
        match stored.place_of(file).zip(stored.in_file(file)) {
            Some((place, stored)) => in_place(session, stored.call, place),
            None => locate_pending(session, session.persist_decisions().in_file(file)?),
        }
    });
    found.ok_or_else(|| ServiceError::result_not_found(&shortened(reference)))
}

/// Locates the result in a block of the transcript.
fn in_place(session: &Session, call: CallKey, place: (Ordinal, u16)) -> Option<LocatedResult> {
    let (message, block) = place;
    let entry = session.transcript().get(message)?;
    let stored = session.stored().at(message, block);
    let name = session.calls().get(call).map(|call| call.name.to_string());
    Some(LocatedResult {
        call: convert::call_ref(session, call),
        tool_name: name.unwrap_or_default(),
        reference: stored
            .map(|stored| convert::reference_to(session, &stored.file))
            .unwrap_or_default(),
        // The size of a result within its message is estimated, because the message is not read here.
        bytes: stored.map_or(
            u64::from(entry.size.result_tokens) * BYTES_PER_TOKEN,
            |stored| stored.bytes,
        ),
        place: match stored {
            Some(stored) if stored.only_file => ResultLocation::File {
                file: stored.file.clone(),
                sha256: stored.sha256,
            },
            _ => ResultLocation::Message {
                entry: (message, entry.clone()),
                block,
            },
        },
    })
}

/// Locates a result that was stored before its message was appended.
fn locate_pending(session: &Session, offer: &PersistDecision) -> Option<LocatedResult> {
    let kept = offer.kept.as_ref()?;
    Some(LocatedResult {
        call: convert::call_ref_of(session, offer),
        tool_name: offer.tool.to_string(),
        reference: convert::reference_to(session, &kept.file),
        bytes: kept.bytes,
        place: ResultLocation::File {
            file: kept.file.clone(),
            sha256: kept.sha256,
        },
    })
}

/// Returns the call that a request names by key or by the provider's id.
pub(super) fn find_call(
    session: &Session,
    named: &CallRef,
    field: &str,
) -> Result<CallKey, ServiceError> {
    let calls = session.calls();
    let by_key = match named.call_key.as_str() {
        "" => None,
        key => Some(convert::call_key(key, &format!("{field}.call_key"))?),
    };
    let not_found = |name: &str| ServiceError::result_not_found(&shortened(name));
    // A call key is unique. If the caller also sends the provider's id, both must name the same call.
    if let Some(key) = by_key {
        let call = calls.get(key).ok_or_else(|| not_found(&named.call_key))?;
        let agrees = named.tool_use_id.is_empty() || *call.id == *named.tool_use_id;
        return if agrees {
            Ok(key)
        } else {
            Err(Rejection::CallMismatch {
                call: key,
                id: shortened(&named.tool_use_id).into(),
            }
            .into())
        };
    }
    if named.tool_use_id.is_empty() {
        return Err(ServiceError::invalid(
            format!("{field}.tool_use_id"),
            "is required, or call_key",
        ));
    }
    // The view may show the call under an id that the service assigned.
    if let Some(key) = calls.mapped(&named.tool_use_id) {
        return Ok(key);
    }
    match calls.with_id(&named.tool_use_id) {
        [] => Err(not_found(&named.tool_use_id)),
        [call] => Ok(*call),
        several => Err(ServiceError::ambiguous_call(
            &format!("{field}.tool_use_id"),
            several
                .iter()
                .map(|call| convert::tool_call(session, *call))
                .collect(),
        )),
    }
}

/// Returns the beginning of a caller's text for an error.
fn shortened(name: &str) -> String {
    name.chars().take(200).collect()
}
