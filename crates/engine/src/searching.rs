//! The search for a pattern in the originals of a transcript.

use std::collections::VecDeque;

use palimpsest_core::ids::{Ordinal, SessionKey};
use palimpsest_core::message::Message;
use palimpsest_core::session::Session;
use palimpsest_core::transcript_reader;
use regex::Regex;

use crate::originals::{OriginalMessage, TranscriptWalk, restore_results};
use crate::search_threads::{SearchBudget, SearchEnd};
use crate::{Engine, EngineError};

/// Bytes of text after which a call returns the matches found so far: 64 MiB.
const MAX_SCANNED_BYTES: usize = 64 * 1024 * 1024;
/// Bytes of text for one turn on a search thread: 1 MiB. A turn for each message would wait for a thread each time.
const TURN_BYTES: usize = 1024 * 1024;

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

/// A position in the texts of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TextPosition {
    /// The index of the block.
    pub block: usize,
    /// The offset in the block's text, in bytes.
    pub offset: usize,
}

/// The position at which a page begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SearchCursor {
    /// The message.
    pub message: Ordinal,
    /// The position in the message.
    pub at: TextPosition,
}

impl SearchCursor {
    /// Creates the cursor at the start of a message.
    pub fn at_start(message: Ordinal) -> Self {
        let at = TextPosition::default();
        Self { message, at }
    }

    /// Returns true if the cursor is behind the start of its message.
    pub fn is_inside(&self) -> bool {
        self.at != TextPosition::default()
    }
}

/// The pattern and the limits of a page.
#[derive(Debug)]
pub struct SearchQuery<H> {
    /// The pattern.
    pub pattern: Regex,
    /// The maximum number of characters on each side of a match in its snippet.
    pub snippet_chars: usize,
    /// The position inside the first message at which the page begins. `None` begins at the start of a message.
    pub from: Option<SearchCursor>,
    /// The maximum number of matches in the page.
    pub max_hits: usize,
    /// The maximum size of the converted matches in bytes. The first match is never left out.
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
    /// The position at which the next page continues.
    pub next: Option<SearchCursor>,
    /// The number of stored results that are lost. The search covered their replacements. A message whose matches
    /// are on several pages counts on the first.
    pub unreadable_results: u32,
}

/// Searches the remaining messages of a walk.
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
        let is_full = page.hits.len() >= query.max_hits;
        if is_full || scanned >= MAX_SCANNED_BYTES || work.is_exhausted() {
            page.next = Some(SearchCursor::at_start(first));
            return Ok(page);
        }
        let turn_ends = MAX_SCANNED_BYTES.min(scanned + TURN_BYTES);
        let mut batch = Vec::new();
        while scanned < turn_ends
            && let Some(mut original) = originals.pop_front()
        {
            // Original results are restored first, so that the search covers them.
            restore_results(engine, key, &mut original).await?;
            scanned += original.message.content_bytes();
            batch.push(original);
        }
        let wanted = query.max_hits - page.hits.len();
        let (searched, done) = search_batch(engine, key, batch, query, wanted, work).await?;
        work = done;
        for (original, found) in searched {
            let message = original.ordinal;
            let from = query.start_in(message);
            let (hits, rest) = match found {
                MessageSearch::Hits(hits, rest) => (hits, rest),
                // The error of a cancelled call reaches no caller, so both ends share one.
                MessageSearch::Ended(SearchEnd::DeadlineExceeded | SearchEnd::Cancelled) => {
                    return Err(EngineError::DeadlineExceeded);
                }
                MessageSearch::Ended(SearchEnd::TooMuch) | MessageSearch::NotSearched => {
                    page.next = Some(SearchCursor { message, at: from });
                    return Ok(page);
                }
            };
            if from == TextPosition::default() {
                let lost = u32::try_from(original.unreadable.len()).unwrap_or(u32::MAX);
                page.unreadable_results = page.unreadable_results.saturating_add(lost);
            }
            for (at, hit) in hits {
                let more = (query.size_of)(&hit);
                // A page without a hit would not progress, so the first one is returned whatever its size.
                if bytes + more > query.max_bytes && !page.hits.is_empty() {
                    page.next = Some(SearchCursor { message, at });
                    return Ok(page);
                }
                bytes += more;
                page.hits.push(hit);
            }
            if let Some(at) = rest {
                page.next = Some(SearchCursor { message, at });
                return Ok(page);
            }
        }
    }
}

/// The result of the search in one message.
enum MessageSearch<H> {
    /// The matches with their positions, and the position of the rest if the search ended inside the message.
    Hits(Vec<(TextPosition, H)>, Option<TextPosition>),
    Ended(SearchEnd),
    /// The batch ended before this message.
    NotSearched,
}

/// The matches in one message, and the position of the rest if the search ended inside the message.
type Matches = (Vec<SearchMatch>, Option<TextPosition>);

impl<H> SearchQuery<H> {
    /// Returns the position at which the search of a message begins.
    fn start_in(&self, message: Ordinal) -> TextPosition {
        let inside = self.from.filter(|from| from.message == message);
        inside.map(|from| from.at).unwrap_or_default()
    }
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
    let batch = batch.into_iter().map(|original| {
        let from = query.start_in(original.ordinal);
        (original, from)
    });
    let batch: Vec<_> = batch.collect();
    let part = move |work: &mut SearchBudget| {
        let mut left = wanted;
        let mut goes_on = true;
        let search = |(original, from): (OriginalMessage, TextPosition)| {
            // After an error or at a limit, the remaining messages are returned unsearched, so that the page can
            // end before them.
            let matches = (goes_on && left > 0 && !work.is_exhausted())
                .then(|| find(&original.message, &pattern, chars, (from, left), work));
            goes_on = matches.as_ref().is_some_and(Result::is_ok);
            if let Some(Ok((found, _))) = &matches {
                left = left.saturating_sub(found.len());
            }
            (original, matches)
        };
        batch.into_iter().map(search).collect::<Vec<_>>()
    };
    let (searched, work) = engine.searches.run(&key.project, work, part).await?;
    // The call keys of matches come from the session, so the matches are converted in a read after the search.
    let report = |session: &Session| {
        let convert =
            |(original, matches): (OriginalMessage, Option<Result<Matches, SearchEnd>>)| {
                let found = match matches {
                    None => MessageSearch::NotSearched,
                    Some(Err(ended)) => MessageSearch::Ended(ended),
                    Some(Ok((matches, rest))) => {
                        let hit = |found: SearchMatch| {
                            let (block, offset) = (found.block, found.offset);
                            let hit = (query.convert)(session, &original, found);
                            (TextPosition { block, offset }, hit)
                        };
                        MessageSearch::Hits(matches.into_iter().map(hit).collect(), rest)
                    }
                };
                (original, found)
            };
        searched.into_iter().map(convert).collect()
    };
    Ok((engine.sessions.read(key, report).await?, work))
}

/// Finds at most `wanted` matches from a position on. One match more is looked for, so that a page ends inside a message
/// only if the message has another match.
fn find(
    message: &Message,
    pattern: &Regex,
    chars: usize,
    (start, wanted): (TextPosition, usize),
    work: &mut SearchBudget,
) -> Result<Matches, SearchEnd> {
    let mut found = Vec::new();
    for (index, block) in message.blocks.iter().enumerate().skip(start.block) {
        let text = transcript_reader::block_text(block);
        // The position is part of a page token, so it need not be a valid one.
        let mut from = if index == start.block {
            text.floor_char_boundary(start.offset)
        } else {
            0
        };
        loop {
            // The first match is always looked for: a call begins with all of its work limit.
            if work.is_exhausted() && !found.is_empty() {
                let rest = TextPosition {
                    block: index,
                    offset: from,
                };
                return Ok((found, Some(rest)));
            }
            let Some((hit_start, hit_end)) = work.find(pattern, &text, from)? else {
                break;
            };
            if found.len() == wanted {
                let rest = TextPosition {
                    block: index,
                    offset: hit_start,
                };
                return Ok((found, Some(rest)));
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
    Ok((found, None))
}
