//! A host with sessions in memory and the real work queue, in place of a server.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use palimpsest_conformance::MemoryLog;
use palimpsest_core::command::{
    Append, Command, ConfirmMemoryFile, CreateSession, Decided, DecisionContext, FailMemoryUpdate,
    RecordMemoryVersion, StartMemoryUpdate, create_session, decide, is_memory_enabled,
    memory_due_at, memory_update_due_at,
};
use palimpsest_core::event::{Event, RecordedEvent};
use palimpsest_core::ids::{MessageId, Ordinal, SessionKey, Timestamp};
use palimpsest_core::limits::Limits;
use palimpsest_core::memory::MemoryContent;
use palimpsest_core::message::{Block, Message, Role};
use palimpsest_core::policy::Policy;
use palimpsest_core::session::{Author, Session};
use palimpsest_engine::clock::{Clock, IdSource};
use palimpsest_store::blobs::{BlobOwner, Blobs};
use palimpsest_store::{Batch, DueChange, Position, SessionLog as _, StoreId, WorkQueue};
use palimpsest_worker::{HostError, MemoryJob, MessagePage, SessionHost, Worker, WorkerOptions};
use tokio::time::Instant;
use uuid::Uuid;

/// Sessions, with methods for tests to change them.
pub(crate) struct Fake {
    pub(crate) log: Arc<MemoryLog>,
    pub(crate) blobs: Arc<Blobs>,
    sessions: Mutex<HashMap<SessionKey, Session>>,
    began: Instant,
    next_id: AtomicU64,
    /// The sessions whose messages were read, in order.
    pub(crate) read: Mutex<Vec<SessionKey>>,
    /// Duration of a read of messages.
    pub(crate) slow: Mutex<Duration>,
    /// The way in which reads fail, if any.
    pub(crate) broken: Mutex<Option<Broken>>,
    at_once: AtomicUsize,
    pub(crate) most_at_once: AtomicUsize,
}

#[derive(Clone, Copy)]
pub(crate) enum Broken {
    Fails,
    Panics,
}

/// Paused time since the creation of the clock.
#[derive(Debug, Clone)]
pub(crate) struct ServerClock(Instant);

impl Clock for ServerClock {
    fn now(&self) -> Timestamp {
        let passed = self.0.elapsed().as_millis();
        Timestamp::from_millis(1_700_000_000_000 + i64::try_from(passed).unwrap())
    }

    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }
}

impl Fake {
    pub(crate) fn new() -> Arc<Self> {
        Self::with_blobs(Blobs::open("memory://").unwrap())
    }

    pub(crate) fn with_blobs(blobs: Blobs) -> Arc<Self> {
        Arc::new(Self {
            log: Arc::new(MemoryLog::new()),
            blobs: Arc::new(blobs.bind(BlobOwner {
                store: StoreId::from_bytes([1; 16]),
                adopts: true,
                takes_over_from: None,
                restored_from: None,
            })),
            sessions: Mutex::default(),
            began: Instant::now(),
            next_id: AtomicU64::new(1),
            read: Mutex::default(),
            slow: Mutex::default(),
            broken: Mutex::default(),
            at_once: AtomicUsize::new(0),
            most_at_once: AtomicUsize::new(0),
        })
    }

    pub(crate) fn clock(&self) -> ServerClock {
        ServerClock(self.began)
    }

    pub(crate) fn worker(self: &Arc<Self>, options: WorkerOptions) -> Worker {
        let clock: Arc<dyn Clock> = Arc::new(self.clock());
        Worker::new(
            Arc::clone(&self.log) as Arc<dyn WorkQueue>,
            Arc::clone(self) as Arc<dyn SessionHost>,
            Arc::clone(&self.blobs),
            Arc::clone(&clock),
            Arc::new(IdSource::counting(clock)),
            options,
        )
    }

    /// Creates a session that is due for its first summary.
    pub(crate) async fn due(&self, name: &str) -> SessionKey {
        let (project, session) = name.split_once('/').unwrap();
        let key = format!("projects/{project}/sessions/{session}");
        let key = SessionKey::parse(&key).unwrap();
        let limits = Limits::default();
        let context = DecisionContext {
            now: self.clock().now(),
            limits: &limits,
            can_store: false,
            file_salt: 0,
        };
        let command = CreateSession {
            policy: Arc::new(Policy::default()),
            ..CreateSession::default()
        };
        let event = create_session(command, context).unwrap();
        let Event::SessionCreated(created) = &event else {
            panic!("{event:?}");
        };
        let session = Session::create(key.clone(), context.now, created);
        self.sessions.lock().unwrap().insert(key.clone(), session);
        // The log stores opaque bytes here: the events themselves live in `sessions`.
        let batch = Batch {
            expected: Position::START,
            events: NonZeroU32::MIN,
            frame: Bytes::from_static(b"-"),
            list_row: Bytes::new(),
            parent: None,
            due: DueChange::Keep,
            blob_bytes: 0,
            completed_intents: Vec::new(),
            tips: None,
        };
        self.log.append(&key, batch).await.unwrap();
        self.say(
            &key,
            Role::User,
            &format!("Mend {}. {}", key.session, "word ".repeat(8_000)),
        )
        .await;
        self.say(&key, Role::Assistant, "It is mended.").await;
        key
    }

    /// Appends a message.
    pub(crate) async fn say(&self, key: &SessionKey, role: Role, text: &str) {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let id = MessageId::new(Uuid::from_u128(id.into()));
        let message = Arc::new(Message::new(id, role, vec![Block::text(text)]));
        let append = Append {
            messages: vec![message],
            ..Append::default()
        };
        self.run(key, vec![Command::Append(append)]).await.unwrap();
    }

    pub(crate) fn look<T>(&self, key: &SessionKey, look: impl FnOnce(&Session) -> T) -> T {
        look(&self.sessions.lock().unwrap()[key])
    }

    /// Returns the text of a session's summary.
    pub(crate) fn text(&self, key: &SessionKey) -> String {
        self.look(key, |session| {
            let version = session.memory().version.as_ref();
            version.map_or_else(String::new, |version| version.text().to_string())
        })
    }

    /// Returns the author of the latest version.
    pub(crate) fn author(&self, key: &SessionKey) -> Option<Author> {
        self.look(key, |session| {
            session
                .memory()
                .version
                .as_ref()
                .map(|version| version.author)
        })
    }

    /// Decides and applies commands, and appends their events together. Returns the number of events of the last command
    /// that made any.
    pub(crate) async fn run(
        &self,
        key: &SessionKey,
        commands: Vec<Command>,
    ) -> Result<usize, HostError> {
        let limits = Limits::default();
        let now = self.clock().now();
        let context = DecisionContext {
            now,
            limits: &limits,
            can_store: false,
            file_salt: 0,
        };
        // The lock is released before the append, because it must not be held across an await.
        let (before, made, due) = {
            let mut sessions = self.sessions.lock().unwrap();
            let session = sessions.get_mut(key).ok_or(HostError::SessionNotFound)?;
            let before = session.revision();
            let mut made = 0;
            for command in commands {
                let decided = decide(session, command, context);
                let decided = decided.map_err(|error| HostError::Refused(error.to_string()))?;
                let Decided::Now(decision) = decided else {
                    continue;
                };
                made = decision.events.len();
                for event in decision.events {
                    session
                        .apply(&RecordedEvent {
                            at: now,
                            by: None,
                            event,
                        })
                        .unwrap();
                }
            }
            let all = session.revision().get() - before.get();
            let due = memory_due_at(session, now).map_or(DueChange::Keep, DueChange::At);
            (before, (made, all), due)
        };
        let (made, all) = made;
        if let Some(events) = NonZeroU32::new(u32::try_from(all).unwrap()) {
            let head = self.log.head(key).await.unwrap().unwrap();
            let batch = Batch {
                expected: head.position().at(before),
                events,
                frame: Bytes::from_static(b"-"),
                list_row: Bytes::new(),
                parent: None,
                due,
                blob_bytes: 0,
                completed_intents: Vec::new(),
                tips: None,
            };
            let appended = self.log.append(key, batch).await;
            appended.map_err(|error| HostError::Failed(error.into()))?;
        }
        Ok(made)
    }
}

#[async_trait]
impl SessionHost for Fake {
    async fn job(&self, key: &SessionKey) -> Result<Option<MemoryJob>, HostError> {
        let now = self.clock().now();
        let sessions = self.sessions.lock().unwrap();
        Ok(sessions.get(key).map(|session| MemoryJob {
            revision: session.revision(),
            is_enabled: is_memory_enabled(session),
            due: memory_update_due_at(session, now),
            session_memory: session.memory().clone(),
            is_invalidated: session.is_memory_invalidated(),
            readable_through: session.memory_readable_through(),
            memory: session.policy().session_memory.clone(),
            summary: session.policy().summary.clone(),
        }))
    }

    async fn messages(
        &self,
        key: &SessionKey,
        after: Option<Ordinal>,
        to: Ordinal,
        _: usize,
    ) -> Result<MessagePage, HostError> {
        self.read.lock().unwrap().push(key.clone());
        let at_once = self.at_once.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_at_once.fetch_max(at_once, Ordering::SeqCst);
        let slow = *self.slow.lock().unwrap();
        tokio::time::sleep(slow).await;
        self.at_once.fetch_sub(1, Ordering::SeqCst);
        let broken = *self.broken.lock().unwrap();
        match broken {
            Some(Broken::Fails) => return Err(HostError::Failed("no messages today".into())),
            Some(Broken::Panics) => panic!("the test requested a panic"),
            None => {}
        }
        // Each page has one message.
        let at = Ordinal::new(after.map_or(0, |after| after.get() + 1));
        let message = self.look(key, |session| session.transcript().content(at).cloned());
        Ok(MessagePage {
            messages: message.into_iter().collect(),
            next: (at < to).then_some(at),
        })
    }

    async fn begin(&self, key: &SessionKey) -> Result<Option<MemoryJob>, HostError> {
        let Some(job) = self.job(key).await? else {
            return Ok(None);
        };
        let mut commands = Vec::new();
        if job.session_memory.version.is_none() {
            commands.push(Command::RecordMemoryVersion(RecordMemoryVersion {
                content: MemoryContent::default(),
                author: Author::Template,
                base_version: 0,
                source: job.revision,
                read_through: None,
                edited_file: None,
                duration_ms: 0,
            }));
        }
        commands.push(Command::StartMemoryUpdate(StartMemoryUpdate));
        self.run(key, commands).await?;
        self.job(key).await
    }

    async fn commit(
        &self,
        key: &SessionKey,
        began: Option<Timestamp>,
        failed: Option<FailMemoryUpdate>,
        update: RecordMemoryVersion,
    ) -> Result<bool, HostError> {
        if !self.look(key, |session| session.memory().is_running_since(began)) {
            return Ok(false);
        }
        let mut commands: Vec<_> = failed.map(Command::FailMemoryUpdate).into_iter().collect();
        commands.push(Command::RecordMemoryVersion(update));
        Ok(self.run(key, commands).await? > 0)
    }

    async fn fail(
        &self,
        key: &SessionKey,
        began: Option<Timestamp>,
        failure: FailMemoryUpdate,
    ) -> Result<(), HostError> {
        if !self.look(key, |session| session.memory().is_running_since(began)) {
            return Ok(());
        }
        self.run(key, vec![Command::FailMemoryUpdate(failure)])
            .await
            .map(drop)
    }

    async fn file_written(&self, key: &SessionKey) -> Result<(), HostError> {
        self.run(key, vec![Command::ConfirmMemoryFile(ConfirmMemoryFile)])
            .await
            .map(drop)
    }
}
