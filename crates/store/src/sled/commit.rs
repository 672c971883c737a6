//! The one thread that writes: it drains the queue, applies what it found as one group, syncs once,
//! and only then answers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use palimpsest_core::ids::{Revision, SessionKey, Timestamp};
use tokio::sync::mpsc::{self, error::TryRecvError};
use tokio::sync::oneshot;
use tracing::Span;

use super::files::Files;
use super::garbage;
use super::group::{Counts, Group, Stop};
use super::queued::{Observers, Queued};
use super::shared::Shared;
use crate::{Batch, DueChange, Lease, Snapshot, StoreError, crash_point};

/// The most changes in a group, and so the most that a failure leaves in doubt.
const MAX_GROUP: usize = 1024;

/// The bytes after which a group takes no more: the first in it should not wait for all the others.
const MAX_GROUP_BYTES: usize = 4 << 20;

pub(super) type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// A change that was asked for.
pub(super) enum Job {
    Append(SessionKey, Batch, Reply<Revision>),
    PutSnapshot(SessionKey, Snapshot, Reply<()>),
    Delete(SessionKey, Reply<bool>),
    Claim(SessionKey, Lease, Timestamp, Reply<bool>),
    Release(SessionKey, String, DueChange, Reply<bool>),
    Check(Reply<()>),
}

impl Job {
    fn bytes(&self) -> usize {
        match self {
            Self::Append(_, batch, _) => batch.frame.len() + batch.summary.len(),
            Self::PutSnapshot(_, snapshot, _) => snapshot.bytes.len(),
            _ => 0,
        }
    }

    /// Adds the change to the group. The answer waits: even a refusal names a revision that must be
    /// durable before anybody hears of it.
    fn run(self, group: &mut Group) -> Result<Answer, (Answer, ::sled::Error)> {
        match self {
            Self::Append(key, batch, reply) => answer(reply, group.append(&key, &batch)),
            Self::PutSnapshot(key, snapshot, reply) => {
                answer(reply, group.put_snapshot(&key, &snapshot))
            }
            Self::Delete(key, reply) => answer(reply, group.delete(&key)),
            Self::Claim(key, lease, now, reply) => answer(reply, group.claim(&key, &lease, now)),
            Self::Release(key, owner, next, reply) => {
                answer(reply, group.release(&key, &owner, next))
            }
            Self::Check(reply) => answer(reply, group.canary()),
        }
    }

    fn refuse(self, reason: &str) {
        let failed = StoreError::Failed(reason.to_owned());
        match self {
            Self::Append(_, _, reply) => drop(reply.send(Err(failed))),
            Self::PutSnapshot(_, _, reply) | Self::Check(reply) => drop(reply.send(Err(failed))),
            Self::Delete(_, reply)
            | Self::Claim(_, _, _, reply)
            | Self::Release(_, _, _, reply) => {
                drop(reply.send(Err(failed)));
            }
        }
    }
}

/// What to tell one caller once it is known whether the group failed, and why.
type Answer = Box<dyn FnOnce(Option<&str>) + Send>;

fn answer<T: Send + 'static>(
    reply: Reply<T>,
    result: Result<T, Stop>,
) -> Result<Answer, (Answer, ::sled::Error)> {
    let (result, broken) = match result {
        Ok(value) => (Ok(value), None),
        Err(Stop::Refused(error)) => (Err(error), None),
        Err(Stop::Broken(error)) => (Err(StoreError::Failed(String::new())), Some(error)),
    };
    let answer: Answer = Box::new(move |failure| {
        let result = match failure {
            None => result,
            Some(reason) => Err(StoreError::Failed(reason.to_owned())),
        };
        // A caller that has gone away does not want to know.
        drop(reply.send(result));
    });
    match broken {
        None => Ok(answer),
        Some(error) => Err((answer, error)),
    }
}

/// The thread's own state.
pub(super) struct Committer {
    shared: Arc<Shared>,
    files: Files,
    counts: Counts,
    garbage: VecDeque<Vec<u8>>,
    queue: mpsc::Receiver<Queued>,
    observers: Observers,
    /// The spans of the changes under way: they end with the answers.
    spans: Vec<Span>,
}

impl Committer {
    pub(super) fn new(
        shared: Arc<Shared>,
        files: Files,
        counts: Counts,
        (queue, observers): (mpsc::Receiver<Queued>, Observers),
    ) -> Result<Self, StoreError> {
        let garbage = garbage::journal(&shared.db).map_err(|e| StoreError::Read(e.to_string()))?;
        Ok(Self {
            shared,
            files,
            counts,
            garbage: garbage.into(),
            queue,
            observers,
            spans: Vec::new(),
        })
    }

    /// Works until every sender is gone and the queue is empty.
    pub(super) fn run(mut self) {
        let _guard = FailOnPanic(Arc::clone(&self.shared));
        while let Some(jobs) = self.next_group() {
            if let Some(reason) = self.shared.failure() {
                self.spans.clear();
                for job in jobs {
                    job.refuse(&reason);
                }
                continue;
            }
            if jobs.is_empty() {
                self.collect_garbage();
            } else {
                self.commit(jobs);
            }
        }
        if self.shared.failure().is_none() {
            self.finish();
        }
    }

    /// Waits for the next changes; none at all when there is garbage to collect meanwhile.
    fn next_group(&mut self) -> Option<Vec<Job>> {
        let mut jobs = Vec::new();
        let mut bytes = 0;
        let idle_work = !self.garbage.is_empty() && self.shared.failure().is_none();
        if !idle_work {
            let queued = self.queue.blocking_recv()?;
            let job = self.take(queued);
            bytes += job.bytes();
            jobs.push(job);
        }
        while jobs.len() < MAX_GROUP && bytes < MAX_GROUP_BYTES {
            match self.queue.try_recv() {
                Ok(queued) => {
                    let job = self.take(queued);
                    bytes += job.bytes();
                    jobs.push(job);
                }
                // What is left of the garbage is found again at the next open.
                Err(TryRecvError::Disconnected) if jobs.is_empty() => return None,
                Err(TryRecvError::Disconnected | TryRecvError::Empty) => break,
            }
        }
        self.shared.counters.unqueued(jobs.len());
        Some(jobs)
    }

    fn take(&mut self, queued: Queued) -> Job {
        let (job, span) = queued.take(&self.observers);
        if !span.is_disabled() {
            self.spans.push(span);
        }
        job
    }

    fn commit(&mut self, jobs: Vec<Job>) {
        let mut answers = Vec::with_capacity(jobs.len());
        let outcome = self.write(jobs, &mut answers);
        let failure = outcome.err().map(|reason| self.shared.fail(reason));
        if failure.is_none() {
            self.shared.reveal();
        }
        // Before the answers: whoever has one may be done with its own span at once.
        self.spans.clear();
        for answer in answers {
            answer(failure.as_deref());
        }
    }

    fn write(&mut self, jobs: Vec<Job>, answers: &mut Vec<Answer>) -> Result<(), String> {
        let commits = jobs.len();
        let mut group = Group::new(&self.shared, &mut self.counts);
        let mut broken = None;
        for job in jobs {
            match (broken.is_none(), job) {
                (true, job) => match job.run(&mut group) {
                    Ok(answer) => answers.push(answer),
                    Err((answer, error)) => {
                        answers.push(answer);
                        broken = Some(error.to_string());
                    }
                },
                (false, job) => job.refuse("an earlier change of the same group failed"),
            }
        }
        if let Some(reason) = broken {
            return Err(reason);
        }
        crash_point("log.decided");
        group.apply().map_err(|e| e.to_string())?;
        crash_point("log.applied");
        let (wrote, discarded) = (group.wrote, std::mem::take(&mut group.garbage));
        if wrote {
            self.sync(commits)?;
            self.garbage.extend(discarded);
        }
        Ok(())
    }

    /// One flush of sled, one sync of the file: what was applied is durable after both.
    fn sync(&mut self, commits: usize) -> Result<(), String> {
        #[expect(
            clippy::disallowed_methods,
            reason = "measures the disk for the engine's own metrics, decides nothing"
        )]
        let begun = Instant::now();
        self.shared.db.flush().map_err(|e| e.to_string())?;
        crash_point("log.flushed");
        self.files.sync().map_err(|e| e.to_string())?;
        crash_point("log.synced");
        self.files
            .write_mark(self.counts.sequence)
            .map_err(|e| e.to_string())?;
        let took = begun.elapsed();
        if commits > 0 {
            self.observers.synced(commits, took);
        }
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.shared.counters.synced(commits, micros);
        Ok(())
    }

    fn collect_garbage(&mut self) {
        let Some(prefix) = self.garbage.front() else {
            return;
        };
        match garbage::remove_some(&self.shared.db, prefix) {
            Ok(false) => {}
            Ok(true) => drop(self.garbage.pop_front()),
            Err(e) => drop(self.shared.fail(e.to_string())),
        }
    }

    fn finish(&mut self) {
        let synced = self.sync(0).and_then(|()| {
            let mark = self.files.sync_mark();
            mark.map_err(|e| e.to_string())
        });
        if let Err(reason) = synced {
            self.shared.fail(reason);
        }
    }
}

/// sled asserts much. A panic must not look like a store that is merely slow.
struct FailOnPanic(Arc<Shared>);

impl Drop for FailOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.fail("the commit thread panicked".into());
        }
    }
}
