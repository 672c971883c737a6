//! The host of the worker over the sessions of this process.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use palimpsest_core::command::{
    Command, ConfirmMemoryFile, FailMemoryUpdate, RecordMemoryVersion, StartMemoryUpdate,
    is_memory_enabled, memory_update_due_at,
};
use palimpsest_core::ids::{MessageId, Ordinal, Revision, SessionKey, Timestamp};
use palimpsest_core::memory::MemoryContent;
use palimpsest_core::message::Message;
use palimpsest_core::session::{Author, Session};
use palimpsest_engine::EngineError;
use palimpsest_engine::clock::{Clock, IdSource};
use palimpsest_engine::models::Models;
use palimpsest_engine::sessions::{
    CommandOutcome, MissingSession, READ_BYTES, ReadMode, Sessions, Transaction,
};
use palimpsest_summarize::redact;

use crate::by_model::ModelMemoryWriter;
use crate::{HostError, MemoryJob, MessagePage, SessionHost, Worker, WorkerConfig};

/// Maximum number of messages in a page.
const MAX_PAGE_MESSAGES: usize = 2_000;
/// Estimated bytes of a token, for messages whose content is not in memory.
const BYTES_PER_TOKEN: usize = 4;

/// Creates the worker with its configuration. Without models, session memory is derived from facts alone.
pub fn worker(
    sessions: &Arc<Sessions>,
    blobs: &Arc<palimpsest_store::blobs::Blobs>,
    clock: &Arc<dyn Clock>,
    ids: &Arc<IdSource>,
    config: &WorkerConfig,
    models: Option<Arc<Models>>,
) -> Worker {
    let worker = Worker::new(
        sessions.log().clone(),
        Arc::new(LocalHost(Arc::clone(sessions))),
        Arc::clone(blobs),
        Arc::clone(clock),
        Arc::clone(ids),
        config.options(ids.uuid().to_string()),
    )
    // The sessions of this process notify the worker directly, without a poll.
    .woken_by(sessions.waker())
    .with_redact(redact_text);
    match models {
        Some(models) => worker.with_writer(Arc::new(ModelMemoryWriter(models))),
        None => worker,
    }
}

/// Removes secrets from a text.
pub(crate) fn redact_text(text: &str) -> String {
    redact(text).text.into_owned()
}

/// Reads the state of a session that an update or an edit needs.
pub(crate) async fn read_job(
    sessions: &Sessions,
    begin: ReadMode,
    key: &SessionKey,
) -> Result<MemoryJob, EngineError> {
    let now = sessions.clock().now();
    // A session's policy cannot disable the redaction that the configuration requires.
    let required = sessions.policies().of(&key.project).summary.redact_secrets;
    let read = sessions.read_with(begin, key, |session| {
        let mut job = job(session, now);
        job.summary.redact_secrets |= required;
        job
    });
    read.await
}

/// The sessions of this process as a [`SessionHost`].
struct LocalHost(Arc<Sessions>);

impl LocalHost {
    async fn change<D>(
        &self,
        key: &SessionKey,
        decide: impl Fn(&mut Transaction<'_>) -> Result<D, palimpsest_core::command::Rejection>
        + Send
        + Sync,
    ) -> Result<D, HostError>
    where
        D: Clone + Send,
    {
        let done = |_: &Session, done: &D| Ok(done.clone());
        // The steps of a pass skip the comparison with the log. The append rejects the step if another process has
        // written.
        let written =
            self.0
                .write_with(ReadMode::Cached, key, &MissingSession::Reject, decide, done);
        Box::pin(written).await.map_err(host_error)
    }

    async fn read_job(
        &self,
        begin: ReadMode,
        key: &SessionKey,
    ) -> Result<Option<MemoryJob>, HostError> {
        match read_job(&self.0, begin, key).await {
            Ok(job) => Ok(Some(job)),
            Err(EngineError::SessionNotFound(_)) => Ok(None),
            Err(error) => Err(host_error(error)),
        }
    }

    /// Reads the contents of messages from the log, for all appends of a range of revisions.
    async fn read_contents(
        &self,
        key: &SessionKey,
        first: Revision,
        last: Revision,
    ) -> Result<HashMap<MessageId, Arc<Message>>, EngineError> {
        let mut found = HashMap::new();
        let mut after = Revision::new(first.get().saturating_sub(1));
        while after < last {
            let events = self.0.events(key, after, READ_BYTES).await?;
            let Some((end, _)) = events.last() else {
                break;
            };
            after = *end;
            for (_, recorded) in events {
                let messages = recorded.event.messages().iter();
                let messages = messages.map(|appended| Arc::clone(&appended.message));
                found.extend(messages.map(|message| (message.id, message)));
            }
        }
        Ok(found)
    }
}

#[async_trait]
impl SessionHost for LocalHost {
    async fn job(&self, key: &SessionKey) -> Result<Option<MemoryJob>, HostError> {
        self.read_job(ReadMode::Fresh, key).await
    }

    async fn job_cached(&self, key: &SessionKey) -> Result<Option<MemoryJob>, HostError> {
        self.read_job(ReadMode::Cached, key).await
    }

    async fn messages(
        &self,
        key: &SessionKey,
        after: Option<Ordinal>,
        to: Ordinal,
        max_bytes: usize,
    ) -> Result<MessagePage, HostError> {
        let entries = |session: &Session| PageIndex::of(session, after, to, max_bytes);
        let read = self.0.read_with(ReadMode::Cached, key, entries);
        let index = read.await.map_err(host_error)?;
        // Contents that are not in memory are read from the log directly, so that a long session is not loaded
        // completely.
        let missing = || index.entries.iter().filter(|entry| entry.content.is_none());
        // One range covers all missing contents. Events between them are read too and dropped.
        let span = missing().next().zip(missing().next_back());
        let mut read = match span {
            None => HashMap::new(),
            Some((first, last)) => {
                let logged = self.read_contents(key, first.revision, last.revision);
                Box::pin(logged).await.map_err(host_error)?
            }
        };
        let messages = index.entries.into_iter();
        let messages =
            messages.filter_map(|entry| entry.content.or_else(|| read.remove(&entry.id)));
        Ok(MessagePage {
            messages: messages.collect(),
            next: index.next,
        })
    }

    async fn begin(&self, key: &SessionKey) -> Result<Option<MemoryJob>, HostError> {
        let begun = self.change(key, |transaction| {
            let now = transaction.now();
            let Some(session) = transaction.session() else {
                return Ok(None);
            };
            // The state is checked within the transaction, because another worker may have updated the session
            // meanwhile.
            if memory_update_due_at(session, now).is_none_or(|due| due > now) {
                return Ok(None);
            }
            // The first version is the template, so that an update always has a base to edit.
            if session.memory().version.is_none() {
                let source = session.revision();
                transaction.run(Command::RecordMemoryVersion(RecordMemoryVersion {
                    content: MemoryContent::default(),
                    author: Author::Template,
                    base_version: 0,
                    source,
                    read_through: None,
                    edited_file: None,
                    duration_ms: 0,
                }))?;
            }
            transaction.run(Command::StartMemoryUpdate(StartMemoryUpdate))?;
            Ok(transaction.session().map(|session| job(session, now)))
        });
        begun.await
    }

    async fn commit(
        &self,
        key: &SessionKey,
        began: Option<Timestamp>,
        failed: Option<FailMemoryUpdate>,
        update: RecordMemoryVersion,
    ) -> Result<bool, HostError> {
        let committed = self.change(key, |transaction| {
            let session = transaction.session();
            // The model may have run for long. The lease may have expired, or the store may have lost the start of
            // the update.
            if !session.is_some_and(|session| session.memory().is_running_since(began)) {
                return Ok(false);
            }
            if let Some(failed) = &failed {
                transaction.run(Command::FailMemoryUpdate(failed.clone()))?;
            }
            let outcome = transaction.run(Command::RecordMemoryVersion(update.clone()))?;
            Ok(matches!(outcome, CommandOutcome::Done(Some(_))))
        });
        committed.await
    }

    async fn fail(
        &self,
        key: &SessionKey,
        began: Option<Timestamp>,
        failure: FailMemoryUpdate,
    ) -> Result<(), HostError> {
        let recorded = self.change(key, |transaction| {
            let session = transaction.session();
            // A failover may have lost the start of this update. Its failure then belongs to no update of the session.
            if !session.is_some_and(|session| session.memory().is_running_since(began)) {
                return Ok(());
            }
            transaction.run(Command::FailMemoryUpdate(failure.clone()))?;
            Ok(())
        });
        recorded.await
    }

    async fn file_written(&self, key: &SessionKey) -> Result<(), HostError> {
        let recorded = self.change(key, |transaction| {
            transaction.run(Command::ConfirmMemoryFile(ConfirmMemoryFile))?;
            Ok(())
        });
        recorded.await
    }
}

fn job(session: &Session, now: Timestamp) -> MemoryJob {
    MemoryJob {
        revision: session.revision(),
        is_enabled: is_memory_enabled(session),
        due: memory_update_due_at(session, now),
        session_memory: session.memory().clone(),
        is_invalidated: session.is_memory_invalidated(),
        readable_through: session.memory_readable_through(),
        memory: session.policy().session_memory.clone(),
        summary: session.policy().summary.clone(),
    }
}

/// The messages of a page, with the contents that are in memory.
struct PageIndex {
    entries: Vec<IndexedMessage>,
    next: Option<Ordinal>,
}

struct IndexedMessage {
    id: MessageId,
    revision: Revision,
    content: Option<Arc<Message>>,
}

impl PageIndex {
    fn of(session: &Session, after: Option<Ordinal>, to: Ordinal, max_bytes: usize) -> Self {
        let mut index = Self {
            entries: Vec::new(),
            next: None,
        };
        let first = after.map_or(0, |after| after.get() + 1);
        let mut bytes = 0;
        for at in (first..=to.get()).map(Ordinal::new) {
            let Some(entry) = session.transcript().get(at) else {
                break;
            };
            // Messages that were rewound or snipped do not belong in the summary. Compacted ones do.
            if !entry.visibility.is_in_effect() {
                continue;
            }
            // Checked before the message is added, so a page always has at least one message.
            let is_full = index.entries.len() >= MAX_PAGE_MESSAGES || bytes >= max_bytes;
            if is_full {
                index.next = at.get().checked_sub(1).map(Ordinal::new);
                break;
            }
            let content = entry.content.clone();
            let estimate = || entry.size.tokens as usize * BYTES_PER_TOKEN;
            bytes += content
                .as_ref()
                .map_or_else(estimate, |content| content.content_bytes());
            index.entries.push(IndexedMessage {
                id: entry.id,
                revision: entry.revision,
                content,
            });
        }
        index
    }
}

fn host_error(error: EngineError) -> HostError {
    match error {
        EngineError::SessionNotFound(_) => HostError::SessionNotFound,
        EngineError::Rejected(rejection) => HostError::Refused(rejection.to_string()),
        error => HostError::Failed(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use palimpsest_conformance::MemoryLog;
    use palimpsest_core::command::{Append, CreateSession};
    use palimpsest_core::limits::Limits;
    use palimpsest_core::memory::{MemoryDocument, SectionKind};
    use palimpsest_core::message::{Block, Role};
    use palimpsest_engine::clock::ManualClock;
    use palimpsest_engine::sessions::DefaultPolicies;
    use uuid::Uuid;

    use super::*;

    /// A model may run for long, and the store may have lost recent commits meanwhile.
    #[tokio::test]
    async fn a_text_of_an_unknown_update_is_rejected() {
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_000)));
        let sessions = Arc::new(Sessions::new(
            Arc::new(MemoryLog::new()),
            clock,
            Arc::new(Limits::default()),
            DefaultPolicies::default(),
            1 << 20,
        ));
        let key = SessionKey::parse("projects/p/sessions/s").unwrap();
        let words = "what there is to do ".repeat(10_000);
        let id = MessageId::new(Uuid::from_u128(1));
        let message = Arc::new(Message::new(id, Role::User, vec![Block::text(words)]));
        let create = MissingSession::Create(CreateSession::default());
        let append = |transaction: &mut Transaction<'_>| {
            let messages = vec![Arc::clone(&message)];
            transaction.run(Command::Append(Append {
                messages,
                ..Append::default()
            }))
        };
        let written = sessions.write(&key, &create, append, |_, _| Ok(()));
        written.await.unwrap();

        let host = LocalHost(sessions);
        let mut text = MemoryDocument::template();
        let job = host.begin(&key).await.unwrap().unwrap();
        text.set(SectionKind::Task, "Mend it.");
        let update = RecordMemoryVersion {
            content: MemoryContent::verbatim(&text),
            author: Author::Extractive,
            base_version: job.session_memory.version.as_ref().unwrap().number,
            source: job.revision,
            read_through: job.readable_through,
            edited_file: None,
            duration_ms: 1,
        };
        let other = Some(Timestamp::from_millis(999));
        let commit = async |began| host.commit(&key, began, None, update.clone()).await;
        assert!(!commit(other).await.unwrap());
        let failure = FailMemoryUpdate {
            is_file_failure: false,
            detail: "it could not be".into(),
            retry_at: Timestamp::from_millis(2_000),
        };
        host.fail(&key, other, failure).await.unwrap();
        assert!(commit(job.session_memory.running).await.unwrap());
    }
}
