//! The worker: who works on what, and for how long.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use palimpsest_core::ids::SessionKey;
use palimpsest_engine::clock::{Clock, IdSource};
use palimpsest_facts::Redact;
use palimpsest_store::blobs::Blobs;
use palimpsest_store::{DueChange, DueQuery, SessionLog, error_chain};
use tokio::sync::{Notify, Semaphore};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::host::{Host, HostError};
use crate::lease::later;
use crate::options::Options;
use crate::queue::Queue;
use crate::writer::MemoryWriter;
use crate::{backoff, lease, pass};

/// How many sessions are listed at a time.
const LIST: usize = 1_000;
/// How many of one project, at least.
const LIST_OF_EACH: usize = 16;

/// What another worker had last is left to it for so many looks at the queue, and no longer than so long.
const LOOKS: u32 = 2;
const PATIENCE: Duration = Duration::from_secs(5);

/// What all passes share.
pub(crate) struct WorkerContext {
    pub(crate) log: Arc<dyn SessionLog>,
    pub(crate) host: Arc<dyn Host>,
    pub(crate) blobs: Arc<Blobs>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<IdSource>,
    pub(crate) writer: Option<Arc<dyn MemoryWriter>>,
    pub(crate) redact: Option<Redact>,
    pub(crate) options: Options,
    pub(crate) stats: WorkerStats,
    /// How many passes may compute at one time.
    pub(crate) cores: Semaphore,
}

/// What a worker has done since it began.
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
    /// Sessions that it works on.
    pub fn running(&self) -> u64 {
        self.0.running.load(Ordering::Relaxed)
    }

    /// Versions that it wrote.
    pub fn updates(&self) -> u64 {
        self.0.updates.load(Ordering::Relaxed)
    }

    /// Updates, and models asked for one, that came to nothing.
    pub fn failures(&self) -> u64 {
        self.0.failures.load(Ordering::Relaxed)
    }

    /// Times that a file could not be written.
    pub fn file_failures(&self) -> u64 {
        self.0.file_failures.load(Ordering::Relaxed)
    }

    /// Texts of people that it took in.
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

/// Keeps the summaries of a store's sessions.
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
    /// A worker without a model.
    pub fn new(
        log: Arc<dyn SessionLog>,
        host: Arc<dyn Host>,
        blobs: Arc<Blobs>,
        clock: Arc<dyn Clock>,
        ids: Arc<IdSource>,
        options: Options,
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
            cores: Semaphore::new((cores / 2).max(1)),
        };
        Self {
            shared: Arc::new(shared),
            wake: Arc::default(),
        }
    }

    /// The same with a model that keeps the notes of sessions whose policy wants one.
    #[must_use]
    pub fn with_writer(mut self, writer: Arc<dyn MemoryWriter>) -> Self {
        self.change(|shared| shared.writer = Some(writer));
        self
    }

    /// The same with somebody who takes secrets out.
    #[must_use]
    pub fn with_redact(mut self, redact: Redact) -> Self {
        self.change(|shared| shared.redact = Some(redact));
        self
    }

    fn change(&mut self, change: impl FnOnce(&mut WorkerContext)) {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            change(shared);
        }
    }

    /// Wakes it: a session may have become due. The queue is the truth; this only saves waiting for the
    /// next look at it.
    #[must_use]
    pub fn waker(&self) -> Arc<Notify> {
        Arc::clone(&self.wake)
    }

    /// The same, when the one who wakes was there first.
    #[must_use]
    pub fn woken_by(mut self, wake: Arc<Notify>) -> Self {
        self.wake = wake;
        self
    }

    /// The same, which counts where somebody else looks already.
    #[must_use]
    pub fn with_stats(mut self, stats: WorkerStats) -> Self {
        self.change(|shared| shared.stats = stats);
        self
    }

    /// What it has done.
    pub fn stats(&self) -> WorkerStats {
        self.shared.stats.clone()
    }

    /// Works until `stop`; then finishes what is under way, or leaves it to the next worker when that
    /// takes too long.
    pub async fn run(self, stop: CancellationToken) {
        let mut round = WorkerLoop {
            shared: self.shared,
            running: JoinSet::new(),
            keys: HashMap::new(),
            queue: Queue::default(),
            is_more: true,
        };
        loop {
            if round.is_more {
                round.list().await;
            }
            round.start().await;
            let poll = round.shared.options.poll;
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(ended) = round.running.join_next_with_id() => round.ended(ended).await,
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
    queue: Queue,
    /// Whether the queue may hold what was not listed yet.
    is_more: bool,
}

impl WorkerLoop {
    /// Lists what is due anew: what became due since must not wait until the old list is through.
    async fn list(&mut self) {
        let (options, now) = (&self.shared.options, self.shared.clock.now());
        let asks = DueQuery {
            owner: &options.owner,
            each: LIST_OF_EACH.max(options.concurrency),
            others_before: lease::earlier(now, PATIENCE.min(options.poll * LOOKS)),
        };
        match self.shared.log.due_for(asks, now, LIST).await {
            Ok(due) => {
                let running: HashSet<&SessionKey> = self.keys.values().collect();
                let waiting = due.into_iter().filter(|due| !running.contains(&due.key));
                let waiting: Vec<_> = waiting.collect();
                self.queue.replace(waiting);
            }
            Err(error) => {
                tracing::warn!(%error, "failed to read the queue of summaries; it is read again");
            }
        }
        self.is_more = false;
    }

    async fn start(&mut self) {
        while self.running.len() < self.shared.options.concurrency {
            let Some(key) = self.queue.next() else {
                break;
            };
            let (lease, now) = (lease::from_now(&self.shared), self.shared.clock.now());
            match self.shared.log.claim(&key, lease, now).await {
                Ok(true) => {
                    let (shared, of) = (Arc::clone(&self.shared), key.clone());
                    let span = tracing::debug_span!(
                        target: "palimpsest::span", "worker.pass", session = %of
                    );
                    let pass = async move { work(&shared, &of).await };
                    let task = self.running.spawn(pass.instrument(span));
                    self.keys.insert(task.id(), key);
                }
                // Somebody else has it.
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(session = %key, %error, "failed to claim a session");
                }
            }
        }
        self.shared.stats.runs(self.running.len());
    }

    async fn ended(&mut self, ended: Result<(Id, ()), JoinError>) {
        // A list that is through may have been cut.
        self.is_more |= self.queue.is_empty();
        let id = match &ended {
            Ok((id, ())) => *id,
            Err(error) => error.id(),
        };
        let Some(key) = self.keys.remove(&id) else {
            return;
        };
        if ended.is_err() {
            tracing::error!(session = %key, "an update of a summary panicked");
            crashed(&self.shared, &key).await;
        }
    }

    async fn finish(mut self) {
        let all = async { while self.running.join_next().await.is_some() {} };
        if timeout(self.shared.options.grace, all).await.is_ok() {
            return;
        }
        self.running.shutdown().await;
        // Those that had ended have given their leases back, and this does nothing.
        for key in self.keys.values() {
            let owner = &self.shared.options.owner;
            if let Err(error) = self.shared.log.release(key, owner, DueChange::Keep).await {
                tracing::warn!(session = %key, %error, "failed to give a lease back; it lapses");
            }
        }
    }
}

/// One pass under its lease, and the lease given back.
async fn work(shared: &WorkerContext, key: &SessionKey) {
    let done = lease::keep(shared, key, Box::pin(pass::run(shared, key))).await;
    let next = match done {
        None => {
            tracing::warn!(session = %key, "lost the lease of a session: another worker has it");
            return;
        }
        Some(Ok(next)) => next,
        Some(Err(HostError::Gone)) => DueChange::Clear,
        Some(Err(error)) => {
            shared.stats.failure();
            let error = error_chain(&error);
            tracing::warn!(session = %key, error, "failed to look at a session; it is tried again");
            retry(shared)
        }
    };
    release(shared, key, next).await;
}

/// After a panic the session is told, and tried again.
async fn crashed(shared: &WorkerContext, key: &SessionKey) {
    if let Ok(Some(job)) = shared.host.job(key).await {
        let error = HostError::Refused("the update ended in an error of the program".into());
        // When not even that can be written, the lease lapses.
        let _ = pass::failed(shared, key, (&job, None), &error).await;
    }
    release(shared, key, retry(shared)).await;
}

fn retry(shared: &WorkerContext) -> DueChange {
    let wait = backoff::wait(&shared.options, 3, shared.ids.jitter());
    let now = shared.clock.now();
    DueChange::at(later(now, wait), now)
}

async fn release(shared: &WorkerContext, key: &SessionKey, next: DueChange) {
    let released = shared.log.release(key, &shared.options.owner, next).await;
    if let Err(error) = released {
        tracing::warn!(session = %key, %error, "failed to give a lease back; it lapses");
    }
}
