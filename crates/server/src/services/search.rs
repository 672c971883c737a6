//! `SearchMessages`: a literal or a regular expression in the originals.

use super::Service;
use super::messages::place;
use super::originals::{Original, Walk, put_back};
use super::searching::{Ended, Work};
use crate::convert::{self, Cursor};
use crate::errors::ServiceError;
use palimpsest_core::message::{Block, Message};
use palimpsest_core::reading;
use palimpsest_core::session::Session;
use palimpsest_proto::context::v1::{
    BlockRef, CallRef, SearchHit, SearchMessagesRequest, SearchMessagesResponse,
};
use prost::Message as _;
use regex::Regex;

const DEFAULT_PAGE: u32 = 50;
const DEFAULT_SNIPPET_CHARS: usize = 120;
const MAX_SNIPPET_CHARS: u32 = 2_000;
/// How much text one call looks at before it answers with what it has.
const MAX_SCANNED_BYTES: usize = 64 * 1024 * 1024;

/// A match in one message.
struct Found {
    block: usize,
    offset: usize,
    len: usize,
    snippet: String,
    snippet_offset: usize,
}

pub(super) async fn search(
    service: &Service,
    request: SearchMessagesRequest,
) -> Result<SearchMessagesResponse, ServiceError> {
    Ok(search_from(service, request, None).await?.0)
}

/// The same from a message on, unless a page token names one; with the number of the message, from 1, at
/// which the rest begins.
pub(super) async fn search_from(
    service: &Service,
    request: SearchMessagesRequest,
    first: Option<u64>,
) -> Result<(SearchMessagesResponse, Option<u64>), ServiceError> {
    let key = convert::session_key(&request.session, "session")?;
    let limits = service.limits_of(&key).await?;
    let size = convert::page_size(request.page_size, DEFAULT_PAGE, limits.max_page_size)?;
    let digest = convert::body_digest(&request);
    let from = convert::page_token(&request.page_token, digest)?;
    let from = place(service, &key, from.as_ref()).await?;
    let from = from.or(first.map(|first| first.saturating_sub(1)));
    if request.snippet_chars > MAX_SNIPPET_CHARS {
        let what = format!("must be at most {MAX_SNIPPET_CHARS}");
        return Err(ServiceError::invalid("snippet_chars", what));
    }
    let chars = match request.snippet_chars {
        0 => DEFAULT_SNIPPET_CHARS,
        chars => chars as usize,
    };
    let pattern = convert::search_pattern(request.pattern, &limits, "pattern")?;
    let filter = convert::message_filter(request.filter, service.limits())?;
    let mut walk = Walk::begin(service, &key, filter, request.descending, from).await?;
    let mut response = SearchMessagesResponse {
        revision: walk.position().revision.get(),
        ..SearchMessagesResponse::default()
    };
    let (mut bytes, mut scanned, mut next) = (0, 0, None);
    let mut work = Work::of_call();
    'walk: while !walk.is_done() {
        let originals = walk.chunk(service, usize::MAX).await?;
        for mut original in originals {
            if response.hits.len() >= size
                || bytes >= limits.max_reply_bytes
                || scanned >= MAX_SCANNED_BYTES
                || work.is_spent()
            {
                response.ended_early = response.hits.len() < size;
                next = Some(original.ordinal);
                break 'walk;
            }
            put_back(service, &key, &mut original).await?;
            let lost = u32::try_from(original.unreadable.len()).unwrap_or(u32::MAX);
            response.unreadable_results = response.unreadable_results.saturating_add(lost);
            scanned += original.message.content_bytes();
            let ordinal = original.ordinal;
            let (found, done) = hits(service, &key, original, &pattern, chars, work).await?;
            work = done;
            match found {
                Ok(hits) => {
                    bytes += hits.iter().map(SearchHit::encoded_len).sum::<usize>();
                    response.hits.extend(hits);
                }
                Err(Ended::TooMuch) => {
                    response.ended_early = true;
                    next = Some(ordinal);
                    break 'walk;
                }
                Err(Ended::Late | Ended::Cancelled) => return Err(ServiceError::DeadlineExceeded),
            }
        }
    }
    let token = |next| {
        let cursor = Cursor::Within(walk.position(), walk.resume_at(next));
        convert::page_token_text(&cursor, digest)
    };
    response.next_page_token = next.map(token).unwrap_or_default();
    Ok((response, next.map(|next| u64::from(next.get()) + 1)))
}

/// All matches in one message: a page is cut between messages, so that its token is a place.
async fn hits(
    service: &Service,
    key: &palimpsest_core::ids::SessionKey,
    original: Original,
    pattern: &Regex,
    chars: usize,
    work: Work,
) -> Result<(Result<Vec<SearchHit>, Ended>, Work), ServiceError> {
    let (message, owned) = (std::sync::Arc::clone(&original.message), pattern.clone());
    let part = move |work: &mut Work| find(&message, &owned, chars, work);
    let (found, work) = service.searches.run(&key.project, work, part).await?;
    let found = match found {
        Ok(found) if !found.is_empty() => found,
        Ok(_) => return Ok((Ok(Vec::new()), work)),
        Err(ended) => return Ok((Err(ended), work)),
    };
    let tell = |session: &Session| {
        let hit = |found: Found| hit(session, &original, found);
        found.into_iter().map(hit).collect()
    };
    let hits = service.sessions.read(key, tell).await?;
    Ok((Ok(hits), work))
}

/// At most so many matches of one message are told: more say nothing that these do not.
const MAX_HITS_A_MESSAGE: usize = 100;

fn find(
    message: &Message,
    pattern: &Regex,
    chars: usize,
    work: &mut Work,
) -> Result<Vec<Found>, Ended> {
    let mut found = Vec::new();
    for (index, block) in message.blocks.iter().enumerate() {
        let text = reading::text(block);
        let mut from = 0;
        while let Some((hit_start, hit_end)) = work.find(pattern, &text, from)? {
            if found.len() == MAX_HITS_A_MESSAGE {
                return Ok(found);
            }
            from = hit_end;
            let start = text[..hit_start]
                .char_indices()
                .rev()
                .take(chars)
                .last()
                .map_or(hit_start, |(at, _)| at);
            let shown_end = hit_end.min(hit_start + 4 * chars.max(1));
            let shown_end = text.floor_char_boundary(shown_end);
            let end = text[shown_end..]
                .char_indices()
                .nth(chars)
                .map_or(text.len(), |(at, _)| shown_end + at);
            found.push(Found {
                block: index,
                offset: hit_start,
                len: hit_end - hit_start,
                snippet: text[start..end].to_owned(),
                snippet_offset: hit_start - start,
            });
        }
    }
    Ok(found)
}

fn hit(session: &Session, original: &Original, found: Found) -> SearchHit {
    let block = u32::try_from(found.block).unwrap_or(u32::MAX);
    SearchHit {
        block: Some(BlockRef {
            message_id: original.entry.id.to_string(),
            block_index: block,
        }),
        ordinal: u64::from(original.ordinal.get()) + 1,
        role: convert::export_role(original.entry.role).into(),
        visibility: convert::visibility(original.entry.standing).into(),
        call: call(session, original, found.block),
        create_time: original.message.at.map(convert::export_timestamp),
        snippet: found.snippet,
        match_offset_bytes: found.offset as u64,
        match_length_bytes: u32::try_from(found.len).unwrap_or(u32::MAX),
        snippet_match_offset_bytes: u32::try_from(found.snippet_offset).unwrap_or(u32::MAX),
    }
}

fn call(session: &Session, original: &Original, block: usize) -> Option<CallRef> {
    let index = u16::try_from(block).ok()?;
    match original.message.blocks.get(block)? {
        Block::ToolUse(call) => Some(CallRef {
            call_key: session
                .calls()
                .at(original.ordinal, index)
                .map(|key| key.to_string())
                .unwrap_or_default(),
            tool_use_id: call.id.to_string(),
        }),
        Block::ToolResult(result) => Some(CallRef {
            call_key: session
                .calls()
                .answered_by(&result.tool_use_id, original.ordinal, index)
                .map(|key| key.to_string())
                .unwrap_or_default(),
            tool_use_id: result.tool_use_id.to_string(),
        }),
        _ => None,
    }
}
