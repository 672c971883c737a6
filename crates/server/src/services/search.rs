//! `SearchMessages`: a literal or a regular expression in the originals.

use palimpsest_core::message::{Block, Message};
use palimpsest_core::reading;
use palimpsest_core::session::Session;
use palimpsest_proto::context::v1::{
    BlockRef, CallRef, SearchHit, SearchMessagesRequest, SearchMessagesResponse,
};
use prost::Message as _;
use regex::Regex;
use tokio::task::spawn_blocking;

use super::Service;
use super::messages::number;
use super::originals::{Original, Walk, put_back};
use crate::convert::{self, Cursor};
use crate::errors::ServiceError;

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
    let key = convert::session_key(&request.session, "session")?;
    let limits = service.limits_of(&key).await?;
    let size = convert::page_size(request.page_size, DEFAULT_PAGE, limits.max_page_size)?;
    let digest = convert::body_digest(&request);
    let from = number(convert::page_token(&request.page_token, digest)?.as_ref())?;
    if request.snippet_chars > MAX_SNIPPET_CHARS {
        let what = format!("must be at most {MAX_SNIPPET_CHARS}");
        return Err(ServiceError::invalid("snippet_chars", what));
    }
    let chars = match request.snippet_chars {
        0 => DEFAULT_SNIPPET_CHARS,
        chars => chars as usize,
    };
    let pattern = convert::text_pattern(request.pattern, &limits, "pattern")?;
    let filter = convert::message_filter(request.filter)?;
    let mut walk = Walk::begin(service, &key, filter, request.descending, from).await?;
    let mut response = SearchMessagesResponse {
        revision: service
            .sessions
            .read(&key, |session| session.revision().get())
            .await?,
        ..SearchMessagesResponse::default()
    };
    let (mut bytes, mut scanned, mut next) = (0, 0, None);
    'walk: while !walk.is_done() {
        let originals = walk.chunk(service, usize::MAX).await?;
        for mut original in originals {
            if response.hits.len() >= size
                || bytes >= limits.max_reply_bytes
                || scanned >= MAX_SCANNED_BYTES
            {
                next = Some(walk.resume_at(original.ordinal));
                break 'walk;
            }
            put_back(service, &key, &mut original).await?;
            scanned += original.message.content_bytes();
            let hits = hits(service, &key, original, &pattern, chars).await?;
            bytes += hits.iter().map(SearchHit::encoded_len).sum::<usize>();
            response.hits.extend(hits);
        }
    }
    response.next_page_token = next
        .map(|next| convert::page_token_text(&Cursor::Number(next), digest))
        .unwrap_or_default();
    Ok(response)
}

/// All matches in one message: a page is cut between messages, so that its token is a place.
async fn hits(
    service: &Service,
    key: &palimpsest_core::ids::SessionKey,
    original: Original,
    pattern: &Regex,
    chars: usize,
) -> Result<Vec<SearchHit>, ServiceError> {
    let (message, owned) = (std::sync::Arc::clone(&original.message), pattern.clone());
    // A message may have megabytes, and a regular expression takes its time over them.
    let found = spawn_blocking(move || find(&message, &owned, chars))
        .await
        .map_err(|error| ServiceError::internal("search a message", error))?;
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let tell = |session: &Session| {
        let hit = |found: Found| hit(session, &original, found);
        found.into_iter().map(hit).collect()
    };
    Ok(service.sessions.read(key, tell).await?)
}

/// At most so many matches of one message are told: more say nothing that these do not.
const MAX_HITS_A_MESSAGE: usize = 100;

fn find(message: &Message, pattern: &Regex, chars: usize) -> Vec<Found> {
    let mut found = Vec::new();
    for (index, block) in message.blocks.iter().enumerate() {
        let text = reading::text(block);
        for hit in pattern.find_iter(&text).filter(|hit| !hit.is_empty()) {
            if found.len() == MAX_HITS_A_MESSAGE {
                return found;
            }
            let start = text[..hit.start()]
                .char_indices()
                .rev()
                .take(chars)
                .last()
                .map_or(hit.start(), |(at, _)| at);
            let shown_end = hit.end().min(hit.start() + 4 * chars.max(1));
            let shown_end = text.floor_char_boundary(shown_end);
            let end = text[shown_end..]
                .char_indices()
                .nth(chars)
                .map_or(text.len(), |(at, _)| shown_end + at);
            found.push(Found {
                block: index,
                offset: hit.start(),
                len: hit.len(),
                snippet: text[start..end].to_owned(),
                snippet_offset: hit.start() - start,
            });
        }
    }
    found
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
