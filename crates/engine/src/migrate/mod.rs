//! Copies sessions from one store into another with identical logs, results and views.
//!
//! A migration can be interrupted and repeated. The target must contain a prefix of the source's log, and the rest is
//! appended. A session is complete if both stores render identical views. A session that was deleted in one store
//! after its migration is not copied again.

mod deletions;
mod journal;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use palimpsest_core::codec;
use palimpsest_core::ids::{ProjectId, Revision, SessionKey, Timestamp};
use palimpsest_core::limits::Limits;
use palimpsest_core::policy::{Overlay, OverlayError};
use palimpsest_core::session::Session;
use palimpsest_core::view::{Provider, Target};
use palimpsest_store::blobs::{BlobError, Blobs, ReplaceOutcome};
use palimpsest_store::{
    Batch, DueChange, Frame, MAX_LIST, Position, SessionHead, SessionTips, Store, StoreError,
    crash_point,
};
use sha2::{Digest as _, Sha256};

pub use self::deletions::{DeletedSession, DeletedSessions, DeletionPolicy};
use self::journal::MigratedSession;
pub use self::journal::MigrationJournal;
use crate::EngineError;
use crate::clock::Clock;
use crate::sessions::{DefaultPolicies, READ_BYTES, Sessions, parent_in_row, tips_of};

/// Sessions that are copied concurrently.
const PARALLEL: usize = 8;
/// Cache size in bytes for the sessions of the view comparison.
const CACHE_BYTES: usize = 64 << 20;

/// An error of a migration.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// A log could not be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A result could not be read or written.
    #[error("a stored result of {0} cannot be moved: {1}")]
    Blobs(SessionKey, #[source] BlobError),
    /// A session could not be read to compare its views.
    #[error("{0} cannot be read: {1}")]
    Session(SessionKey, #[source] EngineError),
    /// The target contains a different session of this name.
    #[error(
        "{0} is in the target and is not the beginning of what is in the source: delete one of them, or move into \
         an empty store"
    )]
    Diverged(SessionKey),
    /// The source changed during the migration.
    #[error(
        "{0} changed while it was moved: stop the servers and workers on the source, then run the command again"
    )]
    Changed(SessionKey),
    /// Sessions that were migrated before are deleted in one of the stores.
    #[error(
        "{0} sessions were in both stores and have been deleted in one of them since: {1}. Nothing was moved. With \
         --deletions mirror they are deleted in the other store too; with --deletions keep they stay where they are, \
         and those of the source are moved again"
    )]
    Deleted(usize, DeletedSessions),
    /// Sessions are deleted in one store and have changed in the other.
    #[error(
        "{0} sessions were deleted in one store and changed in the other: {1}. Nothing was moved. Delete them there, \
         or keep them with --deletions keep"
    )]
    ChangedAfterDeletion(usize, DeletedSessions),
    /// The journal of the migration could not be read or written.
    #[error("the record of what was moved cannot be used: {0}: {1}")]
    Record(String, #[source] std::io::Error),
    /// The views of the two stores differ.
    #[error(
        "{0} has another view in the target. This is a defect of Palimpsest: report it. The source is unchanged"
    )]
    Differs(SessionKey),
}

/// One of the two stores.
pub struct StoreSide {
    log: Arc<dyn Store>,
    blobs: Arc<Blobs>,
    sessions: Sessions,
}

impl StoreSide {
    /// Creates a side from a log and its blob store.
    pub fn new(
        log: Arc<dyn Store>,
        blobs: Arc<Blobs>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, OverlayError> {
        let policies =
            DefaultPolicies::new(&Overlay::default(), &std::collections::BTreeMap::new())?;
        let limits = Arc::new(Limits::default());
        let sessions = Sessions::new(Arc::clone(&log), clock, limits, policies, CACHE_BYTES);
        Ok(Self {
            sessions: sessions
                .with_blobs(Arc::clone(&blobs))
                .with_process("migrate".to_owned()),
            log,
            blobs,
        })
    }
}

/// The result of a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MigrationReport {
    /// Sessions of the source. All of them are in the target after the migration.
    pub sessions: u64,
    /// Sessions of which at least a part was copied.
    pub moved: u64,
    /// Sessions that were deleted in one store because they were deleted in the other.
    pub deleted: u64,
    /// Events that were appended.
    pub events: u64,
    /// Results and summaries that were copied.
    pub files: u64,
    /// Bytes of the appended events and the copied files.
    pub bytes: u64,
}

impl std::ops::AddAssign for MigrationReport {
    fn add_assign(&mut self, other: Self) {
        self.sessions += other.sessions;
        self.moved += other.moved;
        self.deleted += other.deleted;
        self.events += other.events;
        self.files += other.files;
        self.bytes += other.bytes;
    }
}

/// Migrates the sessions of one project, or all sessions. Deletions since an earlier run are settled first.
pub async fn migrate(
    (from, to): (&StoreSide, &StoreSide),
    project: Option<&ProjectId>,
    now: Timestamp,
    record: &MigrationJournal,
    deletions: DeletionPolicy,
) -> Result<MigrationReport, MigrateError> {
    let mut all = MigrationReport {
        deleted: deletions::apply_deletions((from, to), project, record, deletions).await?,
        ..MigrationReport::default()
    };
    let mut after: Option<SessionKey> = None;
    loop {
        // `list` fails at an unreadable row. Skipping the row would silently leave its session behind.
        let page = from.log.list(project, after.as_ref(), MAX_LIST).await?;
        let Some((last, _)) = page.last() else {
            return Ok(all);
        };
        after = Some(last.clone());
        let moves = page.into_iter().map(|(key, head)| async move {
            let moved = SessionMigration {
                from,
                to,
                key: &key,
                head: &head,
                now,
                record,
            };
            moved.run().await
        });
        // An error drops the other copies in progress. The next run continues them.
        let mut done = stream::iter(moves).buffer_unordered(PARALLEL);
        while let Some(one) = done.try_next().await? {
            all += one;
        }
        // One sync for each page, because a sync for each session would be slow. If a crash loses lines, the next run
        // compares their sessions again.
        record.sync().await?;
        tracing::info!(sessions = all.sessions, moved = all.moved, "moving");
    }
}

/// The migration of one session.
struct SessionMigration<'a> {
    from: &'a StoreSide,
    to: &'a StoreSide,
    key: &'a SessionKey,
    head: &'a SessionHead,
    now: Timestamp,
    record: &'a MigrationJournal,
}

impl SessionMigration<'_> {
    async fn run(self) -> Result<MigrationReport, MigrateError> {
        let mut done = MigrationReport {
            sessions: 1,
            ..MigrationReport::default()
        };
        let there = self.to.log.head(self.key).await?;
        let at = there
            .as_ref()
            .map_or(Position::START, SessionHead::position);
        self.check_is_prefix(at).await?;
        // Results are copied first: an event may only reference a file that exists.
        self.files(&mut done).await?;
        crash_point("migrate.files");
        // An earlier run may have counted some results in the target already.
        let counted = there.as_ref().map_or(0, |head| head.blob_bytes);
        let at = self.log(at, counted, &mut done).await?;
        self.snapshot(at, there.as_ref()).await?;
        crash_point("migrate.session");
        // A write to the source during the copy would be missing in the target, so the head is compared before the
        // views.
        let now = self.from.log.head(self.key).await?;
        if now.map(|head| head.position()) != Some(self.head.position()) {
            return Err(MigrateError::Changed(self.key.clone()));
        }
        let both = [self.views(self.from).await?, self.views(self.to).await?];
        if both[0] != both[1] {
            return Err(MigrateError::Differs(self.key.clone()));
        }
        let known = MigratedSession {
            source: self.head.incarnation,
            target: at.incarnation,
            revision: self.head.revision,
        };
        self.record.add(self.key, known).await?;
        done.moved = u64::from(done.events + done.files > 0);
        Ok(done)
    }

    /// Returns an error unless the target contains a prefix of the source's log.
    async fn check_is_prefix(&self, at: Position) -> Result<(), MigrateError> {
        if at.revision == Revision::ZERO {
            return Ok(());
        }
        // Comparing the frame that ends at the target's revision is enough to detect a session of the same name with
        // another history.
        let last = async |side: &StoreSide, stands: Position| {
            let before = stands.at(Revision::new(at.revision.get() - 1));
            let frames = side.log.read(self.key, before, 1).await?;
            let last = frames.into_iter().next();
            Ok::<_, StoreError>(last.filter(|frame| frame.last() == at.revision))
        };
        let source = last(self.from, self.head.position()).await?;
        let target = last(self.to, at).await?;
        if source.is_none() || source != target {
            return Err(MigrateError::Diverged(self.key.clone()));
        }
        Ok(())
    }

    async fn files(&self, done: &mut MigrationReport) -> Result<(), MigrateError> {
        let wrong = |error| MigrateError::Blobs(self.key.clone(), error);
        let there = self.to.blobs.results(self.key).await.map_err(wrong)?;
        for (file, bytes) in self.from.blobs.results(self.key).await.map_err(wrong)? {
            // The name ends with the digest of the content, so an equal name and size mean equal content.
            if there
                .iter()
                .any(|(name, size)| *name == file && *size == bytes)
            {
                continue;
            }
            let path = palimpsest_store::blobs::result_path(self.key, &file).map_err(wrong)?;
            let content = self.from.blobs.get(&path).await.map_err(wrong)?;
            done.bytes += content.len() as u64;
            done.files += 1;
            let put = self.to.blobs.put_file(self.key, &file, content);
            put.await.map_err(wrong)?;
        }
        let found = self.from.blobs.summary(self.key).await.map_err(wrong)?;
        let there = self.to.blobs.summary(self.key).await.map_err(wrong)?;
        // `summary.md` can change in place, so the text is compared instead of the name.
        if let Some(found) = found
            && there.as_ref().is_none_or(|there| there.text != found.text)
        {
            let text = found.text.clone();
            done.bytes += text.len() as u64;
            let put = self
                .to
                .blobs
                .replace_summary(self.key, there.as_ref(), text);
            if put.await.map_err(wrong)? == ReplaceOutcome::Changed {
                return Err(MigrateError::Changed(self.key.clone()));
            }
            done.files += 1;
        }
        Ok(())
    }

    /// Appends the missing part of the log and returns the target's position.
    async fn log(
        &self,
        mut at: Position,
        counted: u64,
        done: &mut MigrationReport,
    ) -> Result<Position, MigrateError> {
        // The index of the target is built from the state of the session. A change of the source after this read is found
        // at the end.
        let tips = if at.revision < self.head.revision {
            let tips = self.from.sessions.read(self.key, tips_of).await;
            tips.map_err(|error| MigrateError::Session(self.key.clone(), error))?
        } else {
            None
        };
        let parent = parent_in_row(&self.head.list_row);
        while at.revision < self.head.revision {
            let after = self.head.position().at(at.revision);
            let frames = self.from.log.read(self.key, after, READ_BYTES).await?;
            // The head promised more events. They are missing because the session was deleted or replaced.
            if frames.is_empty() {
                return Err(MigrateError::Changed(self.key.clone()));
            }
            for frame in frames {
                let is_last = frame.last() == self.head.revision;
                done.events += u64::from(frame.events);
                done.bytes += frame.bytes.len() as u64;
                let of_session = (counted, parent.clone(), tips.clone());
                at = self.append(at, frame, is_last, of_session).await?;
            }
        }
        Ok(at)
    }

    /// Appends one frame. With the last frame the session becomes due for the worker, the bytes of its results are
    /// counted, and its tips are stored.
    async fn append(
        &self,
        at: Position,
        frame: Frame,
        is_last: bool,
        (counted, parent, tips): (u64, Option<SessionKey>, Option<SessionTips>),
    ) -> Result<Position, MigrateError> {
        let changed = || MigrateError::Changed(self.key.clone());
        let batch = Batch {
            expected: at,
            events: frame.events.try_into().map_err(|_| changed())?,
            frame: frame.bytes,
            list_row: self.head.list_row.clone(),
            parent,
            due: if is_last {
                DueChange::At(self.now)
            } else {
                DueChange::Keep
            },
            completed_intents: Vec::new(),
            blob_bytes: if is_last {
                self.head.blob_bytes.saturating_sub(counted)
            } else {
                0
            },
            tips: tips.filter(|_| is_last),
        };
        match self.to.log.append(self.key, batch).await {
            Err(StoreError::Conflict { .. }) => Err(MigrateError::Diverged(self.key.clone())),
            appended => Ok(appended?),
        }
    }

    /// Copies the snapshot. Without it the first load would replay the whole log.
    async fn snapshot(
        &self,
        at: Position,
        there: Option<&SessionHead>,
    ) -> Result<(), MigrateError> {
        let Some(mark) = self.head.snapshot else {
            return Ok(());
        };
        let known = there.and_then(|head| head.snapshot);
        // A snapshot of the target that covers at least as much is kept.
        if known.is_some_and(|known| known.at >= mark.at) {
            return Ok(());
        }
        let snapshot = self.from.log.snapshot(self.key, self.head.incarnation);
        if let Some(snapshot) = snapshot.await? {
            self.to
                .log
                .put_snapshot(self.key, at.at(snapshot.at), snapshot.bytes)
                .await?;
        }
        Ok(())
    }

    /// Returns the digests of the views of a session, one for each provider.
    async fn views(&self, side: &StoreSide) -> Result<Vec<Option<[u8; 32]>>, MigrateError> {
        let digest = |session: &Session| {
            let providers = [
                Provider::Anthropic,
                Provider::OpenAi,
                Provider::Bedrock,
                Provider::OpenAiResponses,
            ];
            let of = |provider| {
                let target = Target {
                    provider,
                    ..Target::default()
                };
                let view = session.view(&target, None).ok()?;
                let mut digest = Sha256::new();
                let mut bytes = Vec::new();
                for message in &view.messages {
                    bytes.clear();
                    codec::write(provider, message, &mut bytes);
                    // The length separates the messages, so that another split of the same bytes has another digest.
                    digest.update((bytes.len() as u64).to_be_bytes());
                    digest.update(&bytes);
                }
                Some(digest.finalize().into())
            };
            providers.into_iter().map(of).collect()
        };
        let read = side.sessions.read_full(self.key, digest).await;
        read.map_err(|error| MigrateError::Session(self.key.clone(), error))
    }
}
