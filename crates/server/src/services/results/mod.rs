//! `ReadToolResult`: returns the original of a tool result, completely or in part.

use bytes::Bytes;
use futures::stream;
use palimpsest_core::command::Rejection;
use palimpsest_core::ids::SessionKey;
use palimpsest_core::limits::Limits;
use palimpsest_core::session::Session;
use palimpsest_engine::results::{
    CallName, LocateError, ResultLocation, ResultName, ResultSelection, in_file, in_message,
    line_of, locate, newlines, range, search,
};
use palimpsest_engine::search_threads::{SearchBudget, SearchEnd};
use palimpsest_proto::context::v1::read_tool_result_request::{Result as Whose, Selection as Part};
use palimpsest_proto::context::v1::{
    CallRef, LineMatch, ReadToolResultRequest, ReadToolResultResponse, ToolResultInfo,
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

// The contract states this default and these limits, so callers rely on them.
const DEFAULT_MAX_BYTES: u32 = 1024 * 1024;
const MAX_BYTES: std::ops::RangeInclusive<u32> = 1024..=16 * 1024 * 1024;
// Clients accept messages of 4 MiB by default, so each part stays far below.
const CHUNK_BYTES: usize = 256 * 1024;
const MAX_CONTEXT_LINES: u32 = 100;

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
        response_chunks(original, &selection, (from, max_bytes as usize), work)
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
    let (mut chunks, next) = cut.map_err(search_error)?;
    if let Some(last) = chunks.last_mut() {
        last.last = true;
        last.next_page_token = next
            .map(|next| convert::page_token_text(&PageCursor::Number(next), digest))
            .unwrap_or_default();
    }
    let chunks = chunks.into_iter().map(Ok::<_, Status>);
    Ok(Box::pin(stream::iter(chunks)))
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
fn response_chunks(
    original: OriginalResult,
    selection: &ResultSelection,
    (from, max_bytes): (Option<u64>, usize),
    work: &mut SearchBudget,
) -> Result<(Vec<ReadToolResultResponse>, Option<u64>), SearchEnd> {
    let OriginalResult { info, text } = original;
    let mut chunks = Vec::new();
    let next = if let ResultSelection::Search { pattern, context } = selection {
        let page = (from.unwrap_or(1), max_bytes);
        let (found, next) = search(&text, pattern, *context, page, work)?;
        let matches = found.into_iter().map(|found| LineMatch {
            first_line: found.first_line as u64,
            text: Bytes::copy_from_slice(&text.as_bytes()[found.range]),
            matching_lines: found.matching.into_iter().map(|line| line as u64).collect(),
        });
        chunks.push(ReadToolResultResponse {
            matches: matches.collect(),
            ..ReadToolResultResponse::default()
        });
        next
    } else {
        let wanted = range(&text, selection);
        let start = from
            .and_then(|from| usize::try_from(from).ok())
            .unwrap_or(wanted.start);
        // A page token is not authenticated, so its offset may lie outside of the selection.
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
            chunks.push(ReadToolResultResponse {
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
    if let Some(first) = chunks.first_mut() {
        first.info = Some(info);
    }
    Ok((chunks, next))
}

/// Returns the error for a search that ended without a result to return.
pub(super) fn search_error(ended: SearchEnd) -> ServiceError {
    match ended {
        SearchEnd::Cancelled | SearchEnd::DeadlineExceeded => ServiceError::deadline_exceeded(),
        SearchEnd::TooMuch => ServiceError::invalid(
            "search.pattern",
            "needs more work than one call may do on this result: read it by lines",
        ),
    }
}

/// Reads the original of a tool result.
pub(super) async fn original(
    service: &Service,
    key: &SessionKey,
    whose: &Whose,
) -> Result<OriginalResult, ServiceError> {
    let name = result_name(whose)?;
    let find = |session: &Session| {
        locate(session, &name).map_err(|error| not_located(session, &name, error))
    };
    let found = service.sessions.read(key, find).await??;
    let (tool_name, reference) = (found.tool_name, found.reference);
    let call = CallRef {
        call_key: found.call.map(|key| key.to_string()).unwrap_or_default(),
        tool_use_id: found.tool_use_id,
    };
    // The original and the selected part stay in memory until the caller has received the last chunk. The expected
    // size is reserved before the read, so that many concurrent calls are rejected early.
    let expected = usize::try_from(found.bytes).unwrap_or(usize::MAX);
    let expected = expected.saturating_mul(2);
    CallContext::reserve_reply(expected)?;
    let (text, is_json) = match found.location {
        ResultLocation::Message { entry, block } => in_message(service, key, entry, block).await?,
        ResultLocation::File { file, sha256 } => in_file(service, key, &file, &sha256).await?,
    };
    // The first reservation used the expected size, so only the difference is added.
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
    // The digest of a large result would block a thread of the runtime.
    let outcome = spawn_blocking(make).await;
    outcome.map_err(|error| ServiceError::internal("read a tool result", error))
}

/// Validates the name of a result.
fn result_name(whose: &Whose) -> Result<ResultName, ServiceError> {
    Ok(match whose {
        Whose::Call(call) => {
            let key = Some(call.call_key.as_str()).filter(|key| !key.is_empty());
            let key = key.map(|key| convert::call_key(key, "call.call_key"));
            ResultName::Call(CallName {
                key: key.transpose()?,
                tool_use_id: call.tool_use_id.clone(),
            })
        }
        Whose::Reference(reference) => ResultName::Reference(reference.clone()),
    })
}

/// Returns the error for a name that leads to no result.
fn not_located(session: &Session, name: &ResultName, error: LocateError) -> ServiceError {
    match error {
        LocateError::NotFound(name) => ServiceError::result_not_found(&shortened(&name)),
        LocateError::Mismatch(call) => {
            let id = match name {
                ResultName::Call(named) => shortened(&named.tool_use_id),
                ResultName::Reference(_) => String::new(),
            };
            let id = id.into();
            Rejection::CallMismatch { call, id }.into()
        }
        LocateError::Ambiguous(calls) => {
            let calls = calls.iter();
            let calls = calls.map(|call| convert::tool_call(session, *call));
            ServiceError::ambiguous_call("call.tool_use_id", calls.collect())
        }
        LocateError::Unnamed => {
            ServiceError::invalid("call.tool_use_id", "is required, or call_key")
        }
    }
}

/// Returns the beginning of a caller's text for an error.
fn shortened(name: &str) -> String {
    // An error travels in HTTP trailers, whose size is limited.
    name.chars().take(200).collect()
}
