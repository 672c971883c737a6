//! The search for a pattern in the originals of a transcript.

use std::collections::VecDeque;

use palimpsest_core::ids::{Ordinal, SessionKey};
use palimpsest_core::message::Message;
use palimpsest_core::reading;
use palimpsest_core::session::Session;
use regex::Regex;

use crate::originals::{OriginalMessage, TranscriptWalk, put_back};
use crate::search_threads::{SearchBudget, SearchEnd};
use crate::{Engine, EngineError};

/// Bytes of text after which a call returns the matches found so far: 64 MiB.
const MAX_SCANNED_BYTES: usize = 64 * 1024 * 1024;
/// Bytes of text for one turn on a search thread: 1 MiB. A turn for each message would wait for a thread each time.
const TURN_BYTES: usize = 1024 * 1024;
/// The maximum number of matches per message.
const MAX_HITS_A_MESSAGE: usize = 100;

/// A match in one message.
#[derive(Debug)]
pub struct SearchMatch {
    /// The index of the block.
    pub block: usize,
    /// The offset of the match in the block's text, in bytes.
    pub offset: usize,
    /// The length of the match in bytes.
    pub len: usize,
    /// The text around the match.
    pub snippet: String,
    /// The offset of the match in the snippet, in bytes.
    pub snippet_offset: usize,
}

/// The pattern and the limits of a page.
#[derive(Debug)]
pub struct SearchQuery<H> {
    /// The pattern.
    pub pattern: Regex,
    /// The maximum number of characters on each side of a match in its snippet.
    pub snippet_chars: usize,
    /// The number of matches after which the page ends, with the last message.
    pub max_hits: usize,
    /// The size of the converted matches after which the page ends, in bytes.
    pub max_bytes: usize,
    /// Measures a converted match in bytes.
    pub size_of: fn(&H) -> usize,
    /// Converts a match.
    pub convert: fn(&Session, &OriginalMessage, SearchMatch) -> H,
}

/// The matches of a page.
#[derive(Debug)]
pub struct SearchPage<H> {
    /// The converted matches.
    pub hits: Vec<H>,
    /// The message at which the next page continues.
    pub next: Option<Ordinal>,
    /// The number of stored results that are lost. The search covered their replacements.
    pub unreadable_results: u32,
}

/// Searches the remaining messages of a walk.
///
/// A page ends between two messages, because its token names a message.
pub async fn search<H: Send>(
    engine: &Engine,
    key: &SessionKey,
    walk: &mut TranscriptWalk,
    query: &SearchQuery<H>,
) -> Result<SearchPage<H>, EngineError> {
    let mut page = SearchPage {
        hits: Vec::new(),
        next: None,
        unreadable_results: 0,
    };
    let (mut bytes, mut scanned) = (0, 0);
    let mut work = SearchBudget::of_call();
    let mut originals = VecDeque::new();
    loop {
        while originals.is_empty() && !walk.is_done() {
            originals.extend(walk.chunk(engine, usize::MAX).await?);
        }
        let Some(first) = originals.front().map(|original| original.ordinal) else {
            return Ok(page);
        };
        // The limits are checked between messages, because a page token can only name a message.
        let is_full = page.hits.len() >= query.max_hits || bytes >= query.max_bytes;
        if is_full || scanned >= MAX_SCANNED_BYTES || work.is_spent() {
            page.next = Some(first);
            return Ok(page);
        }
        let turn_ends = MAX_SCANNED_BYTES.min(scanned + TURN_BYTES);
        let mut batch = Vec::new();
        while scanned < turn_ends
            && let Some(mut original) = originals.pop_front()
        {
            // Replacements are put back first, so that the search covers the original results.
            put_back(engine, key, &mut original).await?;
            scanned += original.message.content_bytes();
            batch.push(original);
        }
        let wanted = query.max_hits - page.hits.len();
        let (searched, done) = search_batch(engine, key, batch, query, wanted, work).await?;
        work = done;
        for (original, found) in searched {
            let is_full = page.hits.len() >= query.max_hits || bytes >= query.max_bytes;
            match found {
                MessageSearch::Hits(hits) if !is_full => {
                    let lost = u32::try_from(original.unreadable.len()).unwrap_or(u32::MAX);
                    page.unreadable_results = page.unreadable_results.saturating_add(lost);
                    bytes += hits.iter().map(query.size_of).sum::<usize>();
                    page.hits.extend(hits);
                }
                MessageSearch::Ended(SearchEnd::Late | SearchEnd::Cancelled) if !is_full => {
                    return Err(EngineError::Expired);
                }
                MessageSearch::Hits(_) | MessageSearch::Ended(_) | MessageSearch::NotSearched => {
                    page.next = Some(original.ordinal);
                    return Ok(page);
                }
            }
        }
    }
}

/// The result of the search in one message.
enum MessageSearch<H> {
    Hits(Vec<H>),
    Ended(SearchEnd),
    /// The batch ended before this message.
    NotSearched,
}

/// Searches messages in order until `wanted` matches are found.
async fn search_batch<H: Send>(
    engine: &Engine,
    key: &SessionKey,
    batch: Vec<OriginalMessage>,
    query: &SearchQuery<H>,
    wanted: usize,
    work: SearchBudget,
) -> Result<(Vec<(OriginalMessage, MessageSearch<H>)>, SearchBudget), EngineError> {
    let (pattern, chars) = (query.pattern.clone(), query.snippet_chars);
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
    let (searched, work) = engine.searches.run(&key.project, work, part).await?;
    // The call keys of matches come from the session, so the matches are converted in a read after the search.
    let report = |session: &Session| {
        let convert = |(original, matches): (
            OriginalMessage,
            Option<Result<Vec<SearchMatch>, SearchEnd>>,
        )| {
            let found = match matches {
                None => MessageSearch::NotSearched,
                Some(Err(ended)) => MessageSearch::Ended(ended),
                Some(Ok(matches)) => {
                    let hit = |found| (query.convert)(session, &original, found);
                    MessageSearch::Hits(matches.into_iter().map(hit).collect())
                }
            };
            (original, found)
        };
        searched.into_iter().map(convert).collect()
    };
    Ok((engine.sessions.read(key, report).await?, work))
}

fn find(
    message: &Message,
    pattern: &Regex,
    chars: usize,
    work: &mut SearchBudget,
) -> Result<Vec<SearchMatch>, SearchEnd> {
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
            found.push(SearchMatch {
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
