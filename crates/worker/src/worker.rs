//! The worker: the choice of sessions, their leases, and the start and end of passes.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use palimpsest_core::ids::SessionKey;
use palimpsest_engine::clock::{Clock, IdSource};
use palimpsest_facts::Redact;
use palimpsest_store::blobs::Blobs;
use palimpsest_store::{DueChange, DueQuery, WorkQueue, error_chain};
use tokio::sync::{Notify, Semaphore};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::host::{HostError, SessionHost};
use crate::options::WorkerOptions;
use crate::queue::ProjectQueue;
use crate::writer::MemoryWriter;
use crate::{backoff, lease, pass};

/// Maximum number of sessions in one query of the work queue.
const LIST_SESSIONS: usize = 1_000;
/// Smallest limit of sessions per project in a query. A higher `concurrency` raises the limit.
const LIST_SESSIONS_PER_PROJECT: usize = 16;

/// Polls, and the maximum time, for which a session stays reserved for its previous worker.
const MAX_RESERVED_POLLS: u32 = 2;
const MAX_RESERVATION: Duration = Duration::from_secs(5);

/// The state that all passes share.
pub(crate) struct WorkerContext {
    pub(crate) log: Arc<dyn WorkQueue>,
    pub(crate) host: Arc<dyn SessionHost>,
    pub(crate) blobs: Arc<Blobs>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<IdSource>,
    pub(crate) writer: Option<Arc<dyn MemoryWriter>>,
    pub(crate) redact: Option<Redact>,
    pub(crate) options: WorkerOptions,
    pub(crate) stats: WorkerStats,
    /// Permits for passes that compute at the same time.
    pub(crate) cores: Semaphore,
}

/// Counters since the worker started.
#[derive(Debug, Clone, Default)]
pub struct WorkerStats(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    running: AtomicU64,
    updates: AtomicU64,
    failures: AtomicU64,
    file_failures: AtomicU64,
    edits: AtomicU64,
}

impl WorkerStats {
    /// Sessions in progress.
    pub fn running(&self) -> u64 {
        self.0.running.load(Ordering::Relaxed)
    }

    /// Versions that the worker wrote.
    pub fn updates(&self) -> u64 {
        self.0.updates.load(Ordering::Relaxed)
    }

    /// Failed updates and failed attempts of a model.
    pub fn failures(&self) -> u64 {
        self.0.failures.load(Ordering::Relaxed)
    }

    /// Failed writes of a file.
    pub fn file_failures(&self) -> u64 {
        self.0.file_failures.load(Ordering::Relaxed)
    }

    /// Edits of people that the worker imported.
    pub fn edits(&self) -> u64 {
        self.0.edits.load(Ordering::Relaxed)
    }

    pub(crate) fn update(&self) {
        self.0.updates.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn failure(&self) {
        self.0.failures.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn file_failure(&self) {
        self.0.file_failures.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn edit(&self) {
        self.0.edits.fetch_add(1, Ordering::Relaxed);
    }

    fn runs(&self, sessions: usize) {
        let sessions = u64::try_from(sessions).unwrap_or(u64::MAX);
        self.0.running.store(sessions, Ordering::Relaxed);
    }
}

/// Keeps the `summary.md` of every session in a store up to date.
pub struct Worker {
    shared: Arc<WorkerContext>,
    wake: Arc<Notify>,
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("options", &self.shared.options)
            .finish_non_exhaustive()
    }
}

impl Worker {
    /// Creates a worker without a model.
    pub fn new(
        log: Arc<dyn WorkQueue>,
        host: Arc<dyn SessionHost>,
        blobs: Arc<Blobs>,
        clock: Arc<dyn Clock>,
        ids: Arc<IdSource>,
        options: WorkerOptions,
    ) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let shared = WorkerContext {
            log,
            host,
            blobs,
            clock,
            ids,
            writer: None,
            redact: None,
            options,
            stats: WorkerStats::default(),
            // Half of the cores stay free for calls.
            cores: Semaphore::new((cores / 2).max(1)),
        };
        Self {
            shared: Arc::new(shared),
            wake: Arc::default(),
        }
    }

    /// Adds a model that writes the session memory of sessions whose policy enables it.
    #[must_use]
    pub fn with_writer(mut self, writer: Arc<dyn MemoryWriter>) -> Self {
        self.change(|shared| shared.writer = Some(writer));
        self
    }

    /// Adds a function that redacts secrets.
    #[must_use]
    pub fn with_redact(mut self, redact: Redact) -> Self {
        self.change(|shared| shared.redact = Some(redact));
        self
    }

    fn change(&mut self, change: impl FnOnce(&mut WorkerContext)) {
        // The builder methods run before any pass starts, so this reference is the only one.
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            change(shared);
        }
    }

    /// Returns the notification that wakes the worker when a session may be due. The work queue in the store is
    /// authoritative. The notification only saves the wait for the next poll.
    #[must_use]
    pub fn waker(&self) -> Arc<Notify> {
        Arc::clone(&self.wake)
    }

    /// Replaces the notification by one that another component already uses.
    #[must_use]
    pub fn woken_by(mut self, wake: Arc<Notify>) -> Self {
        self.wake = wake;
        self
    }

    /// Replaces the counters by ones that another component already reads.
    #[must_use]
    pub fn with_stats(mut self, stats: WorkerStats) -> Self {
        self.change(|shared| shared.stats = stats);
        self
    }

    /// Returns the counters.
    pub fn stats(&self) -> WorkerStats {
        self.shared.stats.clone()
    }

    /// Runs until `stop` is cancelled. Passes in progress may then finish within the grace period. Later ones are
    /// aborted, and another worker takes over their sessions.
    pub async fn run(self, stop: CancellationToken) {
        let mut round = WorkerLoop {
            shared: self.shared,
            running: JoinSet::new(),
            keys: HashMap::new(),
            queue: ProjectQueue::default(),
            is_more: true,
        };
        loop {
            if round.is_more {
                round.list().await;
            }
            round.start().await;
            let poll = round.shared.options.poll;
            // Biased, so that a cancellation is handled before new work.
            // Without running passes, `join_next_with_id` returns `None`, and its branch is off.
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(ended) = round.running.join_next_with_id() => round.record_result(ended).await,
                () = self.wake.notified() => round.is_more = true,
                () = sleep(poll) => round.is_more = true,
            }
        }
        round.finish().await;
    }
}

struct WorkerLoop {
    shared: Arc<WorkerContext>,
    running: JoinSet<()>,
    keys: HashMap<Id, SessionKey>,
    queue: ProjectQueue,
    /// True if the queue may contain sessions that were not listed yet.
    is_more: bool,
}

impl WorkerLoop {
    /// Replaces the list of due sessions, so that newly due ones do not wait for the end of the old list.
    async fn list(&mut self) {
        let (options, now) = (&self.shared.options, self.shared.clock.now());
        // Another worker's session is left alone for some polls, because it may still be cached there.
        let asks = DueQuery {
            owner: &options.owner,
            // A project that alone has due sessions can use all passes.
            max_per_project: LIST_SESSIONS_PER_PROJECT.max(options.concurrency),
            others_ready_before: now.minus(MAX_RESERVATION.min(options.poll * MAX_RESERVED_POLLS)),
        };
        match self.shared.log.due(asks, now, LIST_SESSIONS).await {
            Ok(due) => {
                // A claim by the owner of a lease renews it. Without this filter, a session in progress could get a
                // second pass.
                let running: HashSet<&SessionKey> = self.keys.values().collect();
                let waiting = due.into_iter().filter(|due| !running.contains(&due.key));
                let waiting: Vec<_> = waiting.collect();
                self.queue.replace(waiting);
            }
            Err(error) => {
                tracing::warn!(%error, "failed to read the work queue; retrying");
            }
        }
        // Cleared after an error as well. The next poll reads the queue again, so a failing store causes no busy loop.
        self.is_more = false;
    }

    async fn start(&mut self) {
        while self.running.len() < self.shared.options.concurrency {
            let Some(key) = self.queue.next() else {
                break;
            };
            let (lease, now) = (lease::from_now(&self.shared), self.shared.clock.now());
            // The list may be outdated, so the lease decides which worker gets the session.
            match self.shared.log.claim(&key, lease, now).await {
                Ok(true) => {
                    let (shared, of) = (Arc::clone(&self.shared), key.clone());
                    let span = tracing::debug_span!(
                        target: "palimpsest::span",
                        "worker.pass",
                        session = %of,
                        gen_ai.conversation.id = %of.session,
                    );
                    let pass = async move { run_pass(&shared, &of).await };
                    let task = self.running.spawn(pass.instrument(span));
                    self.keys.insert(task.id(), key);
                }
                // Another worker has the lease.
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(session = %key, %error, "failed to claim a session");
                }
            }
        }
        self.shared.stats.runs(self.running.len());
    }

    async fn record_result(&mut self, ended: Result<(Id, ()), JoinError>) {
        // The finished list may have been limited, so the queue is read again.
        self.is_more |= self.queue.is_empty();
        let id = match &ended {
            Ok((id, ())) => *id,
            Err(error) => error.id(),
        };
        // Ended passes leave `keys`, so that their sessions can be listed again.
        let Some(key) = self.keys.remove(&id) else {
            return;
        };
        // A panic ends one pass only. The session is scheduled again with a delay, and other sessions continue.
        if ended.is_err() {
            tracing::error!(session = %key, "an update of session memory panicked");
            record_panic(&self.shared, &key).await;
        }
    }

    async fn finish(mut self) {
        // Sessions that do not finish in time are released, so that another worker need not wait for the lease.
        let all = async { while self.running.join_next().await.is_some() {} };
        if timeout(self.shared.options.grace, all).await.is_ok() {
            return;
        }
        // The passes are aborted before their leases are released, so none of them writes without a lease.
        self.running.shutdown().await;
        // Releasing a lease that its pass has already released has no effect.
        for key in self.keys.values() {
            let owner = &self.shared.options.owner;
            if let Err(error) = self.shared.log.release(key, owner, DueChange::Keep).await {
                tracing::warn!(session = %key, %error, "failed to release a lease; it will expire");
            }
        }
    }
}

/// Runs one pass under its lease, and releases the lease.
async fn run_pass(shared: &WorkerContext, key: &SessionKey) {
    let done = lease::with_lease(shared, key, Box::pin(pass::run(shared, key))).await;
    let next = match done {
        // The lease was lost, so it is not released: another worker may hold it now.
        None => {
            tracing::warn!(session = %key, "lost the lease of a session to another worker");
            return;
        }
        Some(Ok(next)) => next,
        Some(Err(HostError::SessionNotFound)) => DueChange::Clear,
        Some(Err(error)) => {
            shared.stats.failure();
            let error = error_chain(&error);
            tracing::warn!(session = %key, error, "failed to process a session; retrying");
            retry(shared)
        }
    };
    release(shared, key, next).await;
}

/// Records the failure of a pass that panicked, and schedules a retry.
async fn record_panic(shared: &WorkerContext, key: &SessionKey) {
    if let Ok(Some(job)) = shared.host.job(key).await {
        let error = HostError::Refused("the update ended in an error of the program".into());
        // If the failure cannot be recorded either, the lease expires and the session is retried.
        let _ = pass::record_failure(shared, key, (&job, None), &error).await;
    }
    release(shared, key, retry(shared)).await;
}

fn retry(shared: &WorkerContext) -> DueChange {
    let wait = backoff::delay(&shared.options, 3, shared.ids.jitter());
    let now = shared.clock.now();
    DueChange::at(now.plus(wait), now)
}

async fn release(shared: &WorkerContext, key: &SessionKey, next: DueChange) {
    let released = shared.log.release(key, &shared.options.owner, next).await;
    if let Err(error) = released {
        tracing::warn!(session = %key, %error, "failed to release a lease; it will expire");
    }
}
