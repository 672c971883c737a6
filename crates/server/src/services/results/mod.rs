//! `ReadToolResult`: the original of a tool result, whole or in part.

mod select;

use bytes::Bytes;
use futures::stream;
use palimpsest_core::ids::{CallKey, Ordinal, SessionKey};
use palimpsest_core::levels::results::{file_content, file_of, is_json};
use palimpsest_core::limits::Limits;
use palimpsest_core::message::{Block, Message, ToolResult};
use palimpsest_core::session::{Entry, Session};
use palimpsest_proto::context::v1::read_tool_result_request::{Result as Whose, Selection as Part};
use palimpsest_proto::context::v1::{
    CallRef, LineMatch, ReadToolResultRequest, ReadToolResultResponse, ToolResultInfo,
};
use sha2::{Digest as _, Sha256};
use tokio::task::spawn_blocking;
use tonic::Status;

use self::select::newlines;
pub(super) use self::select::{Selection, line_of, range, search};
use super::Service;
use super::context::Replies;
use super::messages::number;
use super::originals::contents;
use crate::convert::{self, Cursor};
use crate::errors::ServiceError;

const DEFAULT_MAX_BYTES: u32 = 1024 * 1024;
const MAX_BYTES: std::ops::RangeInclusive<u32> = 1024..=16 * 1024 * 1024;
const CHUNK_BYTES: usize = 256 * 1024;
const MAX_CONTEXT_LINES: u32 = 100;

/// The original of a result.
pub(super) struct Original {
    pub(super) info: ToolResultInfo,
    pub(super) text: String,
}

pub(super) async fn read(
    service: &Service,
    request: ReadToolResultRequest,
) -> Result<Replies<ReadToolResultResponse>, ServiceError> {
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
    let whose = request
        .result
        .ok_or_else(|| ServiceError::invalid("call", "is required, or reference"))?;
    let original = original(service, &key, &whose).await?;
    let cut = move || answers(original, &selection, from, max_bytes as usize);
    let (mut answers, next) = spawn_blocking(cut)
        .await
        .map_err(|error| ServiceError::internal("cut a tool result", error))?;
    if let Some(last) = answers.last_mut() {
        last.last = true;
        last.next_page_token = next
            .map(|next| convert::page_token_text(&Cursor::Number(next), digest))
            .unwrap_or_default();
    }
    let answers = answers.into_iter().map(Ok::<_, Status>);
    Ok(Box::pin(stream::iter(answers)))
}

fn selection(limits: &Limits, part: Option<Part>) -> Result<Selection, ServiceError> {
    Ok(match part {
        None => Selection::All,
        Some(Part::ByteRange(bytes)) => Selection::Bytes {
            offset: bytes.offset_bytes,
            length: bytes.length_bytes,
        },
        Some(Part::LineRange(lines)) if lines.first_line == 0 => {
            return Err(ServiceError::invalid(
                "line_range.first_line",
                "must be at least 1",
            ));
        }
        Some(Part::LineRange(lines)) => Selection::Lines {
            first: lines.first_line,
            lines: lines.lines,
        },
        Some(Part::HeadLines(lines)) => Selection::Lines {
            first: 1,
            lines: Some(lines.into()),
        },
        Some(Part::TailLines(lines)) => Selection::Tail(lines.into()),
        Some(Part::Search(search)) => {
            if search.context_lines > MAX_CONTEXT_LINES {
                let what = format!("must be at most {MAX_CONTEXT_LINES}");
                return Err(ServiceError::invalid("search.context_lines", what));
            }
            Selection::Search {
                pattern: convert::text_pattern(search.pattern, limits, "search.pattern")?,
                context: search.context_lines as usize,
            }
        }
    })
}

/// The chunks of an answer, and where a later one goes on.
fn answers(
    original: Original,
    selection: &Selection,
    from: Option<u64>,
    max_bytes: usize,
) -> (Vec<ReadToolResultResponse>, Option<u64>) {
    let Original { info, text } = original;
    let mut answers = Vec::new();
    let next = if let Selection::Search { pattern, context } = selection {
        let (found, next) = search(&text, pattern, *context, from.unwrap_or(1), max_bytes);
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
    (answers, next)
}

/// Where a result stands in the transcript.
struct Place {
    call: CallRef,
    tool_name: String,
    reference: String,
    entry: (Ordinal, Entry),
    block: u16,
}

/// The original of a result.
pub(super) async fn original(
    service: &Service,
    key: &SessionKey,
    whose: &Whose,
) -> Result<Original, ServiceError> {
    let find = |session: &Session| {
        let call = match whose {
            Whose::Call(call) => find_call(session, call, "call")?,
            Whose::Reference(reference) => by_reference(session, reference)?,
        };
        place(session, call)
    };
    let place = service.sessions.read(key, find).await??;
    let found = contents(service, key, vec![place.entry]).await?;
    let message = found.into_iter().next().map(|found| found.message);
    let (call, tool_name) = (place.call, place.tool_name);
    let make = move || {
        let message = message?;
        let result = result_in(&message, place.block)?;
        let text = file_content(result).into_owned();
        let info = ToolResultInfo {
            call: Some(call),
            tool_name,
            reference: place.reference,
            media_type: if is_json(result) {
                "application/json".into()
            } else {
                "text/plain".into()
            },
            total_bytes: text.len() as u64,
            total_lines: text.lines().count() as u64,
            sha256: Sha256::digest(text.as_bytes()).to_vec().into(),
        };
        Some(Original { info, text })
    };
    let outcome = spawn_blocking(make).await;
    outcome
        .map_err(|error| ServiceError::internal("read a tool result", error))?
        .ok_or(ServiceError::Internal {
            doing: "find a result where its index says it is",
            source: None,
        })
}

fn result_in(message: &Message, block: u16) -> Option<&ToolResult> {
    match message.blocks.get(usize::from(block))? {
        Block::ToolResult(result) => Some(result),
        _ => None,
    }
}

fn place(session: &Session, call: CallKey) -> Result<Place, ServiceError> {
    let missing = || ServiceError::ResultNotFound {
        name: call.to_string(),
    };
    let known = session.calls().get(call).ok_or_else(missing)?;
    let (message, block) = known.original.ok_or_else(missing)?;
    let entry = session.transcript().get(message).ok_or_else(missing)?;
    Ok(Place {
        call: convert::call_ref(session, call),
        tool_name: known.name.to_string(),
        reference: convert::reference_of(session, call),
        entry: (message, entry.clone()),
        block,
    })
}

fn by_reference(session: &Session, reference: &str) -> Result<CallKey, ServiceError> {
    let template = &session.policy().tool_results.reference_template;
    let file = file_of(template, session.key(), reference);
    let stored = file.and_then(|file| session.stored().in_file(file));
    stored
        .map(|stored| stored.call)
        .ok_or_else(|| ServiceError::ResultNotFound {
            name: reference.chars().take(200).collect(),
        })
}

/// The call that a request names.
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
    let not_found = |name: &str| ServiceError::ResultNotFound {
        name: name.chars().take(200).collect(),
    };
    if let Some(key) = by_key {
        let call = calls.get(key).ok_or_else(|| not_found(&named.call_key))?;
        let agrees = named.tool_use_id.is_empty() || *call.id == *named.tool_use_id;
        return if agrees {
            Ok(key)
        } else {
            Err(ServiceError::invalid(
                format!("{field}.tool_use_id"),
                "is not that of the call with this call_key",
            ))
        };
    }
    if named.tool_use_id.is_empty() {
        return Err(ServiceError::invalid(
            format!("{field}.tool_use_id"),
            "is required, or call_key",
        ));
    }
    // The model may have seen the call under an id of the service's own.
    if let Some(key) = calls.mapped(&named.tool_use_id) {
        return Ok(key);
    }
    match calls.with_id(&named.tool_use_id) {
        [] => Err(not_found(&named.tool_use_id)),
        [call] => Ok(*call),
        several => Err(ServiceError::AmbiguousCall {
            field: format!("{field}.tool_use_id"),
            candidates: several
                .iter()
                .map(|call| convert::tool_call(session, *call))
                .collect(),
        }),
    }
}
