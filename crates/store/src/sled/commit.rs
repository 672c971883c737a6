//! The commit thread, the only writer of the store. It drains the queue, applies the changes as one
//! group, syncs once, and then sends the replies.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use ::sled::Db;
use tokio::sync::mpsc;
use tracing::Span;

use super::batch::{Batcher, NextGroup};
use super::files::DurableFiles;
use super::garbage;
use super::group::{Sequences, WriteGroup};
use super::job::{DiskUse, PendingReply, WriteJob};
use super::open;
use super::options::SledOptions;
use super::queued::{OptionalObserver, QueuedJob};
use super::shared::Shared;
use super::space::{DiskSpace, check_free_space_to_open, full_disk_reason};
use super::write_error::WriteError;
use crate::{StoreError, crash_point};

/// The maximum number of groups between two garbage collections. Garbage is collected when the queue is
/// empty. This limit lets deletions finish under constant load too.
const GROUPS_TO_GARBAGE: u32 = 16;

const NOT_OPENED: &str =
    "it cannot be opened again yet after a full disk: the next attempt follows";

fn refuse(jobs: Vec<WriteJob>, trouble: &WriteError) {
    for job in jobs {
        job.refuse(trouble);
    }
}

/// The state of the commit thread.
pub(super) struct Committer {
    shared: Arc<Shared>,
    files: DurableFiles,
    counts: Sequences,
    garbage: VecDeque<Vec<u8>>,
    groups_since_garbage: u32,
    gathering: Batcher,
    queue: mpsc::Receiver<QueuedJob>,
    options: SledOptions,
    space: DiskSpace,
    /// True after sled met a full disk. sled accepts no writes until it is reopened.
    needs_reopen: bool,
    /// True if a group was applied but not synced because a resource was exhausted. The group stays hidden,
    /// and no other group starts, until a sync succeeds.
    unsynced: bool,
    observers: OptionalObserver,
    /// The spans of the changes in flight. They end when the replies are sent.
    spans: Vec<Span>,
}

impl Committer {
    pub(super) fn new(
        shared: Arc<Shared>,
        files: DurableFiles,
        counts: Sequences,
        queue: mpsc::Receiver<QueuedJob>,
        options: SledOptions,
    ) -> Result<Self, StoreError> {
        let garbage =
            garbage::journal(&shared.db()?).map_err(|e| StoreError::Read(e.to_string()))?;
        Ok(Self {
            shared,
            files,
            counts,
            garbage: garbage.into(),
            groups_since_garbage: 0,
            gathering: Batcher::new(options.pending_writes.clone()),
            queue,
            observers: options.observers.clone(),
            spans: Vec::new(),
            space: {
                let space = DiskSpace::new(&options.dir, options.min_free_bytes);
                space.create_spare_file();
                space
            },
            options,
            needs_reopen: false,
            unsynced: false,
        })
    }

    /// Runs until all senders are dropped and the queue is empty.
    pub(super) fn run(mut self) {
        // A panic of this thread must mark the store as failed, whatever it was doing.
        let _guard = FailOnPanic(Arc::clone(&self.shared));
        while let Some(jobs) = self.next_group() {
            if let Some(reason) = self.shared.failure() {
                self.spans.clear();
                refuse(jobs, &WriteError::Failed(reason));
                continue;
            }
            if !jobs.is_empty() {
                self.groups_since_garbage += 1;
                self.commit(jobs);
                if self.groups_since_garbage < GROUPS_TO_GARBAGE {
                    continue;
                }
            }
            self.groups_since_garbage = 0;
            if self.shared.failure().is_none() && !self.unsynced {
                self.collect_garbage();
            }
        }
        // sled cannot flush after a full disk. Acknowledged changes were synced before.
        if self.shared.failure().is_none() && !self.needs_reopen {
            self.finish();
        }
    }

    /// Waits for the next changes. Returns an empty list if garbage can be collected meanwhile, or `None`
    /// if all senders are gone.
    fn next_group(&mut self) -> Option<Vec<WriteJob>> {
        let mut waiting = NextGroup::default();
        // Block on the queue unless garbage can be removed meanwhile.
        let idle_work = !self.garbage.is_empty()
            && self.shared.failure().is_none()
            && !self.needs_reopen
            && !self.unsynced;
        if !idle_work {
            waiting.push(self.queue.blocking_recv()?);
        }
        // Remaining garbage is found in the journal when the store is opened next.
        if !waiting.drain(&mut self.queue) && waiting.queued.is_empty() {
            return None;
        }
        self.gathering.collect(&mut waiting, &mut self.queue);
        self.shared.counters.count_unqueued(waiting.queued.len());
        let jobs = waiting.queued.into_iter().map(|queued| self.take(queued));
        Some(jobs.collect())
    }

    fn take(&mut self, queued: QueuedJob) -> WriteJob {
        let (job, span) = queued.take(&self.observers);
        if !span.is_disabled() {
            self.spans.push(span);
        }
        job
    }

    fn commit(&mut self, jobs: Vec<WriteJob>) {
        let jobs = self.reject_without_space(jobs);
        // A previous group may wait for its sync. It must become durable first, because a later sync would
        // reveal both.
        if jobs.is_empty() {
            return;
        }
        if let Err(trouble) = self.sync_pending() {
            if let WriteError::Failed(reason) = &trouble {
                self.shared.fail(reason.clone());
            }
            self.spans.clear();
            refuse(jobs, &trouble);
            return;
        }
        let mut answers = Vec::with_capacity(jobs.len());
        let trouble = self.write(jobs, &mut answers).err();
        match &trouble {
            None => self.shared.publish_group(),
            Some(WriteError::Failed(reason)) => drop(self.shared.fail(reason.clone())),
            // The outcome of the group is known only after the store was reopened. Until then the group stays
            // hidden, as after a failure.
            Some(WriteError::OutOfSpace(_)) => self.handle_full_disk(),
            // The next change retries the sync. The canary of the readiness check is such a change.
            Some(WriteError::OutOfResources(resource)) => {
                tracing::warn!(resource, "the store cannot sync for now: it is tried again");
                self.unsynced = true;
            }
        }
        if self.needs_reopen {
            // Reopen for the readers, which otherwise see only data in memory. A failure is ignored here because
            // the next group retries.
            let _ = self.reopen();
        }
        // End the spans before the replies: a caller with a reply may close its own span at once.
        self.spans.clear();
        for answer in answers {
            answer(trouble.as_ref());
        }
    }

    /// Returns the jobs for which space is available, and rejects the others.
    fn reject_without_space(&mut self, jobs: Vec<WriteJob>) -> Vec<WriteJob> {
        let bytes = jobs.iter().map(WriteJob::bytes).sum();
        let mut room = self.space.check(bytes);
        // sled may have met the full disk during its own background writes. It stops reading then, too.
        if room.is_err() && !self.needs_reopen {
            let flushed = self.db().map(|db| db.flush());
            if flushed.is_ok_and(|flushed| flushed.is_err_and(|e| full_disk_reason(&e).is_some())) {
                self.handle_full_disk();
            }
        }
        if self.needs_reopen {
            room = self.reopen().and(room);
        }
        // Readers of the state, such as `check_space`, learn of every change of the check.
        self.shared.set_full(room.err());
        let Err(why) = room else {
            return jobs;
        };
        let grows = |job: &WriteJob| matches!(job.disk, DiskUse::Grows(_));
        // Until sled is reopened, it accepts no writes at all, so deletions are rejected too.
        let (growing, others) = jobs
            .into_iter()
            .partition(|job| grows(job) || self.needs_reopen);
        // Deletions and releases continue, because they make space available.
        refuse(growing, &WriteError::OutOfSpace(why));
        others
    }

    /// Syncs a group that waited for a resource. The group becomes durable although its callers received an
    /// error. That is allowed, because the error states that the outcome is unknown.
    fn sync_pending(&mut self) -> Result<(), WriteError> {
        // Reopening synced the whole store.
        if !self.unsynced || self.needs_reopen {
            return Ok(());
        }
        let db = self.db()?;
        self.sync(&db, 0)?;
        self.unsynced = false;
        self.shared.publish_group();
        Ok(())
    }

    fn handle_full_disk(&mut self) {
        self.needs_reopen = true;
        self.space.record_full();
        self.shared.set_full(Some(NOT_OPENED));
    }

    /// Reopens the store after a full disk. sled accepts no writes after a failed one. Acknowledged changes
    /// were synced before and are recovered as after a crash.
    fn reopen(&mut self) -> Result<(), &'static str> {
        check_free_space_to_open(&self.options.dir)?;
        // The old handle must be dropped first, because sled locks the folder.
        self.shared.set_db(None);
        match open::open_locked(&self.options) {
            Ok(opened) => {
                // Recovery may have dropped the last group together with its garbage, so the journal is read again.
                let garbage = garbage::journal(&opened.db).map_err(|_| NOT_OPENED)?;
                self.garbage = garbage.into();
                self.files = opened.files;
                self.counts = Sequences {
                    sequence: opened.sequence,
                    incarnation: opened.incarnation,
                };
                self.shared.set_db(Some(opened.db));
                // The opening has synced all that it recovered, so the heads in the tree are durable.
                self.shared.publish_group();
                self.needs_reopen = false;
                self.unsynced = false;
                self.space.create_spare_file();
                tracing::info!("the store was opened anew after its disk was full");
                Ok(())
            }
            // Retrying cannot repair these, so the store fails for good.
            Err(error @ (StoreError::Corrupt { .. } | StoreError::Newer { .. })) => {
                self.shared.fail(error.to_string());
                Err(NOT_OPENED)
            }
            Err(error) => {
                tracing::error!(%error, "the store cannot be opened anew yet: trying again");
                Err(NOT_OPENED)
            }
        }
    }

    /// Applies all jobs as one group and syncs it. Replies are collected, not sent.
    fn write(
        &mut self,
        jobs: Vec<WriteJob>,
        answers: &mut Vec<PendingReply>,
    ) -> Result<(), WriteError> {
        let commits = jobs.len();
        let db = self.db()?;
        let mut group = WriteGroup::new(&self.shared, &db, &mut self.counts);
        let (mut broken, mut late) = (None, Vec::new());
        for job in jobs {
            // The group cannot be trusted after a broken job, so the remaining jobs are rejected without running.
            if broken.is_some() {
                late.push(job);
                continue;
            }
            let (answer, error) = job.run(&mut group);
            answers.push(answer);
            broken = error.map(|error| WriteError::of(&error));
        }
        if let Some(trouble) = broken {
            refuse(late, &trouble);
            return Err(trouble);
        }
        crash_point("log.decided");
        group.apply().map_err(|e| WriteError::of(&e))?;
        crash_point("log.applied");
        let (wrote, discarded) = (group.wrote, std::mem::take(&mut group.garbage));
        // A group of rejections alone has written nothing and needs no sync.
        if wrote {
            let synced = self.sync(&db, commits);
            // Before the sync, a crash would still show the old heads. So garbage is not collected while a group waits
            // for its sync. It is queued nevertheless, because the retried sync does not see this group any more.
            self.garbage.extend(discarded);
            synced?;
        }
        Ok(())
    }

    /// Flushes sled and syncs its files. All applied changes are durable afterwards.
    fn sync(&mut self, db: &Db, commits: usize) -> Result<(), WriteError> {
        #[expect(
            clippy::disallowed_methods,
            reason = "measures the disk for the engine's own metrics, decides nothing"
        )]
        let begun = Instant::now();
        // The blocking call: `flush_async` hung under 100 concurrent calls.
        db.flush().map_err(|e| WriteError::of(&e))?;
        crash_point("log.flushed");
        self.files.sync().map_err(|e| WriteError::of_sync(&e))?;
        crash_point("log.synced");
        // Only after the sync: a mark ahead of the log would be taken for a loss.
        match self.files.write_mark(self.counts.sequence) {
            // The mark may be behind the log. The log itself is durable.
            Err(e) if e.kind() == std::io::ErrorKind::StorageFull => {}
            written => written.map_err(|e| WriteError::Failed(e.to_string()))?,
        }
        let took = begun.elapsed();
        if commits > 0 {
            // A sync without commits is a retry or the final sync, which would distort the metrics.
            self.observers.synced(commits, took);
        }
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.gathering.record_sync(took);
        self.shared.counters.count_synced(commits, micros);
        Ok(())
    }

    fn collect_garbage(&mut self) {
        let Some(prefix) = self.garbage.front() else {
            return;
        };
        let removed = match self.db() {
            Ok(db) => garbage::collect_some(&db, prefix).map_err(|e| WriteError::of(&e)),
            Err(trouble) => Err(trouble),
        };
        match removed {
            // Not done yet. The prefix stays at the front for the next pass.
            Ok(false) | Err(WriteError::OutOfResources(_)) => {}
            Ok(true) => drop(self.garbage.pop_front()),
            Err(WriteError::Failed(reason)) => drop(self.shared.fail(reason)),
            Err(WriteError::OutOfSpace(_)) => self.handle_full_disk(),
        }
    }

    fn db(&self) -> Result<Db, WriteError> {
        self.shared
            .db()
            .map_err(|_| WriteError::OutOfSpace(NOT_OPENED))
    }

    fn finish(&mut self) {
        let synced = self.db().and_then(|db| self.sync(&db, 0)).and_then(|()| {
            let mark = self.files.sync_mark();
            mark.map_err(|e| WriteError::Failed(e.to_string()))
        });
        // A full disk or a missing resource is ignored here: acknowledged changes are already durable.
        if let Err(WriteError::Failed(reason)) = synced {
            self.shared.fail(reason);
        }
    }
}

/// Marks the store as failed if the commit thread panics. sled contains many assertions, and a panic
/// must not look like a slow store.
struct FailOnPanic(Arc<Shared>);

impl Drop for FailOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.fail("the commit thread panicked".into());
        }
    }
}
