//! `SearchMessages`: finds a literal or a regular expression in originals.

use std::collections::VecDeque;

use super::Service;
use super::messages::place;
use crate::convert::{self, PageCursor};
use crate::errors::ServiceError;
use palimpsest_core::ids::SessionKey;
use palimpsest_core::message::{Block, Message};
use palimpsest_core::reading;
use palimpsest_core::session::Session;
use palimpsest_engine::originals::{OriginalMessage, TranscriptWalk, put_back};
use palimpsest_engine::search_threads::{SearchBudget, SearchEnd};
use palimpsest_proto::context::v1::{
    BlockRef, CallRef, SearchHit, SearchMessagesRequest, SearchMessagesResponse,
};
use prost::Message as _;
use regex::Regex;

const DEFAULT_PAGE: u32 = 50;
const DEFAULT_SNIPPET_CHARS: usize = 120;
const MAX_SNIPPET_CHARS: u32 = 2_000;
/// Bytes of text after which a call returns the matches found so far: 64 MiB.
const MAX_SCANNED_BYTES: usize = 64 * 1024 * 1024;
/// Bytes of text for one turn on a search thread: 1 MiB. A turn for each message would wait for a thread each time.
const TURN_BYTES: usize = 1024 * 1024;

/// A match in one message.
struct Match {
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

/// Searches from a message on, unless a page token is given. Also returns the number, starting at 1, of the message
/// at which the next page continues.
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
    let mut walk = TranscriptWalk::begin(service, &key, filter, request.descending, from).await?;
    let mut response = SearchMessagesResponse {
        revision: walk.position().revision.get(),
        ..SearchMessagesResponse::default()
    };
    let (mut bytes, mut scanned, mut next) = (0, 0, None);
    let mut work = SearchBudget::of_call();
    let mut originals = VecDeque::new();
    'walk: loop {
        while originals.is_empty() && !walk.is_done() {
            originals.extend(walk.chunk(service, usize::MAX).await?);
        }
        let Some(first) = originals.front().map(|original| original.ordinal) else {
            break;
        };
        // The limits are checked between messages, because a page token can only name a message.
        let is_full = response.hits.len() >= size || bytes >= limits.max_reply_bytes;
        if is_full || scanned >= MAX_SCANNED_BYTES || work.is_spent() {
            next = Some(first);
            break;
        }
        let turn_ends = MAX_SCANNED_BYTES.min(scanned + TURN_BYTES);
        let mut batch = Vec::new();
        while scanned < turn_ends
            && let Some(mut original) = originals.pop_front()
        {
            // Replacements are put back first, so that the search covers the original results.
            put_back(service, &key, &mut original).await?;
            scanned += original.message.content_bytes();
            batch.push(original);
        }
        let wanted = size - response.hits.len();
        let searched = search_batch(service, &key, batch, &pattern, (chars, wanted), work);
        let (searched, done) = searched.await?;
        work = done;
        for (original, found) in searched {
            let is_full = response.hits.len() >= size || bytes >= limits.max_reply_bytes;
            match found {
                SearchMatch::Hits(hits) if !is_full => {
                    let lost = u32::try_from(original.unreadable.len()).unwrap_or(u32::MAX);
                    let lost = response.unreadable_results.saturating_add(lost);
                    response.unreadable_results = lost;
                    bytes += hits.iter().map(SearchHit::encoded_len).sum::<usize>();
                    response.hits.extend(hits);
                }
                SearchMatch::Ended(SearchEnd::Late | SearchEnd::Cancelled) if !is_full => {
                    return Err(ServiceError::deadline_exceeded());
                }
                SearchMatch::Hits(_) | SearchMatch::Ended(_) | SearchMatch::NotSearched => {
                    next = Some(original.ordinal);
                    break 'walk;
                }
            }
        }
    }
    // Distinguishes the short page of an interrupted search from the end of the transcript.
    response.ended_early = next.is_some() && response.hits.len() < size;
    let token = |next| {
        let cursor = PageCursor::Within(walk.position(), walk.resume_at(next));
        convert::page_token_text(&cursor, digest)
    };
    response.next_page_token = next.map(token).unwrap_or_default();
    Ok((response, next.map(|next| u64::from(next.get()) + 1)))
}

/// The result of the search in one message. A page ends between two messages, because its token names a message.
enum SearchMatch {
    Hits(Vec<SearchHit>),
    Ended(SearchEnd),
    /// The batch ended before this message.
    NotSearched,
}

/// Searches messages in order until `wanted` matches are found.
async fn search_batch(
    service: &Service,
    key: &SessionKey,
    batch: Vec<OriginalMessage>,
    pattern: &Regex,
    (chars, wanted): (usize, usize),
    work: SearchBudget,
) -> Result<(Vec<(OriginalMessage, SearchMatch)>, SearchBudget), ServiceError> {
    let pattern = pattern.clone();
    let part = move |work: &mut SearchBudget| {
        let mut left = wanted;
        let mut goes_on = true;
        let search = |original: OriginalMessage| {
            // After an error or at a limit, the remaining messages are returned unsearched, so that the page can
            // end before them.
            let matches = (goes_on && left > 0 && !work.is_spent())
                .then(|| find(&original.message, &pattern, chars, work));
            goes_on = matches.as_ref().is_some_and(Result::is_ok);
            if let Some(Ok(found)) = &matches {
                left = left.saturating_sub(found.len());
            }
            (original, matches)
        };
        batch.into_iter().map(search).collect::<Vec<_>>()
    };
    let (searched, work) = service.searches.run(&key.project, work, part).await?;
    // The call keys of matches come from the session, so the hits are built in a read after the search.
    let report = |session: &Session| {
        let found =
            |(original, matches): (OriginalMessage, Option<Result<Vec<Match>, SearchEnd>>)| {
                let found = match matches {
                    None => SearchMatch::NotSearched,
                    Some(Err(ended)) => SearchMatch::Ended(ended),
                    Some(Ok(matches)) => {
                        let hit = |found| hit(session, &original, found);
                        SearchMatch::Hits(matches.into_iter().map(hit).collect())
                    }
                };
                (original, found)
            };
        searched.into_iter().map(found).collect()
    };
    Ok((service.sessions.read(key, report).await?, work))
}

/// The maximum number of matches per message.
const MAX_HITS_A_MESSAGE: usize = 100;

fn find(
    message: &Message,
    pattern: &Regex,
    chars: usize,
    work: &mut SearchBudget,
) -> Result<Vec<Match>, SearchEnd> {
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
            // A match can be long, so the snippet contains only its beginning.
            let shown_end = hit_end.min(hit_start + 4 * chars.max(1));
            let shown_end = text.floor_char_boundary(shown_end);
            let end = text[shown_end..]
                .char_indices()
                .nth(chars)
                .map_or(text.len(), |(at, _)| shown_end + at);
            found.push(Match {
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

fn hit(session: &Session, original: &OriginalMessage, found: Match) -> SearchHit {
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

fn call(session: &Session, original: &OriginalMessage, block: usize) -> Option<CallRef> {
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
