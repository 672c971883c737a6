//! Forks: a new session that begins with the events of another one, up to a message.
//!
//! A fork has its own log and its own files, so neither session depends on the other. Its events keep their revisions and
//! times, and its messages keep their ids. The view of the fork is therefore the view of the other session at that point.

use std::collections::BTreeMap;
use std::sync::Arc;

use palimpsest_core::command::{Command, CreateSession, Rejection, Rewind};
use palimpsest_core::event::{Event, ForkPoint, RecordedEvent, SessionCreated};
use palimpsest_core::ids::{MessageId, Ordinal, Revision, SessionKey};
use palimpsest_core::message::Digest;
use palimpsest_core::session::{RequestStamp, Session, Visibility};
use palimpsest_store::blobs::BlobError;
use palimpsest_store::{MAX_FILES, MAX_FRAME_BYTES, SessionHead, crash_point, error_chain};

use crate::creation::is_answer;
use crate::sessions::{MissingSession, READ_BYTES, Transaction, warm_up};
use crate::{Engine, EngineError};

/// A request for a fork.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fork {
    /// The session to fork.
    pub source: SessionKey,
    /// The last message that the fork shares. `None` for the last message of the view.
    pub last: Option<MessageId>,
    /// True if the fork is a subagent session of the source.
    pub is_subagent: bool,
    /// The title. Empty for the title of the source.
    pub title: Box<str>,
    /// The scope in which the fork is found by content. `None` if it is found by its name only.
    pub scope: Option<Digest>,
    /// The stamp that identifies retries.
    pub request: Option<RequestStamp>,
}

/// The beginning of a session.
struct Beginning {
    created: SessionCreated,
    /// The events after the creation.
    events: Vec<RecordedEvent>,
    turn_offset: u64,
    /// The last shared message.
    last: MessageId,
    /// True if later messages of the same event must be rewound.
    rewinds: bool,
    /// The files that the events name, with the SHA-256 of their contents.
    files: BTreeMap<Box<str>, [u8; 32]>,
}

/// Forks a session. `finish` builds the reply from the fork, or for an idempotent repeat from the current state of the
/// fork that the original call created.
pub async fn fork<T>(
    engine: &Engine,
    target: &SessionKey,
    fork: &Fork,
    finish: impl Fn(&Session) -> T,
) -> Result<T, EngineError> {
    let sessions = &engine.sessions;
    // A repeat finds the fork, even if the source was deleted or has changed since.
    let stamp = fork.request.as_ref();
    let repeated = |transaction: &mut Transaction<'_>| is_answer(transaction, stamp);
    let answer = |session: &Session, is_answer: &bool| Ok(is_answer.then(|| finish(session)));
    let known = sessions.write(target, &MissingSession::Reject, repeated, answer);
    match known.await {
        Err(EngineError::SessionNotFound(_)) => {}
        known => return known?.ok_or_else(|| EngineError::SessionExists(target.clone())),
    }
    let beginning = Beginning::read(engine, fork).await?;
    // Files of an earlier session of this name are removed before the first new one is stored.
    sessions.free_name(target).await?;
    let files = copy_files(engine, (&fork.source, target), &beginning.files).await?;
    crash_point("fork.files");
    let missing = MissingSession::Create(beginning.create(fork));
    let decide = |transaction: &mut Transaction<'_>| {
        if transaction.revision_before() != Revision::ZERO {
            return is_answer(transaction, stamp);
        }
        transaction.copy(&beginning.events, &files)?;
        if beginning.rewinds {
            // A message that left the view and came back is not in memory, and the fork has no log yet from which it
            // could be read.
            let messages = beginning.events.iter().flat_map(|it| it.event.messages());
            transaction.load_content(messages.map(|appended| Arc::clone(&appended.message)));
            transaction.run(Command::Rewind(Rewind {
                to: Some(beginning.last),
                expected_revision: None,
                request: None,
            }))?;
        }
        Ok(true)
    };
    let finish = |session: &Session, is_answer: &bool| {
        Ok(is_answer.then(|| (finish(session), session.counter())))
    };
    let forked = sessions.write(target, &missing, decide, finish).await?;
    let (answer, counter) = forked.ok_or_else(|| EngineError::SessionExists(target.clone()))?;
    // As after a creation, the first append must not wait for the estimator's vocabulary.
    warm_up(counter).await;
    Ok(answer)
}

impl Beginning {
    /// Reads the events of the source up to the last shared message, and those that belong to it.
    async fn read(engine: &Engine, fork: &Fork) -> Result<Self, EngineError> {
        let (sessions, source) = (&engine.sessions, &fork.source);
        let head = head_of(engine, source).await?;
        // All events of the fork become one append.
        let bytes = usize::try_from(head.log_bytes).unwrap_or(usize::MAX);
        if bytes > MAX_FRAME_BYTES {
            return Err(EngineError::Rejected(Rejection::TooLarge {
                field: "session".to_owned(),
                limit: MAX_FRAME_BYTES,
                actual: bytes,
            }));
        }
        let last = match fork.last {
            Some(last) => last,
            None => sessions.read(source, last_message).await?.ok_or_else(|| {
                Rejection::invalid(
                    "session".to_owned(),
                    "has no message in its view: create a session instead",
                )
            })?,
        };
        let mut reader = EventReader {
            last,
            is_end: fork.last.is_none(),
            next: 0,
            found: None,
            rewinds: false,
        };
        let (mut events, mut after) = (Vec::new(), Revision::ZERO);
        'log: while after < head.revision {
            let page = sessions.events(source, after, READ_BYTES).await?;
            if page.is_empty() {
                break;
            }
            for (revision, recorded) in page {
                after = revision;
                // Later events belong to calls that came after the read of the head.
                if revision > head.revision || reader.ends_before(&recorded.event) {
                    break 'log;
                }
                reader.read(&recorded.event);
                events.push(recorded);
            }
        }
        // Otherwise the events can be those of two sessions of one name.
        if head_of(engine, source).await?.incarnation != head.incarnation {
            return Err(EngineError::Contended);
        }
        if reader.found.is_none() {
            return Err(Rejection::MessageNotFound { id: last }.into());
        }
        let turn_offset = sessions.read(source, |session| session.turns().offset());
        let turn_offset = turn_offset.await?;
        Self::of(events, &reader, (turn_offset, &fork.title))
            .ok_or(EngineError::HistoryChanged(source.clone()))
    }

    /// `title` is the title of the fork. Empty for that of the source.
    fn of(
        mut events: Vec<RecordedEvent>,
        reader: &EventReader,
        (turn_offset, title): (u64, &str),
    ) -> Option<Self> {
        let mut files = BTreeMap::new();
        for recorded in &mut events {
            let named = recorded.event.files();
            files.extend(named.map(|(file, sha256)| (Box::from(file), *sha256)));
            // Requests to the source are no requests to the fork.
            recorded.event.clear_request();
            match &mut recorded.event {
                Event::SessionUpdated(updated) => {
                    // A hold keeps the source, and its reason does not apply to the fork.
                    updated.hold = None;
                    if !title.is_empty() {
                        updated.title = None;
                    }
                }
                // Earlier arrays of the caller lead to the source. Otherwise an array that continues the source could be
                // taken for one of the fork.
                Event::ArraySynced(synced) => synced.tip = None,
                _ => {}
            }
        }
        let mut events = events.into_iter();
        let Event::SessionCreated(created) = events.next()?.event else {
            return None;
        };
        Some(Self {
            created,
            events: events.collect(),
            turn_offset,
            last: reader.last,
            rewinds: reader.rewinds,
            files,
        })
    }

    fn create(&self, fork: &Fork) -> CreateSession {
        let created = self.created.clone();
        CreateSession {
            implicit: false,
            title: if fork.title.is_empty() {
                created.title
            } else {
                fork.title.clone()
            },
            project_path: created.project_path,
            branch: created.branch,
            hold: Box::default(),
            parent: if fork.is_subagent {
                Some(fork.source.clone())
            } else {
                created.parent
            },
            forked_from: Some(Box::new(ForkPoint {
                session: fork.source.clone(),
                message: self.last,
                turn_offset: self.turn_offset,
            })),
            scope: fork.scope,
            attributes: created.attributes,
            policy: created.policy,
            request: fork.request.clone(),
        }
    }
}

/// Finds the end of the shared events.
struct EventReader {
    last: MessageId,
    /// True if the fork shares everything.
    is_end: bool,
    /// The ordinal of the next message.
    next: u32,
    /// The ordinal of the last shared message, once it was read.
    found: Option<Ordinal>,
    rewinds: bool,
}

impl EventReader {
    /// Returns true if an event belongs to a later part of the conversation. Events of levels between two messages belong
    /// to the messages before them, because the view with these messages was served with them.
    fn ends_before(&self, event: &Event) -> bool {
        let Some(found) = self.found.filter(|_| !self.is_end) else {
            return false;
        };
        match event {
            Event::MessagesAppended(appended) => !appended.messages.is_empty(),
            Event::SessionRewound(rewound) => rewound.removed.contains(&found),
            Event::ContextRestored(_) => true,
            // Such an event can include the messages that are rewound.
            event => self.rewinds && event.changes_view(),
        }
    }

    fn read(&mut self, event: &Event) {
        let messages = event.messages();
        let mut ids = messages.iter().map(|appended| appended.message.id);
        if let Some(at) = ids.position(|id| id == self.last) {
            self.found = Some(Ordinal::new(self.next + count(at)));
            self.rewinds = !self.is_end && at + 1 < messages.len();
        }
        self.next += count(messages.len());
    }
}

fn count(messages: usize) -> u32 {
    u32::try_from(messages).unwrap_or(u32::MAX)
}

/// Returns the last message of the view that the caller appended.
fn last_message(session: &Session) -> Option<MessageId> {
    let entries = session.transcript().entries();
    let mut shown = entries.filter(|(ordinal, entry)| {
        entry.visibility == Visibility::Visible && !session.is_framing(*ordinal)
    });
    shown.next_back().map(|(_, entry)| entry.id)
}

async fn head_of(engine: &Engine, key: &SessionKey) -> Result<SessionHead, EngineError> {
    let head = engine.sessions.log().head(key).await?;
    head.ok_or_else(|| EngineError::SessionNotFound(key.clone()))
}

/// Copies files into the folder of the fork. Returns the copied files with their sizes.
///
/// The copies have intents, as all files have before an event names them. A crash leaves files that a sweep removes.
async fn copy_files(
    engine: &Engine,
    (source, target): (&SessionKey, &SessionKey),
    files: &BTreeMap<Box<str>, [u8; 32]>,
) -> Result<Vec<(Box<str>, u64)>, EngineError> {
    if files.is_empty() {
        return Ok(Vec::new());
    }
    if files.len() > MAX_FILES {
        let what = format!(
            "has {} stored results, and a fork can have {MAX_FILES}",
            files.len()
        );
        return Err(Rejection::invalid("session".to_owned(), &*what).into());
    }
    let (log, blobs) = (engine.sessions.log(), &engine.blobs);
    let failed = |error: BlobError| {
        tracing::warn!(session = %target, error = %error_chain(&error), "failed to copy a stored result to a fork");
        EngineError::BlobsUnavailable
    };
    blobs.verify().await.map_err(failed)?;
    let names = files.keys().cloned().collect();
    let now = engine.sessions.clock().now();
    log.declare_intents(target, names, now).await?;
    let mut copied = Vec::with_capacity(files.len());
    for (file, sha256) in files {
        match blobs.get_result(source, file, sha256).await {
            Ok(content) => {
                let bytes = content.len() as u64;
                blobs
                    .put_file(target, file, content)
                    .await
                    .map_err(failed)?;
                copied.push((file.clone(), bytes));
            }
            // A result that is lost for the source is lost for the fork too.
            Err(error @ (BlobError::NotFound(_) | BlobError::Damaged(_))) => {
                tracing::warn!(session = %source, error = %error_chain(&error), "a stored result is lost; the fork has none either");
                log.complete_intent(target, file).await?;
            }
            Err(error) => return Err(failed(error)),
        }
    }
    // A deletion of the source removes its files, which is no loss.
    head_of(engine, source).await?;
    Ok(copied)
}
