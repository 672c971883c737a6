//! `SearchMessages`: finds a literal or a regular expression in originals.

use palimpsest_core::message::Block;
use palimpsest_core::session::Session;
use palimpsest_engine::originals::{OriginalMessage, TranscriptWalk};
use palimpsest_engine::searching::{self, SearchCursor, SearchMatch, SearchQuery, TextPosition};
use palimpsest_proto::context::v1::{
    BlockRef, CallRef, SearchHit, SearchMessagesRequest, SearchMessagesResponse,
};
use prost::Message as _;

use super::Service;
use super::messages::place;
use crate::convert::{self, EntryPosition, PageCursor};
use crate::errors::ServiceError;

// The contract states these three values, so callers rely on them.
const DEFAULT_PAGE: u32 = 50;
const DEFAULT_SNIPPET_CHARS: usize = 120;
const MAX_SNIPPET_CHARS: u32 = 2_000;

pub(super) async fn search(
    service: &Service,
    request: SearchMessagesRequest,
) -> Result<SearchMessagesResponse, ServiceError> {
    Ok(search_from(service, request, None).await?.0)
}

/// Searches from a message on, unless a page token is given. Also returns the position at which the next page
/// continues.
pub(super) async fn search_from(
    service: &Service,
    request: SearchMessagesRequest,
    first: Option<u64>,
) -> Result<(SearchMessagesResponse, Option<SearchCursor>), ServiceError> {
    let key = convert::session_key(&request.session, "session")?;
    let limits = service.limits_of(&key).await?;
    let size = convert::page_size(request.page_size, DEFAULT_PAGE, limits.max_page_size);
    let digest = convert::body_digest(&request);
    let (cursor, inside) = match convert::page_token(&request.page_token, digest)? {
        Some(PageCursor::Inside(position, number, inside)) => {
            (Some(PageCursor::Within(position, number)), Some(inside))
        }
        cursor => (cursor, None),
    };
    let from = place(service, &key, cursor.as_ref()).await?;
    // `first` counts messages from 1, and ordinals start at 0.
    let from = from.or(first.map(|first| first.saturating_sub(1)));
    let descending = request.descending;
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
    let mut walk = TranscriptWalk::begin(service, &key, filter, descending, from).await?;
    let query = SearchQuery {
        pattern,
        snippet_chars: chars,
        from: from.zip(inside).map(|(from, inside)| SearchCursor {
            message: TranscriptWalk::first_of(from, descending),
            at: TextPosition {
                // A page token is not authenticated, so its numbers can have any size.
                block: usize::try_from(inside.block).unwrap_or(usize::MAX),
                offset: usize::try_from(inside.offset).unwrap_or(usize::MAX),
            },
        }),
        max_hits: size,
        max_bytes: limits.max_reply_bytes,
        size_of: SearchHit::encoded_len,
        convert: hit,
    };
    let page = searching::search(service, &key, &mut walk, &query).await?;
    let token = |next: SearchCursor| {
        let (position, number) = (walk.position(), walk.resume_at(next.message));
        let cursor = if next.is_inside() {
            let inside = EntryPosition {
                block: next.at.block as u64,
                offset: next.at.offset as u64,
            };
            PageCursor::Inside(position, number, inside)
        } else {
            PageCursor::Within(position, number)
        };
        convert::page_token_text(&cursor, digest)
    };
    let response = SearchMessagesResponse {
        revision: walk.position().revision.get(),
        unreadable_results: page.unreadable_results,
        // Distinguishes the short page of an interrupted search from the end of the transcript.
        ended_early: page.next.is_some() && page.hits.len() < size,
        next_page_token: page.next.map(token).unwrap_or_default(),
        hits: page.hits,
    };
    Ok((response, page.next))
}

fn hit(session: &Session, original: &OriginalMessage, found: SearchMatch) -> SearchHit {
    let block = u32::try_from(found.block).unwrap_or(u32::MAX);
    SearchHit {
        block: Some(BlockRef {
            message_id: original.entry.id.to_string(),
            block_index: block,
        }),
        ordinal: u64::from(original.ordinal.get()) + 1,
        role: convert::export_role(original.entry.role).into(),
        visibility: convert::visibility(original.entry.visibility).into(),
        call: call(session, original, found.block),
        create_time: original.message.at.map(convert::export_timestamp),
        snippet: found.snippet,
        match_offset_bytes: found.offset as u64,
        match_length_bytes: u32::try_from(found.len).unwrap_or(u32::MAX),
        snippet_match_offset_bytes: u32::try_from(found.snippet_offset).unwrap_or(u32::MAX),
    }
}

fn call(session: &Session, original: &OriginalMessage, block: usize) -> Option<CallRef> {
    let index = u16::try_from(block).ok()?;
    match original.message.blocks.get(block)? {
        Block::ToolUse(call) => Some(CallRef {
            call_key: session
                .calls()
                .find_at(original.ordinal, index)
                .map(|key| key.to_string())
                .unwrap_or_default(),
            tool_use_id: call.id.to_string(),
        }),
        Block::ToolResult(result) => Some(CallRef {
            call_key: session
                .calls()
                .find_by_result(&result.tool_use_id, original.ordinal, index)
                .map(|key| key.to_string())
                .unwrap_or_default(),
            tool_use_id: result.tool_use_id.to_string(),
        }),
        _ => None,
    }
}
