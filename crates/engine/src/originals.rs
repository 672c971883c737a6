//! Original messages: from memory if the view holds them, otherwise from the log.

use std::collections::HashMap;
use std::sync::Arc;

use palimpsest_core::ids::{MessageId, Ordinal, Revision, SessionKey};
use palimpsest_core::levels::results::content_of_file;
use palimpsest_core::message::{Block, Message};
use palimpsest_core::session::{Session, TranscriptEntry};
use palimpsest_store::Position;
pub use palimpsest_transcripts::export::{OriginalMessage, UnreadableResult};

use crate::filter::{MessageFilter, ResolvedFilter};
use crate::results::stored_text;
use crate::{Engine, EngineError};

/// Bounds for the number of index entries that one step reads. Large enough for a selective filter, small enough
/// not to block the session.
const MIN_CHUNK_ENTRIES: usize = 100;
const MAX_CHUNK_ENTRIES: usize = 1_000;
/// Bytes of log that one read requests for contents that are not in memory: 256 KiB.
const CHUNK_BYTES: usize = 256 * 1024;

/// A walk over the transcript of a session, in chunks.
#[derive(Debug)]
pub struct TranscriptWalk {
    key: SessionKey,
    /// The session's position at the start of the walk.
    position: Position,
    filter: ResolvedFilter,
    descending: bool,
    /// The next index to read, and the exclusive end of the walk.
    next: usize,
    end: usize,
}

impl TranscriptWalk {
    /// Starts a walk, or resumes one at `from`.
    pub async fn begin(
        engine: &Engine,
        key: &SessionKey,
        filter: MessageFilter,
        descending: bool,
        from: Option<u64>,
    ) -> Result<Self, EngineError> {
        let (walk, ()) = Self::begin_with(engine, key, (filter, descending), from, |_| ()).await?;
        Ok(walk)
    }

    /// Starts a walk, and passes the session at that moment to `look`.
    pub async fn begin_with<T>(
        engine: &Engine,
        key: &SessionKey,
        (filter, descending): (MessageFilter, bool),
        from: Option<u64>,
        look: impl FnOnce(&Session) -> T,
    ) -> Result<(Self, T), EngineError> {
        let start = |session: &Session, position| {
            let transcript = session.transcript();
            let filter = filter.resolve(session)?;
            let range = filter.range(transcript.len());
            Ok::<_, palimpsest_core::command::Rejection>((filter, range, position, look(session)))
        };
        let started = engine.sessions.read_positioned(key, start).await?;
        let (filter, range, position, seen) = started?;
        let from = from.and_then(|from| usize::try_from(from).ok());
        // A descending walk counts down from the exclusive end of its range.
        let (next, end) = if descending {
            (from.unwrap_or(range.end).min(range.end), range.start)
        } else {
            (from.unwrap_or(range.start).max(range.start), range.end)
        };
        let walk = Self {
            key: key.clone(),
            position,
            filter,
            descending,
            next,
            end,
        };
        Ok((walk, seen))
    }

    /// Returns the session's position at the start of the walk.
    pub const fn position(&self) -> Position {
        self.position
    }

    /// Returns true if no entries remain.
    pub fn is_done(&self) -> bool {
        if self.descending {
            self.next <= self.end
        } else {
            self.next >= self.end
        }
    }

    /// Returns the value for `from` with which a later walk starts at this message.
    pub fn resume_at(&self, ordinal: Ordinal) -> u64 {
        // A descending walk starts below `from`, so the value is one higher.
        u64::from(ordinal.get()) + u64::from(self.descending)
    }

    /// Returns the message at which a walk from this value of `from` starts.
    pub fn first_of(from: u64, descending: bool) -> Ordinal {
        let ordinal = from.saturating_sub(u64::from(descending));
        Ordinal::new(u32::try_from(ordinal).unwrap_or(u32::MAX))
    }

    /// Returns the messages among the next entries that match the filter. Reads about `wanted` entries.
    pub async fn chunk(
        &mut self,
        engine: &Engine,
        wanted: usize,
    ) -> Result<Vec<OriginalMessage>, EngineError> {
        let entries = wanted.clamp(MIN_CHUNK_ENTRIES, MAX_CHUNK_ENTRIES);
        let (from, to) = if self.descending {
            (self.next.saturating_sub(entries).max(self.end), self.next)
        } else {
            (self.next, (self.next + entries).min(self.end))
        };
        self.next = if self.descending { from } else { to };
        let filter = &self.filter;
        let pick = |session: &Session| -> Vec<(Ordinal, TranscriptEntry)> {
            let entries = session
                .transcript()
                .entries()
                .skip(from)
                .take(to.saturating_sub(from));
            entries
                .filter(|(ordinal, entry)| filter.admits(*ordinal, entry))
                .map(|(ordinal, entry)| (ordinal, entry.clone()))
                .collect()
        };
        // Only the index is read under the session's lock. The contents are read from the log after it.
        let entries = engine.sessions.read(&self.key, pick).await?;
        let mut originals = contents(engine, &self.key, entries).await?;
        // Some filters need the content, which is loaded only for entries that pass the index filter.
        if self.filter.needs_content() {
            let filter = &self.filter;
            let judge = |session: &Session| {
                originals.retain(|original| {
                    let entry = (original.ordinal, &original.entry);
                    filter.matches(session, entry, &original.message)
                });
                originals
            };
            originals = engine.sessions.read(&self.key, judge).await?;
        }
        // `confirm` fails if another history has replaced the session meanwhile, so index and contents match.
        engine.sessions.confirm(&self.key, self.position).await?;
        if self.descending {
            originals.reverse();
        }
        Ok(originals)
    }
}

/// Returns the contents of the entries, in order. A message without a time gets the time of its event.
pub async fn contents(
    engine: &Engine,
    key: &SessionKey,
    entries: Vec<(Ordinal, TranscriptEntry)>,
) -> Result<Vec<OriginalMessage>, EngineError> {
    let mut originals = Vec::with_capacity(entries.len());
    // Neighbouring messages are close in the log, so one read often serves several entries.
    let mut read: HashMap<MessageId, Arc<Message>> = HashMap::new();
    for (ordinal, entry) in entries {
        // Contents in memory are used first. The log is read only for the others, and for messages of the service,
        // whose time is that of their event.
        let loaded = entry.content.as_ref();
        let message = if let Some(message) = loaded.filter(|message| message.at.is_some()) {
            Some(Arc::clone(message))
        } else {
            // A read replaces the earlier one, so the contents of at most one read are held besides the result.
            if !read.contains_key(&entry.id) {
                read = messages_from(engine, key, entry.revision).await?;
            }
            read.get(&entry.id).cloned()
        };
        let Some(message) = message else {
            return Err(EngineError::Internal {
                doing: "find a message where its index says it is",
                source: None,
            });
        };
        originals.push(OriginalMessage {
            ordinal,
            entry,
            message,
            unreadable: Vec::new(),
        });
    }
    Ok(originals)
}

/// Restores original tool results for which the caller appended a replacement. Such an original is stored only in a
/// file.
///
/// A permanently lost file is recorded in `unreadable`, and the message keeps the replacement.
///
/// # Errors
///
/// Fails if a file cannot be read at the moment, because its content is unknown.
pub async fn restore_results(
    engine: &Engine,
    key: &SessionKey,
    original: &mut OriginalMessage,
) -> Result<(), EngineError> {
    // Most messages contain no results. They need no read of the index.
    let has_results = |block: &Block| matches!(block, Block::ToolResult(_));
    if !original.message.blocks.iter().any(has_results) {
        return Ok(());
    }
    let files = |session: &Session| {
        let stored = session.stored_results().of(original.ordinal);
        let elsewhere = stored.filter(|(_, stored)| stored.original_only_in_file);
        elsewhere
            .map(|(block, stored)| (block, stored.file.clone(), stored.sha256))
            .collect::<Vec<_>>()
    };
    for (block, file, sha256) in engine.sessions.read(key, files).await? {
        let (text, is_json) = match stored_text(engine, key, &file, &sha256).await? {
            Ok(read) => read,
            Err(loss) => {
                original
                    .unreadable
                    .push(UnreadableResult { block, file, loss });
                continue;
            }
        };
        // The message may be shared with the session, so it is copied before the change.
        let message = Arc::make_mut(&mut original.message);
        if let Some(Block::ToolResult(result)) = message.blocks.get_mut(usize::from(block)) {
            result.content = content_of_file(text, is_json, &result.content);
        }
    }
    Ok(())
}

/// Returns the messages of an event and of those that follow within one read. Each has a time.
async fn messages_from(
    engine: &Engine,
    key: &SessionKey,
    revision: Revision,
) -> Result<HashMap<MessageId, Arc<Message>>, EngineError> {
    let before = Revision::new(revision.get().saturating_sub(1));
    let events = engine.sessions.events(key, before, CHUNK_BYTES).await?;
    let messages = events.iter().flat_map(|(_, recorded)| {
        let appended = recorded.event.messages().iter();
        appended.map(|appended| {
            let mut message = Arc::clone(&appended.message);
            if message.at.is_none() {
                Arc::make_mut(&mut message).at = Some(recorded.at);
            }
            (message.id, message)
        })
    });
    Ok(messages.collect())
}
